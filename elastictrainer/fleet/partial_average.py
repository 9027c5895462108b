"""Average each tensor over the clients that trained it, and refuse broken updates. NumPy only."""

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence

import numpy as np
from numpy.typing import NDArray

# An element may grow to so many times the tensor's largest one, or to this number where that is below 1: in a
# round of fine-tuning weights change by a few percent, and the head's leave zero.
_LARGEST_GROWTH = 100.0


@dataclass(frozen=True)
class Update:
    """What a client sends back after a round: its number of examples, and by index what trained."""

    client: str
    examples: int
    tensors: Mapping[int, NDArray[Any]]


def refusal(
    update: Update, weights: Sequence[NDArray[Any]], most_examples: Optional[int] = None
) -> Optional[str]:
    """Return why `update` must not be averaged, a line that names the client; None where it may.

    `weights` are the global values of all N tensors, `most_examples` the client's (None: not known).
    """
    if update.examples < 1 or (most_examples is not None and update.examples > most_examples):
        has = "" if most_examples is None else f", and has {most_examples}"
        return f"{update.client}: refused: it says that it trained on {update.examples} examples{has}"
    for index, values in update.tensors.items():
        if not 0 <= index < len(weights):
            return f"{update.client}: refused: tensor {index}, and the model has {len(weights)}"
        problem = _problem(np.asarray(values), weights[index])
        if problem:
            return f"{update.client}: refused: tensor {index} {problem}"
    return None


def average(updates: Sequence[Update], weights: Sequence[NDArray[Any]]) -> List[NDArray[Any]]:
    """Return the new global values of all N tensors; one that nobody trained keeps its value.

    A tensor's new value is the mean over the clients that trained it, weighted by their examples. The clients
    started from `weights`; `refusal` refuses none of the updates.
    """
    sums: Dict[int, NDArray[np.float64]] = {}
    examples: Dict[int, int] = {}
    for update in updates:
        for index, values in update.tensors.items():
            # In double precision, so that the order of the clients does not show.
            sums[index] = sums.get(index, 0.0) + update.examples * np.asarray(values, np.float64)
            examples[index] = examples.get(index, 0) + update.examples
    return [
        (sums[index] / examples[index]).astype(before.dtype) if index in sums else before
        for index, before in enumerate(weights)
    ]


def _problem(values: NDArray[Any], before: NDArray[Any]) -> str:
    """Say what is wrong with the new `values` of a tensor; nothing is: an empty string."""
    if values.dtype != before.dtype:
        return f"is {values.dtype}, not {before.dtype}"
    if values.shape != before.shape:
        return f"has the shape {values.shape}, not {before.shape}"
    if not np.isfinite(values).all():
        return "has values that are not finite"
    largest = float(np.abs(values).max(initial=0.0))
    allowed = _LARGEST_GROWTH * max(1.0, float(np.abs(before).max(initial=0.0)))
    return f"has a value of {largest:.3g}; at most {allowed:.3g} is possible" if largest > allowed else ""
