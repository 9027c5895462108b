"""et-plot: draw profiles and runs, print a table of runs, write a report."""

import argparse
import functools
import sys
from pathlib import Path
from typing import Optional, Sequence

from elastictrainer.cli.command import make_parser, run
from elastictrainer.errors import UsageError
from elastictrainer.profiler.profile import Profile
from elastictrainer.runs.environment import load_tensorflow
from elastictrainer.runs.files import write_json
from elastictrainer.runs.run_folder import find_runs

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
    what, paths, output = options.what, options.paths, options.output

    for option in ("x", "y"):
        if getattr(options, option) is not None and what != "curves":
            raise UsageError(f"--{option} goes with curves, not with {what}.")
    if options.csv and what in ("table", "report"):
        raise UsageError(f"--csv goes with pictures, not with {what}.")
    if what == "table" and output and Path(output).suffix != ".json":
        raise UsageError(f"--output {output}: the figures of a table are written as .json.")
    if what in ("timings", "selection", "data") and len(paths) > 1:
        raise UsageError(f"et-plot {what} draws one PATH, not {len(paths)}.")

    from elastictrainer.plotting import curves, drawing, report, tensors

    if what == "table":
        runs = find_runs(paths)
        print(report.table_text(runs))
        if output:
            write_json(output, [run.summary() for run in runs])
        return
    if what == "report":
        output = output or "report.html"
        report.write(find_runs(paths), output)
        print(f"report: {output}")
        return
    if what == "curves":
        picture = curves.curves(find_runs(paths), options.x or "time", options.y or "accuracy")
    elif what == "timings":
        picture = tensors.by_layer(Profile.load(paths[0]))
    elif what == "selection":
        picture = tensors.selection(find_runs(paths)[0])
    else:
        load_tensorflow()
        from elastictrainer.plotting import preview

        picture = preview.data(preview.preview_settings(paths[0], options.trust_run))
    output = output or f"{what}.png"
    drawing.save(picture, output)
    print(f"plot: {output}")
    if options.csv:
        drawing.save_data(picture, options.csv)
        print(f"data: {options.csv}")


main = functools.partial(run, "et-plot", _body)

if __name__ == "__main__":
    sys.exit(main())
