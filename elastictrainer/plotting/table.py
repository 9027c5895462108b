"""Accuracy and time of finished runs, side by side."""

from typing import Any, Dict, List

from elastictrainer.plotting.drawing import label
from elastictrainer.run_folder import RunFolder

NOTE = (
    "ratio: training seconds over full training's. predicted: by the profile. "
    "selecting: importance, selection and tracing, of training time."
)


def rows(runs: List[RunFolder]) -> List[Dict[str, Any]]:
    """One row per run; its ratio is to the first run of full training among them, None without one."""
    summaries = [run.summary() for run in runs]
    full_s = next((s["train_seconds"] for s in summaries if s["scheme"] == "full"), None)
    return [
        {
            "scheme": label(run),
            "best": s["accuracy_best"],
            "last": s["accuracy_last"],
            "train_seconds": s["train_seconds"],
            "ratio": s["train_seconds"] / full_s if full_s else None,
            "predicted": s["rho_predicted"],
            "selecting": (s["importance_seconds"] + s["selection_seconds"] + s["trace_seconds"]) / s["train_seconds"],
        }
        for run, s in zip(runs, summaries)
    ]


def cells(row: Dict[str, Any]) -> Dict[str, str]:
    """A row as it is shown: heading to text."""

    def number(key: str, form: str, factor: float = 1.0, unit: str = "") -> str:
        return "-" if row[key] is None else f"{factor * row[key]:{form}}{unit}"

    return {
        "scheme": row["scheme"],
        "best acc.": number("best", ".2f", 100, " %"),
        "last acc.": number("last", ".2f", 100, " %"),
        "training s": number("train_seconds", ".1f"),
        "ratio": number("ratio", ".3f"),
        "predicted": number("predicted", ".3f"),
        "selecting": number("selecting", ".1f", 100, " %"),
    }


def text(runs: List[RunFolder]) -> str:
    """The table for a terminal."""
    shown = [cells(row) for row in rows(runs)]
    lines = [f"{name:<26}" if k == 0 else f"{name:>12}" for k, name in enumerate(shown[0])]
    body = ["".join(f"{v:<26}" if k == 0 else f"{v:>12}" for k, v in enumerate(row.values())) for row in shown]
    return "\n".join(["".join(lines), *body, NOTE])
