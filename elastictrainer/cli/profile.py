"""et-profile: measure how much of a training step each tensor takes on this device."""

import functools
import sys
from pathlib import Path
from typing import Optional, Sequence

from elastictrainer.cli.command import make_parser, run
from elastictrainer.experiment.checks import check, refuse_inapplicable
from elastictrainer.experiment.options import given, parse
from elastictrainer.experiment.settings import ProfileSettings
from elastictrainer.runs.quiet import load_tensorflow

_DESCRIPTION = (
    "Measure how much of a training step each tensor takes on this device, and write the profile to a file."
)
_USAGE = "et-profile [--dataset DATA | --classes N] [--model NAME] [--profile FILE] [OPTION ...]"
_EXAMPLE = "example: et-profile --model resnet50 --validate 12"


def _body(arguments: Optional[Sequence[str]]) -> None:
    parser = make_parser("et-profile", _DESCRIPTION, _EXAMPLE, _USAGE)
    settings, options = parse(ProfileSettings, arguments, parser)
    check(settings)
    typed = given(ProfileSettings, options)
    refuse_inapplicable(settings, typed)

    load_tensorflow()
    import tensorflow as tf

    from elastictrainer.cli.profile_table import table
    from elastictrainer.experiment import assembly, memory, profiling

    assembly.configure(settings.seed, mixed_precision=settings.mixed_precision)
    dataset_given = "--dataset" in typed or settings.dataset != ProfileSettings().dataset
    classes = assembly.count_classes(settings, dataset_given)
    model = assembly.make_model(settings, classes)
    shape = (*assembly.image_size(settings, model), model.input_shape[-1])
    metadata = profiling.profile_metadata(settings, model, shape, classes)
    path = Path(settings.profile or profiling.profile_path(metadata))
    profiling.require_writable_profile(path)
    memory.require_enough(model, settings.batch_size)
    pixels = tf.random.uniform((settings.batch_size, *shape), 0, 255)
    labels = tf.random.uniform((settings.batch_size,), 0, classes, tf.int64)
    profile = profiling.make_profile(
        model,
        (pixels, labels),
        assembly.make_optimizer(settings),
        metadata,
        warmup_steps=settings.warmup_steps,
        steps=settings.steps,
        calibrate_s=settings.calibration_seconds,
        validate=settings.validate,
        seed=settings.seed,
    )
    print(table(profile))
    profile.save(path)
    print(f"profile: {path}")


main = functools.partial(run, "et-profile", _body)

if __name__ == "__main__":
    sys.exit(main())
