"""Hold the time model against the clock: random selections, predicted and measured."""

from typing import Any, Dict, List, Sequence, Tuple

import numpy as np

from elastictrainer.objective import Objective
from elastictrainer.profiler.capture import step_ms
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.steps import StepCache

_ROUNDS = 3, 40  # at least and at most
_LONG_S = 2.0


def random_masks(timings: TensorTimings, count: int, seed: int) -> List[np.ndarray]:
    """`count` non-empty selections (N,) bool: a random depth, and a random share of the tensors down to it."""
    random = np.random.default_rng(seed)
    order = timings.order[timings.connected[timings.order]]
    masks = []
    for _ in range(count):
        deepest = random.integers(len(order))
        mask = np.zeros(len(timings), bool)
        mask[order[: deepest + 1]] = random.random(deepest + 1) < random.uniform(0.1, 1.0)
        mask[order[deepest]] = True
        masks.append(mask)
    return masks


def validate_timings(
    timings: TensorTimings,
    objective: Objective,
    optimizer: Any,
    batch: Tuple[Any, Any],
    metrics: Sequence[Any],
    count: int,
    seed: int,
) -> List[Dict[str, Any]]:
    """Measure `count` random selections.

    Each is run in turn with the full step, and their ratio is put on the profile's scale, so that a
    machine that is slower now than when it was profiled does not count as an error of the model.

    Returns:
        One {"selected": ascending indices, "predicted_ms", "measured_ms"} per selection.
    """
    cache = StepCache(objective, optimizer, metrics, size=2)
    return [
        {
            "selected": np.flatnonzero(mask).tolist(),
            "predicted_ms": timings.step_time(mask),
            "measured_ms": ratio_to_full(cache, mask, timings.connected, batch) * timings.step_time(timings.connected),
        }
        for mask in random_masks(timings, count, seed)
    ]


def ratio_to_full(
    cache: StepCache, mask: np.ndarray, full: np.ndarray, batch: Tuple[Any, Any], seconds: float = 3.0
) -> float:
    """`ratios_to_full` of one selection, for about `seconds`."""
    return float(ratios_to_full(cache, [mask], full, batch, seconds)[0])


def ratios_to_full(
    cache: StepCache, masks: Sequence[np.ndarray], full: np.ndarray, batch: Tuple[Any, Any], seconds: float
) -> np.ndarray:
    """(K,) measured time of a step under each of `masks`, (N,) bool, over one under `full`, run in turn for about `seconds`.

    Other work on the machine comes and goes and only ever adds time, so the lower deciles are compared.
    """
    once_s = 1e-3 * step_ms(cache.get(full), batch, 1)[0]
    for mask in masks:
        step_ms(cache.get(mask), batch, 2)
    # The first step after a change of graph finds the caches cold; training never changes that often.
    steps = 4 if once_s < _LONG_S else 2
    turns = [*masks, full]
    rounds = int(np.clip(seconds / (len(turns) * steps * once_s), *_ROUNDS))
    times = [[step_ms(cache.get(mask), batch, steps)[1:] for mask in turns] for _ in range(rounds)]
    low = np.quantile(np.moveaxis(times, 1, 0).reshape(len(turns), -1), 0.1, axis=1)
    return low[:-1] / low[-1]


def errors(validation: Sequence[Dict[str, Any]]) -> np.ndarray:
    """(K,) relative error of each prediction, signed: positive where the prediction was too long."""
    return np.array([v["predicted_ms"] / v["measured_ms"] - 1 for v in validation])
