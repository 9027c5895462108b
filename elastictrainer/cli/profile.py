"""et-profile: measure how much of a training step each tensor takes on this device."""

import dataclasses
import functools
import sys
from pathlib import Path
from typing import List, Optional, Sequence

import numpy as np

from elastictrainer.cli.command import make_parser, run
from elastictrainer.experiment.options import check, parse, refuse_inapplicable
from elastictrainer.experiment.settings import ProfileSettings
from elastictrainer.profiler.profile import Profile
from elastictrainer.runs.environment import load_tensorflow

_DESCRIPTION = (
    "Measure how much of a training step each tensor takes on this device, and write the profile to a file."
)
_USAGE = "et-profile [--dataset DATA | --classes N] [--model NAME] [--profile FILE] [OPTION ...]"
_EXAMPLE = "example: et-profile --dataset photos --test-split 0.2 --validate 12"
_COSTLIEST = 10  # tensors listed
_NAME_WIDTH = 54  # characters of a tensor's name


def _body(arguments: Optional[Sequence[str]]) -> None:
    parser = make_parser("et-profile", _DESCRIPTION, _EXAMPLE, _USAGE)
    settings, options = parse(ProfileSettings, arguments, parser)
    check(settings)
    refuse_inapplicable(settings, options.typed)

    load_tensorflow()
    import tensorflow as tf

    from elastictrainer.experiment import assembly, profiling

    settings = dataclasses.replace(settings, precision=profiling.choose_precision(settings))
    assembly.configure(settings.seed, precision=settings.precision)
    dataset_given = "--dataset" in options.typed or settings.dataset != ProfileSettings().dataset
    classes = assembly.count_classes(settings, dataset_given)
    model = assembly.make_model(settings, classes)
    shape = (*assembly.image_size(settings, model), model.input_shape[-1])
    metadata = assembly.profile_metadata(settings, model, shape, classes)
    path = Path(settings.profile or profiling.profile_path(metadata))
    profiling.require_writable_profile(path)
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


def table(profile: Profile) -> str:
    """Return full step, forward share, overlap, FLOPs, memory, coverage, rho_min, and the costliest tensors.

    A profile with measured selections (`et-profile --validate`) also gets their predicted and measured step
    times. Times are in ms. Tensors are in the order of dW plus dy time, the largest first.
    """
    return "\n".join([*_step(profile), "", *_costliest_tensors(profile), *_validation(profile)])


def _step(profile: Profile) -> List[str]:
    metadata = profile.metadata
    input_shape = "x".join(map(str, metadata.get("input_shape", [])))
    lines = [
        f"{metadata.get('model', 'model')}: {len(profile)} trainable tensors, "
        f"batch {metadata.get('batch_size')}, input {input_shape}, {metadata['device']}, "
        f"{metadata['threads']['processors']} processor(s)",
        f"full step     {profile.full_ms:9.1f} ms",
        f"forward       {100 * profile.forward_share:9.1f} %   of the full step; "
        f"{100 * profile.frozen_saving:.0f} % less where it is frozen",
        f"overlap       {100 * profile.overlap:9.1f} %   of the dW time of an unselected tensor is not saved "
        "(below 0: more than that time is saved)",
    ]
    full, forward = (profile.step_flops(np.full(len(profile), chosen)) for chosen in (True, False))
    if full and forward is not None:
        share = 100 * forward / full
        lines.append(f"FLOPs         {full / 1e9:9.2f} G    a full step; {share:.1f} % of them forward")
    memory = profile.memory
    if memory is not None:
        most, least = memory.step_bytes(profile.connected), memory.alone[profile.connected].min()
        lines.append(
            f"memory        {most / 1e6:9.0f} MB    a full step, above the {memory.loaded / 1e6:.0f} MB of "
            f"the loaded model; {least / 1e6:.0f} MB the cheapest selection"
        )
    return [
        *lines,
        f"coverage      {100 * metadata['coverage']:9.1f} %   of the busy time is attributed",
        f"rho_min       {profile.rho_min:9.3f}     the smallest --rho with --activation-cache off"
        + ("" if profile.cache is None else f"; {profile.with_cache.rho_min:.3f} for a cached step"),
        *(f"  unattributed: {op['op']} {op['ms']:.2f} ms" for op in metadata["unattributed"][:3]),
    ]


def _costliest_tensors(profile: Profile) -> List[str]:
    lines = [f"{'costliest tensors':<56}{'forward':>9}{'dW':>9}{'dy':>9}   ms"]
    for i in np.argsort(-(profile.t_dw + profile.t_dy), kind="stable")[:_COSTLIEST]:
        mark = " estimated" if profile.estimated[i] else ""
        name = profile.names[i]
        if len(name) > _NAME_WIDTH:
            name = "..." + name[3 - _NAME_WIDTH :]
        lines.append(
            f"{name:<56}{profile.t_forward[i]:9.2f}{profile.t_dw[i]:9.2f}{profile.t_dy[i]:9.2f}{mark}"
        )
    return lines


def _validation(profile: Profile) -> List[str]:
    """Return the errors of the measured selections' predictions; nothing if none was measured."""
    if not profile.validation:
        return []
    lines = ["", f"{'random selection':<24}{'predicted ms':>14}{'measured ms':>14}{'error':>9}"]
    errors = profile.validation_errors
    for result, error in zip(profile.validation, errors):
        tensors = f"{len(result['selected']):>5} of {len(profile)} tensors"
        lines.append(
            f"{tensors:<24}{result['predicted_ms']:14.1f}{result['measured_ms']:14.1f}{100 * error:8.1f}%"
        )
    median, high = (100 * np.quantile(np.abs(errors), share) for share in (0.5, 0.9))
    return [*lines, f"absolute error: median {median:.1f} %, 90th percentile {high:.1f} %"]


main = functools.partial(run, "et-profile", _body)

if __name__ == "__main__":
    sys.exit(main())
