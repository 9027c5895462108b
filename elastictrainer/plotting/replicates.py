"""Replicates: runs that differ in their seed only. They are shown as mean and standard deviation."""

import json
from typing import Any, Dict, List

import numpy as np

from elastictrainer.plotting.captions import data_name, device_name, model_name
from elastictrainer.plotting.drawing import label
from elastictrainer.runs.run_folder import RunFolder

# Settings in which replicates may differ: none of them changes what is trained, but for the seed.
_IGNORED = (
    "seed output overwrite profile checkpoint_minutes export cache_images activation_cache_memory "
    "activation_cache_dir"
).split()


def replicates(runs: List[RunFolder]) -> Dict[str, List[RunFolder]]:
    """Group runs whose settings and device are the same, but for the seed, by a label, in their order.

    The label is scheme and rho. If another group has the same, the settings in which the two differ follow.
    """
    groups: Dict[str, List[RunFolder]] = {}
    for run in runs:
        groups.setdefault(json.dumps(what_counts(run), sort_keys=True, default=str), []).append(run)
    labelled = [(label(members[0]), what_counts(members[0]), members) for members in groups.values()]
    by_label: Dict[str, List[RunFolder]] = {}
    for name, settings, members in labelled:
        namesakes = [other for other_name, other, _ in labelled if other_name == name]
        parts = [name]
        for key, value in settings.items():
            others = [other.get(key) for other in namesakes if other.get(key) != value]
            if others:
                short = shortened(key, value)
                ambiguous = short in [shortened(key, other) for other in others]
                parts.append(f"{key} {value if ambiguous else short}")
        by_label[", ".join(parts)] = members
    return by_label


def what_counts(run: RunFolder) -> Dict[str, Any]:
    """Return the settings without the seed, and the device: they are equal in replicates."""
    settings = {key: value for key, value in run.config().items() if key not in _IGNORED}
    return {**settings, "device": device_name(run.environment()) or "unknown"}


def shortened(key: str, value: Any) -> str:
    """Return a setting's value without folders, and a word for a value that the program chose."""
    if value is None:
        return "default"
    shorten = {"model": model_name, "dataset": data_name, "weights": data_name}.get(key, str)
    return shorten(value)


def spread(values: Any) -> Any:
    """Return the sample standard deviation over the first axis of `values`; None for a single value."""
    return np.std(values, axis=0, ddof=1) if len(values) > 1 else None
