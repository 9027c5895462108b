"""One self-contained HTML page about some runs: their table, figures, settings and environment."""

import base64
import io
import json
from pathlib import Path
from typing import Any, Dict, List, Union

from elastictrainer.errors import UsageError
from elastictrainer.plotting import profiles, selections, table, training
from elastictrainer.plotting.drawing import Drawing, label, pyplot
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.runs.files import write_text
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.runs.templates import render


def write(runs: List[RunFolder], path: Union[str, Path]) -> None:
    """Write the page as one HTML file; its figures are inside, so it loads nothing from elsewhere.

    Raises:
        UsageError: `path` does not end in .html or .htm, or a run is not finished.
    """
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"cannot write a report to {path}; valid endings: .html .htm.")
    page = render(
        "report.html.j2",
        note=table.NOTE,
        rows=table.shown_cells(runs),
        figures={
            "Accuracy over training time": _picture(training.curves(runs)),
            "Best accuracy": _picture(training.bars(runs, "accuracy")),
            "Training time": _picture(training.bars(runs, "time")),
            "Peak memory": _picture(training.bars(runs, "memory")),
        },
        runs=[_about(run) for run in runs],
    )
    write_text(path, page)


def _about(run: RunFolder) -> Dict[str, Any]:
    """The values that the page's template needs for one run."""
    figures = {}
    if any("selected" in record for record in run.selections()):
        figures["Selected tensors"] = _picture(selections.selection(run))
        figures["Importance"] = _picture(selections.importance(run))
    if run.profile_path.exists():
        figures["Profile"] = _picture(profiles.timings(TensorTimings.load(run.profile_path)))
    return {
        "label": label(run),
        "path": str(run.path),
        "figures": figures,
        "summary": run.summary(),
        "settings": run.config(),
        "environment": {
            key: json.dumps(value) if isinstance(value, (dict, list)) else value
            for key, value in run.environment().items()
        },
    }


def _picture(drawing: Drawing) -> str:
    """A figure as a `data:` URL of a PNG."""
    buffer = io.BytesIO()
    drawing.figure.savefig(buffer, dpi=110, format="png")
    pyplot.close(drawing.figure)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
