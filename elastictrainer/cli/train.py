"""et-train: fine-tune a model at a chosen speed."""

import dataclasses
import datetime
import sys
from typing import Any, Dict, Optional, Sequence

from elastictrainer.cli.command import make_parser, run
from elastictrainer.cli.output import unfailing
from elastictrainer.errors import UsageError
from elastictrainer.experiment.options import given, parse
from elastictrainer.experiment.quantities import parse_seconds, seconds_until
from elastictrainer.experiment.run_settings import inherit_settings
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.experiment.settings_checks import check_values, refuse_inapplicable
from elastictrainer.experiment.start import last_unfinished, resume, start
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.training.clock import process_age_s

_DESCRIPTION = "Fine-tune a pre-trained model within a chosen time, or a share of full training's time."
_USAGE = """et-train [--dataset DATA] [--model NAME] [--time TIME | --until CLOCK | --rho X] [OPTION ...]
       et-train --resume RUN [--time TIME | --until CLOCK]"""
_EXAMPLE = "example: et-train --model resnet50 --dataset path/to/images --rho 0.5"


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns its exit status."""
    with unfailing():
        return run("et-train", _body, arguments)


def _body(arguments: Optional[Sequence[str]]) -> None:
    parser = make_parser("et-train", _DESCRIPTION, _EXAMPLE, _USAGE)
    parser.add_argument(
        "--resume",
        metavar="RUN",
        help="continue an interrupted run, or extend a finished one with --time; last: the latest run "
        "in runs/",
    )
    parser.add_argument(
        "--trust-run",
        action="store_true",
        help="with --resume or --init-from: run the code that another person's run names in its settings",
    )
    parser.add_argument(
        "--until", metavar="CLOCK", help="end when the clock next shows this time, such as 18:00: see --time"
    )
    settings, options = parse(TrainSettings, arguments, parser)
    if options.until is not None:
        if hasattr(options, "time"):
            raise UsageError("--time and --until both say when the run ends: leave one of them out.")
        # --time counts from the start of the process.
        seconds = seconds_until(options.until, datetime.datetime.now()) + process_age_s()
        options.time = f"{seconds:.1f}s"
        settings = dataclasses.replace(settings, time=options.time)

    if options.resume is None:
        check_values(settings)
        chosen = given(TrainSettings, options)
        if settings.init_from:
            settings = inherit_settings(settings, chosen, options.trust_run)
        else:
            refuse_inapplicable(settings, chosen)
        summary = start(settings)
    else:
        extra_time = getattr(options, "time", None)
        others = [option for option in given(TrainSettings, options) if option != "--time"]
        if others:
            raise UsageError(
                f"--resume takes all settings from {options.resume}/config.yaml; leave out "
                f"{', '.join(others)}."
            )
        run_folder = last_unfinished() if options.resume == "last" else RunFolder(options.resume)
        if extra_time is not None:
            parse_seconds(extra_time)
        summary = resume(run_folder, options.trust_run, extra_time)
    _print_summary(summary)


def _print_summary(summary: Dict[str, Any]) -> None:
    kinds = [kind for kind in ("requested", "predicted", "achieved") if summary[f"rho_{kind}"] is not None]
    ratios = ", ".join(f"{kind} {summary[f'rho_{kind}']:.3f}" for kind in kinds)
    seconds = summary.get("seconds", {})
    steps_s = seconds.get("cache_read", 0.0) + seconds.get("steps", 0.0)
    head_s = seconds.get("head", 0.0) + seconds.get("cache_write", 0.0)
    selecting_s = summary["importance_seconds"] + summary["selection_seconds"] + summary["trace_seconds"]
    print(_accuracy(summary))
    print(
        f"took: head and cache {head_s:.0f} s, selection {selecting_s:.0f} s, training {steps_s:.0f} s; "
        f"{summary['train_seconds']:.0f} s in all, and {seconds.get('validation', 0.0):.0f} s of evaluation"
    )
    if ratios:
        print(f"ratio to full training: {ratios}")
    if summary.get("energy_joules") is not None:
        print(f"energy of training: {summary['energy_joules']:.0f} J")


def _accuracy(summary: Dict[str, Any]) -> str:
    line = f"test accuracy: {100 * summary['accuracy']:.2f} %"
    if summary.get("val_accuracy") is not None:
        line += (
            f" with {summary['kept_weights']}, the weights of epoch {summary['kept_epoch']} (validation "
            f"accuracy {100 * summary['val_accuracy']:.2f} %)"
        )
    if summary.get("accuracy_old") is None:
        return line
    old, new = 100 * summary["accuracy_old"], 100 * summary["accuracy_new"]
    return f"{line}; of the old data {old:.2f} %, of the new {new:.2f} %"


if __name__ == "__main__":
    sys.exit(main())
