"""Replicates: runs that differ in their seed only. They are shown as mean and standard deviation."""

import json
from typing import Any, Dict, List, Tuple

import numpy as np

from elastictrainer.plotting.drawing import label
from elastictrainer.runs.run_folder import RunFolder

# Settings in which replicates may differ: none of them changes what is trained, but for the seed.
_IGNORED = (
    "seed",
    "output",
    "overwrite",
    "profile",
    "checkpoint_minutes",
    "export",
    "cache",
    "reuse_memory",
    "reuse_dir",
)


def replicates(runs: List[RunFolder]) -> Dict[str, List[RunFolder]]:
    """Group runs whose settings are the same except for the seed.

    Returns:
        The runs of each group by its label, both in the order of `runs`. The label is scheme and rho. If
        another group has the same scheme and rho, the settings in which the two differ follow.
    """
    groups: Dict[str, List[Tuple[Dict[str, Any], RunFolder]]] = {}
    for run in runs:
        settings = {key: value for key, value in run.config().items() if key not in _IGNORED}
        groups.setdefault(json.dumps(settings, sort_keys=True, default=str), []).append((settings, run))
    labelled = [
        (label(members[0][1]), members[0][0], [run for _, run in members]) for members in groups.values()
    ]
    by_label: Dict[str, List[RunFolder]] = {}
    for name, settings, members in labelled:
        namesakes = [other for other_name, other, _ in labelled if other_name == name]
        differing = [key for key in settings if any(other.get(key) != settings[key] for other in namesakes)]
        by_label[", ".join([name, *(f"{key} {settings[key]}" for key in differing)])] = members
    return by_label


def spread(values: Any) -> Any:
    """The sample standard deviation over the first axis of `values`; None for a single value."""
    return np.std(values, axis=0, ddof=1) if len(values) > 1 else None
