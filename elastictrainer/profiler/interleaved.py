"""Steps under several selections, timed in turn with the full one, so that what slows the machine slows all of them."""

import time
from typing import Any, Callable, List, Sequence, Tuple, TypeVar

import numpy as np

from elastictrainer.profiler.capture import SETTLED, step_ms, warm_up
from elastictrainer.runs.environment import stolen_seconds
from elastictrainer.steps.compiled_step import StepCache

_MOST_STEPS = 160  # under each selection
_STOLEN = 0.03  # of one core: what a virtual machine's host may take away during a round
_PATIENCE = (
    3  # times as many rounds, at most, to have enough in which it did not; where the caller has no more
)
_LONG_S = 0.15  # a step that takes as long is a turn of its own
_Result = TypeVar("_Result")


def undisturbed(measure: Callable[[], _Result], rounds: int, patience: int = _PATIENCE) -> List[_Result]:
    """What `measure` returned in `rounds` calls: those in which a virtual machine's host took least of the processors.

    It is called up to `patience` times as often, until so many were left alone.
    """
    results: List[_Result] = []
    stolen: List[float] = []
    while len(results) < patience * rounds and np.sum(np.array(stolen) <= _STOLEN) < rounds:
        start, before = time.perf_counter(), stolen_seconds()
        results.append(measure())
        stolen.append((stolen_seconds() - before) / (time.perf_counter() - start))
    return [results[k] for k in np.argsort(stolen, kind="stable")[:rounds]]


def ratio_to_full(
    cache: StepCache,
    mask: np.ndarray,
    full: np.ndarray,
    batch: Tuple[Any, Any],
    seconds: float = 3.0,
    **more: int,
) -> float:
    """`ratios_to_full` of one selection, for about `seconds`."""
    return float(ratios_to_full(cache, [mask], full, batch, seconds, **more)[0])


def ratios_to_full(
    cache: StepCache,
    masks: Sequence[np.ndarray],
    full: np.ndarray,
    batch: Tuple[Any, Any],
    seconds: float,
    rounds: int = 3,
    patience: int = _PATIENCE,
    warmup: int = SETTLED,
) -> np.ndarray:
    """(K,) measured time of a step under each of `masks`, (N,) bool, over one under `full`.

    They are run in turn, long steps one by one and short ones four in a row, for about `seconds`, and at least `rounds`
    times; up to `patience` times as often on a virtual machine whose host takes the processors away meanwhile, and the
    rounds in which it took least count. Other work on the machine comes and goes and adds time, so that of each selection's
    steps the faster half counts; not the fastest tenth, which is a matter of luck where processors change their clock. Each
    has run `warmup` times before; see `warm_up`.
    """
    for mask in (*masks, full):
        warm_up(cache.get(mask), batch, warmup)
    once_s = 1e-3 * step_ms(cache.get(full), batch, 1)[0]
    # A machine's speed goes up and down within seconds, so that turns must be shorter than that. The first of several short
    # steps may find the caches cold, and training never changes its graph that often; of a long step that is no part worth naming.
    steps, cold = (1, 0) if once_s >= _LONG_S else (4, 1)
    turns = [*masks, full]
    rounds = int(np.clip(seconds / (len(turns) * steps * once_s), rounds, max(rounds, _MOST_STEPS // steps)))
    times = undisturbed(
        lambda: [step_ms(cache.get(mask), batch, steps)[cold:] for mask in turns], rounds, patience
    )
    sorted_ms = np.sort(np.moveaxis(np.array(times), 1, 0).reshape(len(turns), -1), axis=1)
    n = sorted_ms.shape[1]
    usual_ms = sorted_ms[:, n // 10 : (n + 1) // 2].mean(axis=1)
    return usual_ms[:-1] / usual_ms[-1]
