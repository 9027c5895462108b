"""What the paper says about a run, by figure and device (configs/paper_numbers.yaml)."""

from pathlib import Path
from typing import Any, Dict, Tuple

import yaml

FILE = Path(__file__).resolve().parents[1] / "configs" / "paper_numbers.yaml"
EPOCHS = 12  # of every run of the paper


def of_figure(figure: str) -> Dict[str, Any]:
    """The file's entry for a figure; empty for one that it does not name."""
    return yaml.safe_load(FILE.read_text(encoding="utf-8")).get(figure, {})


def of_run(figure: str, settings: Dict[str, Any], hours: bool = False) -> Dict[str, Dict[str, Any]]:
    """The paper's numbers for a run.

    Args:
        figure: such as "figure17".
        settings: dataset, model, scheme, rho, activation_cache and epochs of the run.
        hours: those of another figure will do, if it shows runs that last as long.

    Returns:
        {device: numbers}, the numbers with the keys accuracy, hours, tflops, joules, peak_gb where there are.
    """
    entry = of_figure(figure)
    other = entry.get("numbers_of") or (entry.get("hours_of") if hours else None)
    rows_of = of_figure(other)["devices"] if other else entry.get("devices", {})
    wanted = _setting(settings)
    if settings["activation_cache"] != "off" or settings["epochs"] != EPOCHS:
        return {}  # the paper has nothing like it
    found = {device: [row for row in rows if _setting(row) == wanted] for device, rows in rows_of.items()}
    return {device: rows[0] for device, rows in found.items() if rows}


def _setting(row: Dict[str, Any]) -> Tuple[Any, ...]:
    rho = row.get("rho") if row["scheme"].startswith("elastic") else None
    return row["dataset"], row["model"], row["scheme"], rho
