"""Runs side by side: a table for the terminal, and one self-contained HTML page with all pictures."""

import base64
import io
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Union

from elastictrainer.errors import UsageError
from elastictrainer.experiment.settings import asked_rho
from elastictrainer.plotting import tensors
from elastictrainer.plotting.curves import curves
from elastictrainer.plotting.drawing import Drawing, label, pyplot, subject, time_unit
from elastictrainer.profiler.profile import Profile
from elastictrainer.runs.files import render, write_text
from elastictrainer.runs.run_folder import RunFolder, spread

_NAMES = ("run", "model", "scheme")  # columns that hold names
_LONG = ("data", "class_names")  # of environment.json: lists of files, for the program
_ITEMS = 12  # of a list that are shown


def table_rows(runs: Sequence[RunFolder]) -> List[Dict[str, str]]:
    """Return a row for each finished run by heading; "-": not measured; columns of "-" are left out."""
    unit, unit_s = time_unit(max(run.summary()["train_seconds"] for run in runs))
    cells = []
    for run in runs:
        summary, settings = run.summary(), run.config()
        cells.append(
            {
                "run": run.path.name,
                "model": Path(settings.get("model", "")).name,
                "scheme": settings["scheme"],
                "time asked": settings.get("time") or "-",
                "rho asked": _cell(asked_rho(settings), ".2f"),
                "rho got": _cell(summary.get("rho_achieved"), ".3f"),
                "accuracy": _cell(summary.get("accuracy"), ".2%").replace("%", " %") + spread(summary, 100),
                "training time": f"{summary['train_seconds'] / unit_s:.1f} {unit}",
            }
        )
    return [{k: text for k, text in row.items() if any(other[k] != "-" for other in cells)} for row in cells]


def table_text(runs: Sequence[RunFolder]) -> str:
    """Return the table for a terminal."""
    shown = table_rows(runs)
    wide = {key: max(len(key), *(len(row[key]) for row in shown)) for key in shown[0]}
    lines = [
        "  ".join(f"{row[key]:{'<' if key in _NAMES else '>'}{wide[key]}}" for key in wide).rstrip()
        for row in ({key: key for key in wide}, *shown)
    ]
    return "\n".join(lines)


def _cell(value: Optional[float], form: str) -> str:
    return "-" if value is None else format(value, form)


def write(runs: Sequence[RunFolder], path: Union[str, Path]) -> None:
    """Write the page as one HTML file; its figures are inside, so it loads nothing from elsewhere."""
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"cannot write a report to {path}; valid endings: .html .htm.")
    page = render(
        "report.html.j2",
        about=subject(runs),
        rows=table_rows(runs),
        curves=_picture(curves(runs)),
        runs=[_about(run) for run in runs],
    )
    write_text(path, page)


def _about(run: RunFolder) -> Dict[str, object]:
    figures = {}
    if any("selected" in record for record in run.selections()):
        figures["Selected tensors"] = _picture(tensors.selection(run))
    if run.profile_path.exists():
        figures["Profile"] = _picture(tensors.by_layer(Profile.load(run.profile_path)))
    environment = {key: value for key, value in run.environment().items() if key not in _LONG}
    tables = {"Result": run.summary(), "Settings": run.config(), "Environment": environment}
    shown = {title: {key: _shown(value) for key, value in rows.items()} for title, rows in tables.items()}
    return {"label": label(run), "path": str(run.path), "figures": figures, "tables": shown}


def _shown(value: object) -> str:
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
    buffer = io.BytesIO()
    drawing.figure.savefig(buffer, dpi=110, format="png")
    pyplot.close(drawing.figure)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
