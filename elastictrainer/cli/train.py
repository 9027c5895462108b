"""et-train: fine-tune a model at a chosen speed."""

import sys
from typing import Optional, Sequence

from elastictrainer.cli.command import make_parser, run, unfailing
from elastictrainer.errors import UsageError
from elastictrainer.experiment.options import inherit, parse, refuse_inapplicable
from elastictrainer.experiment.settings import TrainSettings, parse_seconds
from elastictrainer.experiment.start import last_unfinished, resume, start
from elastictrainer.runs.run_folder import Record, RunFolder, spread

_DESCRIPTION = "Fine-tune a pre-trained model within a chosen time, or a share of full training's time."
_USAGE = """et-train [--dataset DATA] [--model NAME] [--time TIME | --rho X] [OPTION ...]
       et-train --resume RUN [--time TIME]"""
_EXAMPLE = "example: et-train --model mobilenetv2 --dataset photos --test-split 0.2 --time 10m"
_TO_BEGIN = """say what to train on.
  et-train --model demo --dataset demo                a minute's run on images that come with the program
  et-train --dataset path/to/images --time 10m        your images, a folder for each class, in ten minutes
  et-train --dataset path/to/images --rho 0.5         in half of the time that full training takes
  et-train --help                                     the options that most people use"""


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns its exit status."""
    with unfailing():
        return run("et-train", _body, arguments)


def _body(arguments: Optional[Sequence[str]]) -> None:
    if not (sys.argv[1:] if arguments is None else arguments):
        raise UsageError(_TO_BEGIN)
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
    settings, options = parse(TrainSettings, arguments, parser)
    if options.resume is not None:
        _print_summary(_resume(options.resume, settings.time, options.typed, options.trust_run))
        return
    if settings.init_from:
        settings = inherit(settings, options.typed, options.trust_run)
    else:
        refuse_inapplicable(settings, options.typed)
    _print_summary(start(settings))


def _resume(name: str, extra_time: Optional[str], typed: Sequence[str], trust: bool) -> Record:
    others = [option for option in typed if option != "--time"]
    if others:
        raise UsageError(
            f"--resume takes all settings from {name}/config.yaml; leave out {', '.join(others)}."
        )
    if extra_time is not None:
        parse_seconds(extra_time)
    return resume(last_unfinished() if name == "last" else RunFolder(name), trust, extra_time)


def _print_summary(summary: Record) -> None:
    kinds = [kind for kind in ("requested", "predicted", "achieved") if summary[f"rho_{kind}"] is not None]
    ratios = ", ".join(f"{kind} {summary[f'rho_{kind}']:.3f}" for kind in kinds)
    seconds = summary.get("seconds", {})
    steps_s = seconds.get("cache_read", 0.0) + seconds.get("steps", 0.0)
    head_s = seconds.get("head", 0.0) + seconds.get("cache_write", 0.0)
    selecting_s = summary["importance_seconds"] + summary["selection_seconds"] + summary["trace_seconds"]
    other_s = summary["train_seconds"] - head_s - selecting_s - steps_s
    print(_accuracy(summary))
    print(
        f"training time: {summary['train_seconds']:.0f} s (head and cache {head_s:.0f}, selection and "
        f"graphs {selecting_s:.0f}, steps {steps_s:.0f}, other {max(0.0, other_s):.0f}); "
        f"evaluation: {seconds.get('validation', 0.0):.0f} s"
    )
    if ratios:
        print(f"ratio to full training: {ratios}")
    if summary.get("energy_joules") is not None:
        print(f"energy of training: {summary['energy_joules']:.0f} J")


def _accuracy(summary: Record) -> str:
    line = f"test accuracy: {100 * summary['accuracy']:.2f} %{spread(summary, 100)}"
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
