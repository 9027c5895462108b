"""et-export: write the model of a finished run in formats for use elsewhere."""

import functools
import sys
from typing import Optional, Sequence

from elastictrainer.cli.command import add_reading, make_parser, run
from elastictrainer.registry import EXPORT
from elastictrainer.runs.environment import load_tensorflow
from elastictrainer.runs.run_folder import find_runs

_EXAMPLE = "example: et-export runs/birds --format tflite --format saved_model"


def _body(arguments: Optional[Sequence[str]]) -> None:
    parser = make_parser(
        "et-export",
        "Write the model of a finished run for use elsewhere, and a model card next to it.",
        _EXAMPLE,
    )
    parser.add_argument("run", metavar="RUN", help="a run folder")
    parser.add_argument(
        "--format",
        action="append",
        metavar="{" + ",".join(EXPORT.names) + "}",
        help="may be repeated (default: tflite)",
    )
    parser.add_argument("--output", metavar="DIR", help="where to write (default: RUN/export)")
    parser.add_argument("--overwrite", action="store_true", help="replace files that exist there")
    add_reading(parser)
    options = parser.parse_args(arguments)

    formats = options.format or ["tflite"]
    EXPORT.check_each(formats)
    run_folder = find_runs([options.run])[0]
    load_tensorflow()
    from elastictrainer.experiment.exporting import export_run

    written = export_run(
        run_folder, formats, options.output, options.overwrite, options.trust_model, options.weights
    )
    for path in written:
        print(f"written: {path}")


main = functools.partial(run, "et-export", _body)

if __name__ == "__main__":
    sys.exit(main())
