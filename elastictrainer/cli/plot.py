"""et-plot: draw profiles and runs, print a table of runs, write a report."""

import argparse
import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Optional, Sequence

from elastictrainer.cli.command import make_parser, run
from elastictrainer.errors import UsageError
from elastictrainer.runs.quiet import load_tensorflow

if TYPE_CHECKING:
    from elastictrainer.plotting.drawing import Drawing

_EXAMPLE = "example: et-plot curves runs/full runs/elastic --output curves.png"
_KINDS = {
    "curves": "accuracy, loss or an epoch's flops (--y) over training time, epochs or FLOPs (--x); RUN...",
    "selection": "the tensors that each selection of a run chose; RUN",
    "timings": "the time of a step by layer; PROFILE",
    "data": "training images as stored and as augmented; a RUN, a CONFIG.yaml, or a data set",
    "table": "what was asked and got, accuracy and time, printed; --output: the summaries as JSON; RUN...",
    "report": "all of it as one HTML page; RUN...",
}
_WHAT = "what to draw:\n" + "".join(f"  {name:<12}{text}\n" for name, text in _KINDS.items())


def _body(arguments: Optional[Sequence[str]]) -> None:
    parser = make_parser("et-plot", "Draw profiles and run folders.\n\n" + _WHAT, _EXAMPLE)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("what", choices=_KINDS, metavar="WHAT", help="one of the above")
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="RUN: a run's folder; PROFILE: a file that et-profile wrote"
    )
    parser.add_argument("--x", metavar="{time,epochs,flops}", help="curves: quantity of the axis (time)")
    parser.add_argument("--y", metavar="{accuracy,loss,flops}", help="curves: what is drawn (accuracy)")
    parser.add_argument(
        "--output",
        metavar="FILE",
        help=".png, .pdf or .svg (default: WHAT.png); report: .html; table: .json",
    )
    parser.add_argument(
        "--trust-run", action="store_true", help="data: run the code that a RUN names in its settings"
    )
    parser.add_argument("--csv", metavar="FILE", help="also write the data that a picture shows")
    options = parser.parse_args(arguments)
    what, output = options.what, options.output

    from elastictrainer.plotting import drawing, report
    from elastictrainer.runs.files import write_json
    from elastictrainer.runs.run_folder import find_runs

    for option in ("x", "y"):
        if getattr(options, option) is not None and what != "curves":
            raise UsageError(f"--{option} goes with curves, not with {what}.")
    if options.csv and what in ("table", "report"):
        raise UsageError(f"--csv goes with pictures, not with {what}.")
    if what == "table":
        if output and Path(output).suffix != ".json":
            raise UsageError(f"--output {output}: the figures of a table are written as .json.")
        runs = find_runs(options.paths)
        print(report.table_text(runs))
        if output:
            write_json(output, [run.summary() for run in runs])
    elif what == "report":
        output = output or "report.html"
        report.write(find_runs(options.paths), output)
        print(f"report: {output}")
    else:
        picture, output = _draw(options), output or f"{what}.png"
        drawing.save(picture, output)
        print(f"plot: {output}")
        if options.csv:
            drawing.save_data(picture, options.csv)
            print(f"data: {options.csv}")


def _draw(options: argparse.Namespace) -> "Drawing":
    """Make the drawing that `options.what` and `options.paths` name."""
    from elastictrainer.plotting import curves, tensors
    from elastictrainer.profiler.profile import Profile
    from elastictrainer.runs.run_folder import find_runs

    what, paths = options.what, options.paths
    if what == "curves":
        return curves.curves(find_runs(paths), options.x or "time", options.y or "accuracy")
    if len(paths) > 1:
        raise UsageError(f"et-plot {what} draws one PATH, not {len(paths)}.")
    if what == "timings":
        return tensors.by_layer(Profile.load(paths[0]))
    if what == "selection":
        return tensors.selection(find_runs(paths)[0])
    load_tensorflow()
    from elastictrainer.plotting import preview

    return preview.data(preview.preview_settings(paths[0], options.trust_run))


main = functools.partial(run, "et-plot", _body)

if __name__ == "__main__":
    sys.exit(main())
