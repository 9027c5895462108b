"""et-train: fine-tune a model at a chosen speed."""

import argparse
import dataclasses
import re
import sys
import time
from typing import Any, Dict, Optional, Sequence

from elastictrainer.cli.command import run
from elastictrainer.config import TrainSettings, parse

_DESCRIPTION = "Fine-tune a pre-trained model in a chosen share of the time that full training takes."
_EXAMPLE = "example: et-train --model resnet50 --dataset path/to/images --rho 0.5"


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command; returns its exit status."""
    return run("et-train", _body, arguments)


def _body(arguments: Optional[Sequence[str]]) -> None:
    parser = argparse.ArgumentParser("et-train", description=_DESCRIPTION, epilog=_EXAMPLE, allow_abbrev=False)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.add_argument("--save_model", nargs="?", help="accepted for the published code's sake: the model is always saved")
    settings, _ = parse(TrainSettings, arguments, parser)

    from elastictrainer import assembly, environment, schemes
    from elastictrainer.run_folder import RunFolder
    from elastictrainer.trainer import Trainer

    scheme = schemes.create(settings.scheme)
    assembly.configure(settings.seed, settings.deterministic)
    data = assembly.load_data(settings)
    model = assembly.make_model(settings, len(data.class_names))
    run_folder = RunFolder(settings.output or _run_name(settings))
    run_folder.check_free(settings.overwrite)  # said at once; nothing is replaced before everything else is in order
    print(
        f"{settings.model} on {settings.dataset}: {len(data.class_names)} classes, {data.train_split.count} training "
        f"and {data.test_split.count} test images, {len(model.trainable_weights)} trainable tensors"
    )
    print(f"run: {run_folder.path}")
    metadata = assembly.profile_metadata(settings, (*data.image_size, model.input_shape[-1]), len(data.class_names))
    optimizer = assembly.make_optimizer(settings, settings.epochs * data.steps_per_epoch)
    selects = scheme.importance_metric is not None
    timings, path = assembly.find_profile(settings, model, metadata, wanted=selects)
    if timings is not None:
        print(f"profile: {path}")
    elif selects:
        print("no profile of this model, shape, batch and device yet: making one")
        timings = assembly.make_profile(model, next(iter(data.train(0))), optimizer, metadata, print)
        timings.save(path)
        print(f"profile: {path} (full step {timings.full_ms:.1f} ms, rho_min {timings.rho_min:.3f})")
    trainer = Trainer(
        model,
        optimizer,
        scheme=settings.scheme,
        timings=timings,
        rho=settings.rho,
        interval=settings.interval,
        epochs=settings.epochs,
        importance_batches=settings.importance_batches,
        solver=settings.solver,
        feedback=not settings.deterministic,
        seed=settings.seed,
    )
    trainer.run = RunFolder.create(run_folder.path, settings.overwrite)
    run_folder.write_config(dataclasses.asdict(settings))
    run_folder.write_environment({**environment.describe(), "seed": settings.seed, "arguments": sys.argv[1:]})
    if timings is not None:
        timings.save(run_folder.profile_path)
    _print_summary(trainer.fit(data))


def _run_name(settings: TrainSettings) -> str:
    model = re.sub(r"[^A-Za-z0-9]+", "-", settings.model).strip("-")
    rho = f"_rho{settings.rho:g}" if settings.scheme.startswith("elastic") else ""
    return f"runs/{time.strftime('%Y%m%d-%H%M%S')}_{model}_{settings.scheme}{rho}"


def _print_summary(summary: Dict[str, Any]) -> None:
    ratios = [
        f"{words} {summary[key]:.3f}"
        for words, key in (("requested", "rho_requested"), ("predicted", "rho_predicted"), ("achieved", "rho_achieved"))
        if summary[key] is not None
    ]
    print(
        f"test accuracy: best {100 * summary['accuracy_best']:.2f} %, last {100 * summary['accuracy_last']:.2f} %\n"
        f"training time: {summary['train_seconds']:.1f} s, of these importance {summary['importance_seconds']:.1f} s, "
        f"selection {summary['selection_seconds']:.2f} s, tracing {summary['trace_seconds']:.1f} s\n"
        f"ratio to full training: {', '.join(ratios)}"
    )


if __name__ == "__main__":
    sys.exit(main())
