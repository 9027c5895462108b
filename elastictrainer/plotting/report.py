"""One self-contained HTML page about some runs: their table, figures, settings and environment."""

import base64
import io
from pathlib import Path
from typing import Any, Dict, List, Union

from elastictrainer.errors import UsageError
from elastictrainer.plotting import captions, profiles, selections, table, training
from elastictrainer.plotting.drawing import Drawing, label, pyplot
from elastictrainer.plotting.tradeoff import tradeoff
from elastictrainer.profiler.profile import Profile
from elastictrainer.runs.files import render, write_text
from elastictrainer.runs.run_folder import RunFolder

_LONG = ("data", "class_names")  # of environment.json: lists of files, for the program
_ITEMS = 12  # of a list that are shown


def write(runs: List[RunFolder], path: Union[str, Path]) -> None:
    """Write the page as one HTML file; its figures are inside, so it loads nothing from elsewhere."""
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"cannot write a report to {path}; valid endings: .html .htm.")
    page = render(
        "report.html.j2",
        about=captions.subject(runs),
        rows=table.rows(runs),
        tradeoff=_picture(tradeoff(runs)),
        figures={
            "Accuracy over training time": _picture(training.curves(runs)),
            "Test accuracy": _picture(training.bars(runs, "accuracy")),
            "Training time": _picture(training.bars(runs, "time")),
            "Peak memory": _picture(training.bars(runs, "memory")),
        },
        runs=[_about(run) for run in runs],
    )
    write_text(path, page)


def _about(run: RunFolder) -> Dict[str, Any]:
    """Return the values that the page's template needs for one run."""
    figures = {}
    if any("selected" in record for record in run.selections()):
        figures["Selected tensors"] = _picture(selections.selection(run))
    if run.profile_path.exists():
        figures["Profile"] = _picture(profiles.by_layer(Profile.load(run.profile_path)))
    environment = {key: value for key, value in run.environment().items() if key not in _LONG}
    tables = {"Result": run.summary(), "Settings": run.config(), "Environment": environment}
    shown = {title: {key: _shown(value) for key, value in rows.items()} for title, rows in tables.items()}
    return {"label": label(run), "path": str(run.path), "figures": figures, "tables": shown}


def _shown(value: Any) -> str:
    """Return a value for a reader: numbers rounded, lists cut."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_shown(item)}" for key, item in value.items())
    if isinstance(value, list):
        more = len(value) - _ITEMS
        return ", ".join(map(_shown, value[:_ITEMS])) + (f", and {more} more" if more > 0 else "")
    return str(value)


def _picture(drawing: Drawing) -> str:
    """Return a figure as a `data:` URL of a PNG."""
    buffer = io.BytesIO()
    drawing.figure.savefig(buffer, dpi=110, format="png")
    pyplot.close(drawing.figure)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
