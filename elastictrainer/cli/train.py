"""et-train: fine-tune a model at a chosen speed."""

import argparse
import contextlib
import dataclasses
import functools
import os
import re
import sys
import time
from typing import Any, Dict, Optional, Sequence

from elastictrainer.cli.command import run
from elastictrainer.cli.quiet import load_tensorflow
from elastictrainer.errors import UsageError
from elastictrainer.experiment.settings import TrainSettings, check, given, load, parse
from elastictrainer.training import launcher

_DESCRIPTION = "Fine-tune a pre-trained model in a chosen share of the time that full training takes."
_EXAMPLE = "example: et-train --model resnet50 --dataset path/to/images --rho 0.5"


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command; returns its exit status."""
    return run("et-train", _body, arguments)


def _body(arguments: Optional[Sequence[str]]) -> None:
    parser = argparse.ArgumentParser(
        "et-train", description=_DESCRIPTION, epilog=_EXAMPLE, allow_abbrev=False
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.add_argument(
        "--resume", metavar="RUN", help="go on with an interrupted run; its settings are in the run folder"
    )
    parser.add_argument(
        "--save_model", nargs="?", help="accepted for the published code's sake: the model is always saved"
    )
    settings, options = parse(TrainSettings, arguments, parser)

    from elastictrainer.runs.run_folder import RunFolder

    if options.resume is None:
        check(settings)
        if settings.init_from:
            load_tensorflow()
            from elastictrainer.experiment.continuation import settings_of

            settings = settings_of(settings, given(TrainSettings, options))
        output = settings.output or _run_name(settings)
        if _is_launcher(settings):
            command = [*(sys.argv[1:] if arguments is None else arguments), "--output", output]
            load_tensorflow()
            seen = launcher.devices(settings.replicas)
            launcher.train([command] * len(seen), seen, output)
            return
        run_folder = RunFolder(output + _of_worker(settings))
        with run_folder.claimed(settings.overwrite):
            _train(settings, run_folder, resume=False)
        return
    others = given(TrainSettings, options)
    if others:
        raise UsageError(
            f"--resume takes all settings from {options.resume}/config.yaml; leave out {', '.join(others)}."
        )
    _resume(RunFolder(options.resume))


def _is_launcher(settings: TrainSettings) -> bool:
    """Whether this process only starts those that train."""
    return settings.strategy == "mirrored" and not launcher.is_replica()


def _resume(run_folder: Any) -> None:
    """Go on with the run in a folder, if it is not finished."""
    if run_folder.config_path.exists():
        settings = load(TrainSettings, run_folder.config_path)
        if _is_launcher(settings) and not run_folder.summary_path.exists():
            load_tensorflow()
            seen = launcher.devices(settings.replicas)
            launcher.train(
                [["--resume", f"{run_folder.path}{launcher.suffix(k)}"] for k in range(len(seen))],
                seen,
                str(run_folder.path),
            )
            return
    with run_folder.claimed(resume=True):
        if run_folder.summary_path.exists():
            print(f"{run_folder.path} is finished; there is nothing to resume.")
            _print_summary(run_folder.summary())
            return
        settings = load(TrainSettings, run_folder.config_path)
        if run_folder.profile_path.exists():
            settings = dataclasses.replace(settings, profile=str(run_folder.profile_path))
        try:
            check(settings)
            _train(settings, run_folder, resume=True)
        except UsageError as error:
            started_in = run_folder.environment().get("directory")
            elsewhere = (
                f" The run was started in {started_in}; resume it from there."
                if started_in != os.getcwd()
                else ""
            )
            raise UsageError(f"{error}{elsewhere}") from None


def _train(settings: TrainSettings, run_folder: Any, resume: bool) -> None:
    """Train into `run_folder`, alone or as one of several processes."""
    load_tensorflow()
    from elastictrainer.training.workers import create

    workers = create(settings.strategy)
    with workers.told_when_alone() if workers else contextlib.nullcontext():
        _train_among(workers, settings, run_folder, resume)


def _train_among(workers: Any, settings: TrainSettings, run_folder: Any, resume: bool) -> None:
    """Make everything from `settings`, and train."""
    from elastictrainer.experiment import assembly
    from elastictrainer.models import warm_start
    from elastictrainer.models.export import export_run
    from elastictrainer.profiler.timings import TensorTimings
    from elastictrainer.runs import environment
    from elastictrainer.runs.run_folder import RunFolder
    from elastictrainer.selection import schemes
    from elastictrainer.selection.settings import SelectionSettings
    from elastictrainer.steps.compiled_step import exempt_from_collection
    from elastictrainer.training import energy
    from elastictrainer.training.training import Training
    from elastictrainer.training.workers import draw_apart

    formats = settings.export.split(",") if settings.export else []
    selection = SelectionSettings(
        rho=settings.rho,
        interval=settings.interval,
        importance_batches=settings.importance_batches,
        solver=settings.solver,
        feedback=not settings.deterministic and workers is None,
        reprofile=settings.reprofile,
    )
    if settings.meter:
        energy.from_log(settings.meter, [])  # what is wrong with it is said now

    scheme = schemes.create(settings.scheme)
    assembly.configure(settings.seed, settings.deterministic)
    data = assembly.load_data(settings).cached(settings.cache, print)
    if workers:
        data = dataclasses.replace(data, part=(workers.rank, workers.count))
    if settings.init_from:
        model = warm_start.model_of(RunFolder(settings.init_from), data.class_names)
    else:
        model = assembly.make_model(settings, len(data.class_names))
    own = settings  # what this process does
    if workers:
        workers.start_alike(model.variables)
        draw_apart(model, workers.rank)
        own = dataclasses.replace(settings, batch_size=settings.batch_size // workers.count)
    print(
        f"{settings.model} on {settings.dataset}: {len(data.class_names)} classes, {data.train_split.count} training "
        f"and {data.test_split.count} test images, {len(model.trainable_weights)} trainable tensors"
    )
    if data.imbalance():
        print(data.imbalance())
    print(f"run: {run_folder.path}")
    metadata = assembly.profile_metadata(
        own, (*data.image_size, model.input_shape[-1]), len(data.class_names)
    )
    optimizer = assembly.make_optimizer(settings, settings.epochs * data.steps_per_epoch)
    selects = scheme.importance_metric is not None
    obtain = functools.partial(
        assembly.obtain_profile,
        settings,
        model,
        metadata,
        lambda: next(iter(data.train(0))),
        optimizer,
        selects,
        print,
    )
    if workers:  # one profile, or they would select differently
        found = workers.of_first(lambda: (own_profile := obtain()) and own_profile.to_json())
        timings = found and TensorTimings.from_json(found)
    else:
        timings = obtain()
    sensor, about_energy = (None, f"log {settings.meter}") if settings.meter else energy.find_sensor()
    print(
        f"energy: {about_energy}" if sensor or settings.meter else f"energy is not measured: {about_energy}"
    )
    training = Training(
        model,
        optimizer,
        scheme=settings.scheme,
        timings=timings,
        epochs=settings.epochs,
        seed=settings.seed,
        checkpoint_minutes=settings.checkpoint_minutes,
        sensor=sensor,
        run=run_folder,
        workers=workers,
        **dataclasses.asdict(selection),
    )
    if not resume:
        run_folder.clear()
        run_folder.write_config(dataclasses.asdict(settings))  # from here on it can be resumed
    if timings is not None and not run_folder.profile_path.exists():
        timings.save(run_folder.profile_path)
    if not run_folder.environment_path.exists():
        about = {
            "seed": settings.seed,
            "arguments": sys.argv[1:],
            "directory": os.getcwd(),
            "class_names": list(data.class_names),
        }
        run_folder.write_environment({**environment.describe(), **about})
    exempt_from_collection()
    summary = training.fit(data, resume)
    if settings.meter:
        summary = _with_metered_energy(summary, settings.meter, run_folder)
    _print_summary(summary)
    if formats and not (workers and workers.rank):
        for path in export_run(run_folder, formats):
            print(f"written: {path}")


def _with_metered_energy(summary: Dict[str, Any], meter: str, run_folder: Any) -> Dict[str, Any]:
    """The summary with the energy that an external meter logged, written as well; as it was where the log is no good."""
    from elastictrainer.training import energy

    try:
        joules = energy.from_log(meter, summary["training_intervals"])
    except UsageError as error:  # the run itself is fine
        print(f"no energy: {error}", file=sys.stderr)
        return summary
    summary = {**summary, "energy_joules": joules, "energy_source": f"log {meter}"}
    run_folder.write_summary(summary)
    return summary


def _of_worker(settings: TrainSettings) -> str:
    """What tells the run folders of several workers apart: nothing for the first."""
    if settings.strategy not in ("multi-worker", "mirrored"):
        return ""
    from elastictrainer.training.workers import task

    rank, _ = task()
    return launcher.suffix(rank)


def _run_name(settings: TrainSettings) -> str:
    model, scheme = (
        re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") for name in (settings.model, settings.scheme)
    )
    rho = f"_rho{settings.rho:g}" if settings.scheme.startswith("elastic") else ""
    return f"runs/{time.strftime('%Y%m%d-%H%M%S')}_{model}_{scheme}{rho}"


def _print_summary(summary: Dict[str, Any]) -> None:
    ratios = [
        f"{words} {summary[key]:.3f}"
        for words, key in (
            ("requested", "rho_requested"),
            ("predicted", "rho_predicted"),
            ("achieved", "rho_achieved"),
        )
        if summary[key] is not None
    ]
    print(
        f"test accuracy: best {100 * summary['accuracy_best']:.2f} %, last {100 * summary['accuracy_last']:.2f} %\n"
        f"training time: {summary['train_seconds']:.1f} s, of these importance {summary['importance_seconds']:.1f} s, "
        f"selection {summary['selection_seconds']:.2f} s, tracing {summary['trace_seconds']:.1f} s\n"
        f"ratio to full training: {', '.join(ratios)}"
        + (
            f"\nenergy of training: {summary['energy_joules']:.0f} J"
            if summary.get("energy_joules") is not None
            else ""
        )
    )


if __name__ == "__main__":
    sys.exit(main())
