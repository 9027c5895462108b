"""et-plot: draw profiles and runs, and print their table."""

import argparse
import sys
from typing import Any, Optional, Sequence

from elastictrainer.cli.command import run
from elastictrainer.cli.quiet import load_tensorflow
from elastictrainer.errors import UsageError

_EXAMPLE = "example: et-plot curves runs/full runs/elastic --output curves.png"
_WHAT = """what to draw:
  curves      accuracy, loss or an epoch's flops (--y) over training time, epochs or FLOPs (--x); RUN...
  bars        accuracy, time, flops, energy or memory (--y) by scheme and rho; RUN..., the same ones averaged
  selection   the tensors that each selection of a run chose; RUN
  importance  the importance of every tensor at each selection; RUN
  timings     the time of a step by tensor; PROFILE
  prediction  predicted against measured step times; PROFILE..., made with et-profile --validate
  data        what the network sees: training images as they are and as augmented; a RUN, a CONFIG.yaml, or a data set
  table       accuracy and time, printed; --output: the summaries as JSON; RUN...
  report      all of it as one HTML page; RUN...
"""


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command; returns its exit status."""
    return run("et-plot", _body, arguments)


def _body(arguments: Optional[Sequence[str]]) -> None:
    parser = argparse.ArgumentParser(
        "et-plot",
        description="Draw profiles and run folders.\n\n" + _WHAT,
        epilog=_EXAMPLE,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = ("curves", "bars", "selection", "importance", "timings", "prediction", "data", "table", "report")
    parser.add_argument("what", choices=kinds, metavar="WHAT", help=", ".join(kinds))
    parser.add_argument("paths", nargs="+", metavar="PATH", help="run folders or profiles")
    parser.add_argument("--x", help="curves: time (default), epochs or flops")
    parser.add_argument(
        "--y",
        help="curves: accuracy (default), loss or flops; bars: accuracy (default), time, flops, energy, memory",
    )
    parser.add_argument(
        "--output", metavar="FILE", help=".png, .pdf or .svg (default: WHAT.png); report: .html; table: .json"
    )
    parser.add_argument("--csv", metavar="FILE", help="write the data that was drawn")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    asked = parser.parse_args(arguments)

    from elastictrainer.runs.files import write_json
    from elastictrainer.runs.run_folder import find_runs

    for option, kinds_with_it in (("x", ("curves",)), ("y", ("curves", "bars"))):
        if getattr(asked, option) is not None and asked.what not in kinds_with_it:
            raise UsageError(f"--{option} goes with {' and '.join(kinds_with_it)}, not with {asked.what}.")
    if asked.csv and asked.what in ("table", "report"):
        raise UsageError(f"--csv goes with pictures, not with {asked.what}.")
    if asked.what == "table":
        from elastictrainer.plotting import table

        runs = find_runs(asked.paths)
        print(table.text(runs))
        if asked.output:
            write_json(asked.output, [run.summary() for run in runs])
        return
    if asked.what == "report":
        from elastictrainer.plotting import report

        output = asked.output or "report.html"
        report.write(find_runs(asked.paths), output)
        print(f"report: {output}")
        return

    from elastictrainer.plotting import drawing

    drawn = _draw(asked)
    output = asked.output or f"{asked.what}.png"
    drawing.save(drawn, output)
    print(f"plot: {output}")
    if asked.csv:
        drawing.save_data(drawn, asked.csv)
        print(f"data: {asked.csv}")


def _draw(asked: argparse.Namespace) -> Any:
    from elastictrainer.plotting import profiles, selections, training
    from elastictrainer.profiler.timings import TensorTimings
    from elastictrainer.runs.run_folder import find_runs

    if asked.what == "prediction":
        return profiles.prediction([TensorTimings.load(path) for path in asked.paths])
    if asked.what == "curves":
        return training.curves(find_runs(asked.paths), asked.x or "time", asked.y or "accuracy")
    if asked.what == "bars":
        return training.bars(find_runs(asked.paths), asked.y or "accuracy")
    if len(asked.paths) > 1:
        raise UsageError(f"et-plot {asked.what} draws one PATH, not {len(asked.paths)}.")
    if asked.what == "data":
        load_tensorflow()
        from elastictrainer.plotting import preview

        return preview.data(preview.settings_of(asked.paths[0]))
    if asked.what == "timings":
        return profiles.timings(TensorTimings.load(asked.paths[0]))
    return getattr(selections, asked.what)(find_runs(asked.paths)[0])


if __name__ == "__main__":
    sys.exit(main())
