"""Runs that repeat one another with another seed are one thing to show, with mean and spread."""

import json
from typing import Any, Dict, List, Tuple

import numpy as np

from elastictrainer.plotting.drawing import label
from elastictrainer.runs.run_folder import RunFolder

_NOT_TOLD_APART = ("seed", "output", "overwrite", "profile", "checkpoint_minutes", "export", "cache")


def replicates(runs: List[RunFolder]) -> Dict[str, List[RunFolder]]:
    """The runs by label, in their order; those whose settings are the same but for the seed stand together.

    The label is scheme and rho. Where others have the same one, the settings in which they differ follow.
    """
    groups: Dict[str, List[Tuple[Dict[str, Any], RunFolder]]] = {}
    for run in runs:
        settings = {key: value for key, value in run.config().items() if key not in _NOT_TOLD_APART}
        groups.setdefault(json.dumps(settings, sort_keys=True, default=str), []).append((settings, run))
    found = [
        (label(members[0][1]), members[0][0], [run for _, run in members]) for members in groups.values()
    ]
    named: Dict[str, List[RunFolder]] = {}
    for name, settings, members in found:
        namesakes = [other for same, other, _ in found if same == name]
        differing = [key for key in settings if any(other.get(key) != settings[key] for other in namesakes)]
        named[", ".join([name, *(f"{key} {settings[key]}" for key in differing)])] = members
    return named


def spread(values: Any) -> Any:
    """The standard deviation over the first axis of a sample; None for a single one."""
    return np.std(values, axis=0, ddof=1) if len(values) > 1 else None
