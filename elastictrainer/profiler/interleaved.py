"""Time selections in turn with the full step, so that a slower machine slows all of them alike."""

from typing import Any, Callable, List, Optional, Sequence, Tuple

import numpy as np

from elastictrainer.steps.timing import SETTLED, step_ms, warm_up

_MOST_STEPS = 160  # under each selection: more of short steps do not change the mean
_LONG_S = 0.15  # a step that takes as long is a turn by itself; `ratios_to_full` says why

Batch = Tuple[Any, Any]
Round = List[np.ndarray]  # ms of the counted steps, one array for each selection


def ratios_to_full(
    step_of: Callable[[Any], Any],
    masks: Sequence[Any],
    full: Any,
    batch: Batch,
    seconds: float,
    *,
    rounds: int = 3,
    warmup: int = SETTLED,
    timed: Callable[[Any, Batch, int], np.ndarray] = step_ms,
    repeat: Optional[Callable[[Callable[[], Round], int], List[Round]]] = None,
) -> np.ndarray:
    """Measure (K,) step times under each of `masks`, (N,) bool, over one under `full`.

    The selections run in turn, long steps one by one and short ones four in a row, for about `seconds`, and
    at least `rounds` times. Other work on the machine comes and goes and adds time: only the faster half of
    each selection's steps counts, without the fastest tenth, which depends on luck where processors change
    their clock.

    Args:
        step_of: gives the step of a selection, or of another key, as `CompiledSteps.get` does.
        masks: K selections, or other keys.
        full: the selection of every tensor that can be trained, or the key of its step.
        batch: inputs and labels.
        seconds: to measure for.
        rounds: the least number of turns of each selection.
        warmup: runs of each step before it is timed, as of `timing.warm_up`.
        timed: runs a step so many times and returns the ms of each, as `timing.step_ms`.
        repeat: calls a function that measures one round so many times; it may leave disturbed rounds out.
    """
    turns = [*masks, full]
    for mask in turns:
        warm_up(step_of(mask), batch, warmup)
    once_s = 1e-3 * timed(step_of(full), batch, 1)[0]
    # A machine's speed changes within seconds, so that turns must be shorter. The first of several short
    # steps may find cold caches and does not count, for training never changes its graph that often; in a
    # long step cold caches do not show.
    steps, cold = (1, 0) if once_s >= _LONG_S else (4, 1)
    rounds = int(np.clip(seconds / (len(turns) * steps * once_s), rounds, max(rounds, _MOST_STEPS // steps)))

    def one_round() -> Round:
        return [timed(step_of(mask), batch, steps)[cold:] for mask in turns]

    times = repeat(one_round, rounds) if repeat else [one_round() for _ in range(rounds)]
    sorted_ms = np.sort(np.moveaxis(np.array(times), 1, 0).reshape(len(turns), -1), axis=1)
    n = sorted_ms.shape[1]
    usual_ms = sorted_ms[:, n // 10 : (n + 1) // 2].mean(axis=1)
    ratios: np.ndarray = usual_ms[:-1] / usual_ms[-1]
    return ratios
