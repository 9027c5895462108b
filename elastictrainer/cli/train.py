"""et-train: fine-tune a model at a chosen speed."""

import argparse
import dataclasses
import os
import re
import sys
import time
from typing import Any, Dict, Optional, Sequence

from elastictrainer.cli.command import run
from elastictrainer.cli.quiet import load_tensorflow
from elastictrainer.errors import UsageError
from elastictrainer.experiment.options import given, load, parse
from elastictrainer.experiment.settings import TrainSettings, check_names
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
        check_names(settings)
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
            check_names(settings)
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
    """Train into `run_folder`, and print the outcome."""
    load_tensorflow()
    from elastictrainer.experiment import run as experiment

    _print_summary(experiment.train(settings, run_folder, resume))


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
        f"test accuracy: best {100 * summary['accuracy_best']:.2f} %, "
        f"last {100 * summary['accuracy_last']:.2f} %\n"
        f"training time: {summary['train_seconds']:.1f} s, of these "
        f"importance {summary['importance_seconds']:.1f} s, selection {summary['selection_seconds']:.2f} s, "
        f"tracing {summary['trace_seconds']:.1f} s\n"
        f"ratio to full training: {', '.join(ratios)}"
        + (
            f"\nenergy of training: {summary['energy_joules']:.0f} J"
            if summary.get("energy_joules") is not None
            else ""
        )
    )


if __name__ == "__main__":
    sys.exit(main())
