"""et-plot: draw profiles and runs, print a table of runs, write a report."""

import argparse
import functools
import sys
from pathlib import Path
from typing import Any, Optional, Sequence

from elastictrainer.cli.command import make_parser, run
from elastictrainer.errors import UsageError
from elastictrainer.runs.quiet import load_tensorflow

_EXAMPLE = "example: et-plot curves runs/full runs/elastic --output curves.png"
_KINDS = {
    "curves": "accuracy, loss or an epoch's flops (--y) over training time, epochs or FLOPs (--x); RUN...",
    "tradeoff": "accuracy at the end over training time, a point for each run; RUN...",
    "bars": "accuracy, time, flops, energy or memory (--y) by scheme and rho, averaged over seeds; RUN...",
    "selection": "the tensors that each selection of a run chose; RUN",
    "timings": "the time of a step by layer; PROFILE",
    "data": "training images as stored and as augmented; a RUN, a CONFIG.yaml, or a data set",
    "table": "rho asked and got, accuracy and time, printed; --output: the summaries as JSON; RUN...",
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
    parser.add_argument(
        "--y",
        metavar="NAME",
        help="curves: accuracy (default), loss or flops; "
        "bars: accuracy (default), time, flops, energy or memory",
    )
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

    from elastictrainer.plotting import drawing
    from elastictrainer.runs.files import write_json
    from elastictrainer.runs.run_folder import find_runs

    for option, drawn_with_it in (("x", ("curves",)), ("y", ("curves", "bars"))):
        if getattr(options, option) is not None and options.what not in drawn_with_it:
            raise UsageError(f"--{option} goes with {' and '.join(drawn_with_it)}, not with {options.what}.")
    if options.csv and options.what in ("table", "report"):
        raise UsageError(f"--csv goes with pictures, not with {options.what}.")
    if options.what == "table":
        if options.output and Path(options.output).suffix != ".json":
            raise UsageError(f"--output {options.output}: the figures of a table are written as .json.")
        from elastictrainer.plotting import table

        runs = find_runs(options.paths)
        print(table.text(runs))
        if options.output:
            write_json(options.output, [run.summary() for run in runs])
        return
    if options.what == "report":
        from elastictrainer.plotting import report

        output = options.output or "report.html"
        report.write(find_runs(options.paths), output)
        print(f"report: {output}")
        return

    picture = _draw(options)
    output = options.output or f"{options.what}.png"
    drawing.save(picture, output)
    print(f"plot: {output}")
    if options.csv:
        drawing.save_data(picture, options.csv)
        print(f"data: {options.csv}")


def _draw(options: argparse.Namespace) -> Any:
    """Make the drawing that `options.what` and `options.paths` name."""
    from elastictrainer.plotting import profiles, selections, training
    from elastictrainer.profiler.profile import Profile
    from elastictrainer.runs.run_folder import find_runs

    if options.what == "curves":
        return training.curves(find_runs(options.paths), options.x or "time", options.y or "accuracy")
    if options.what == "tradeoff":
        from elastictrainer.plotting.tradeoff import tradeoff

        return tradeoff(find_runs(options.paths))
    if options.what == "bars":
        return training.bars(find_runs(options.paths), options.y or "accuracy")
    if len(options.paths) > 1:
        raise UsageError(f"et-plot {options.what} draws one PATH, not {len(options.paths)}.")
    if options.what == "data":
        load_tensorflow()
        from elastictrainer.plotting import preview

        return preview.data(preview.preview_settings(options.paths[0], options.trust_run))
    if options.what == "timings":
        return profiles.by_layer(Profile.load(options.paths[0]))
    return selections.selection(find_runs(options.paths)[0])


main = functools.partial(run, "et-plot", _body)

if __name__ == "__main__":
    sys.exit(main())
