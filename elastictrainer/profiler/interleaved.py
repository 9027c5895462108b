"""Time selections in turn with the full step, so that a slower machine slows all of them alike."""

from typing import Any, Callable, List, Protocol, Sequence, Tuple

import numpy as np

from elastictrainer.profiler.capture import SETTLED, step_ms, warm_up
from elastictrainer.steps.compiled_step import CompiledStep, StepCache

_MOST_STEPS = 160  # under each selection: more of short steps do not change the mean
_LONG_S = 0.15  # a step that takes as long is a turn by itself; `ratios_to_full` says why

Batch = Tuple[Any, Any]
Round = List[np.ndarray]  # ms of the counted steps, one array for each selection


class Steps(Protocol):
    """Steps by a key, such as the mask of a selection; a `StepCache` is one."""

    def get(self, key: Any) -> Any:
        """Return the step, called with inputs and labels; its `runs` says how often it has run."""


class Runner:
    """Runs steps and times them. A test replaces it by a fake."""

    def warm_up(self, step: CompiledStep, batch: Batch, runs: int) -> None:
        """Run steps until their time has settled, as `capture.warm_up` does."""
        warm_up(step, batch, runs)

    def step_ms(self, step: CompiledStep, batch: Batch, count: int) -> np.ndarray:
        """Measure consecutive steps, as `capture.step_ms` does."""
        return step_ms(step, batch, count)


def in_sequence(measure: Callable[[], Round], rounds: int) -> List[Round]:
    """Collect the results of `rounds` calls of `measure`."""
    return [measure() for _ in range(rounds)]


def ratio_to_full(
    cache: StepCache, mask: np.ndarray, full: np.ndarray, batch: Batch, seconds: float = 3.0, **options: Any
) -> float:
    """Measure one selection for about `seconds`, as `ratios_to_full` does."""
    return float(ratios_to_full(cache, [mask], full, batch, seconds, **options)[0])


def ratios_to_full(
    cache: Steps,
    masks: Sequence[Any],
    full: Any,
    batch: Batch,
    seconds: float,
    *,
    rounds: int = 3,
    warmup: int = SETTLED,
    runner: Runner = Runner(),  # noqa: B008  (has no state)
    repeat: Callable[[Callable[[], Round], int], List[Round]] = in_sequence,
) -> np.ndarray:
    """Measure (K,) step times under each of `masks`, (N,) bool, over one under `full`.

    The selections run in turn, long steps one by one and short ones four in a row, for about `seconds`, and
    at least `rounds` times. Other work on the machine comes and goes and adds time: only the faster half of
    each selection's steps counts, without the fastest tenth, which depends on luck where processors change
    their clock.

    Args:
        cache: gives the steps.
        masks: K selections, or other keys of `cache`.
        full: every tensor that can be trained; the key of its step.
        batch: inputs and labels.
        seconds: to measure for.
        rounds: the least number of turns of each selection.
        warmup: runs of each step before it is timed, as of `capture.warm_up`.
        runner: runs and times the steps.
        repeat: calls a function that measures one round so many times; it may leave disturbed rounds out.
    """
    turns = [*masks, full]
    for mask in turns:
        runner.warm_up(cache.get(mask), batch, warmup)
    once_s = 1e-3 * runner.step_ms(cache.get(full), batch, 1)[0]
    # A machine's speed changes within seconds, so that turns must be shorter. The first of several short
    # steps may find cold caches and does not count, for training never changes its graph that often; in a
    # long step cold caches do not show.
    steps, cold = (1, 0) if once_s >= _LONG_S else (4, 1)
    rounds = int(np.clip(seconds / (len(turns) * steps * once_s), rounds, max(rounds, _MOST_STEPS // steps)))
    times = repeat(lambda: [runner.step_ms(cache.get(mask), batch, steps)[cold:] for mask in turns], rounds)
    sorted_ms = np.sort(np.moveaxis(np.array(times), 1, 0).reshape(len(turns), -1), axis=1)
    n = sorted_ms.shape[1]
    usual_ms = sorted_ms[:, n // 10 : (n + 1) // 2].mean(axis=1)
    ratios: np.ndarray = usual_ms[:-1] / usual_ms[-1]
    return ratios
