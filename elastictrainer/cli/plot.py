"""et-plot: draw profiles and runs, and print their table."""

import argparse
import sys
from typing import List, Optional, Sequence

from elastictrainer.cli.command import run
from elastictrainer.errors import UsageError

_EXAMPLE = "example: et-plot curves runs/full runs/elastic --output curves.png"


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command; returns its exit status."""
    return run("et-plot", _body, arguments)


def _body(arguments: Optional[Sequence[str]]) -> None:
    parser = argparse.ArgumentParser(
        "et-plot", description="Draw profiles and run folders.", epilog=_EXAMPLE, allow_abbrev=False
    )
    parser.add_argument(
        "what",
        choices=("curves", "selection", "timings", "table"),
        help="curves: accuracy over training time; selection: chosen tensors by interval; timings: a profile; "
        "table: accuracy and time of runs, printed",
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="run folders; for timings: a profile")
    parser.add_argument("--output", metavar="FILE", help="picture to write: .png, .pdf or .svg (default: WHAT.png); for table: JSON")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    asked = parser.parse_args(arguments)

    from elastictrainer.files import write_json
    from elastictrainer.profiler.timings import TensorTimings
    from elastictrainer.run_folder import find_runs

    if asked.what == "table":
        runs = find_runs(asked.paths)
        print(_table(runs))
        if asked.output:
            write_json(asked.output, [run.summary() for run in runs])
        return
    if asked.what != "curves" and len(asked.paths) > 1:
        raise UsageError(f"et-plot {asked.what} draws one PATH, not {len(asked.paths)}.")
    from elastictrainer import plotting

    if asked.what == "timings":
        figure = plotting.timings(TensorTimings.load(asked.paths[0]))
    elif asked.what == "curves":
        figure = plotting.curves(find_runs(asked.paths))
    else:
        figure = plotting.selection(find_runs(asked.paths)[0])
    output = asked.output or f"{asked.what}.png"
    plotting.save(figure, output)
    print(f"plot: {output}")


def _table(runs: List) -> str:
    """Accuracy and time of finished runs; the ratio is to the first run of full training, if there is one."""
    summaries = [run.summary() for run in runs]
    full_s = next((s["train_seconds"] for s in summaries if s["scheme"] == "full"), None)
    lines = [
        f"{'scheme':<26}{'best acc.':>10}{'last acc.':>10}{'training s':>12}{'ratio':>8}{'predicted':>11}{'selecting':>11}"
    ]
    for s in summaries:
        name = s["scheme"] + (f" rho {s['rho_requested']:g}" if s["rho_requested"] is not None else "")
        ratio = f"{s['train_seconds'] / full_s:.3f}" if full_s else "-"
        predicted = f"{s['rho_predicted']:.3f}" if s["rho_predicted"] is not None else "-"
        selecting = s["importance_seconds"] + s["selection_seconds"] + s["trace_seconds"]
        lines.append(
            f"{name:<26}{100 * s['accuracy_best']:>8.2f} %{100 * s['accuracy_last']:>8.2f} %{s['train_seconds']:>12.1f}"
            f"{ratio:>8}{predicted:>11}{100 * selecting / s['train_seconds']:>9.1f} %"
        )
    lines.append(
        "ratio: training seconds over full training's. predicted: by the profile. "
        "selecting: importance, selection and tracing, of training time."
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
