"""Compare the time model with the clock: random selections, predicted and measured."""

from typing import Any, Dict, List, Tuple

import numpy as np

from elastictrainer.profiler.interleaved import ratios_to_full
from elastictrainer.profiler.profile import Profile
from elastictrainer.steps.compiled_step import CompiledSteps

_SECONDS = 3.0  # of each selection


def random_masks(profile: Profile, count: int, seed: int) -> List[np.ndarray]:
    """Return `count` non-empty selections (N,) bool: a random depth, and a random share of the tensors above
    it.
    """
    random = np.random.default_rng(seed)
    order = profile.order[profile.connected[profile.order]]
    masks = []
    for _ in range(count):
        earliest = random.integers(len(order))
        mask = np.zeros(len(profile), bool)
        mask[order[: earliest + 1]] = random.random(earliest + 1) < random.uniform(0.1, 1.0)
        mask[order[earliest]] = True
        masks.append(mask)
    return masks


def validate_profile(
    profile: Profile, steps: CompiledSteps, batch: Tuple[Any, Any], count: int, seed: int
) -> List[Dict[str, Any]]:
    """Measure `count` random selections.

    Each runs in turn with the full step, and the ratio of their times is multiplied by the profile's full
    step: a machine that has become slower since then does not count as an error of the model.

    Returns:
        One {"selected": ascending indices, "predicted_ms", "measured_ms"} per selection.
    """
    rows = []
    for mask in random_masks(profile, count, seed):
        (ratio,) = ratios_to_full(steps.get, [mask], profile.connected, batch, _SECONDS).tolist()
        rows.append(
            {
                "selected": np.flatnonzero(mask).tolist(),
                "predicted_ms": profile.step_time(mask),
                "measured_ms": ratio * profile.step_time(profile.connected),
            }
        )
    return rows
