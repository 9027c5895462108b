"""Correct a profile by the measured times of a few selections, and compare it with those of others.

The selections are timed in turn with the full step, so that a slower machine slows all of them alike.
"""

import dataclasses
from typing import Any, Callable, List, Optional, Sequence, Tuple

import numpy as np
from scipy.optimize import lsq_linear

from elastictrainer.profiler.cost_groups import CostGroups, Json, Mask, Numbers
from elastictrainer.profiler.profile import Profile
from elastictrainer.steps.compiled_step import CompiledSteps
from elastictrainer.steps.objective import Minibatch
from elastictrainer.steps.timing import SETTLED, step_ms, warm_up

_MOST = 0.9  # share of a traced time that a correction may move: measured noise must leave no time at zero
_DOUBT = 0.01  # weight of "no overlap", where a measured step has 1: it decides where the steps cannot tell
_MOST_STEPS = 160  # under each selection: more of short steps do not change the mean
_LONG_S = 0.15  # a step that takes as long is a turn by itself; `ratios_to_full` says why
_VALIDATION_S = 3.0  # of each selection

Round = List[Numbers]  # ms of the counted steps, one array for each selection


def cheapest(profile: Profile) -> Mask:
    """Select the tensor that costs least, alone, (N,) bool; nearly all forward work is frozen then."""
    return _only(profile, int(np.argmin(profile.alone_ms)))


def earliest(profile: Profile) -> Mask:
    """Select one tensor, (N,) bool, that needs nearly all dy work and has little dW work itself."""
    dy = profile.dy.amount_per_tensor() - profile.t_alone
    return _only(profile, int(np.argmax(np.where(profile.connected, dy, -np.inf))))


def middle(profile: Profile) -> Mask:
    """Select the tensor, (N,) bool, that has as many before it as behind it, alone."""
    order = profile.order[profile.connected[profile.order]]
    return _only(profile, int(order[len(order) // 2]))


def _only(profile: Profile, tensor: int) -> Mask:
    return np.arange(len(profile)) == tensor


def calibrated(profile: Profile, cheapest_ratio: float, earliest_ratio: float) -> Profile:
    """Correct a profile by the measured times of `cheapest` and `earliest` over the full step's, which stays.

    TensorFlow fuses frozen forward work and keeps no activation of it: it then takes less, by the share
    `frozen_saving`, s. It computes a weight gradient (dW) at the same time as the activation gradient (dy):
    of the dW work a share, `overlap`, o, is not saved without it, and counts as dy work. With F(m) the frozen
    forward work of a selection m, dW(m) and dy(m) its work, and dW and dy that of the full step, a step takes

        T(m) + o B(m) - s F(m),    B(m) = dW dy(m) / dy - dW(m).

    That is an equation for each of the two measured steps, divided by T(m), so that a relative error counts.
    A third one, of little weight, says o = 0 where the two differ by too little to tell. Least squares, with
    both shares within their bounds.
    """
    dw_ms, dy_ms = _dw_and_dy_ms(profile)
    members = profile.forward.has_members()
    rows, sides = [[_DOUBT * dw_ms / profile.full_ms, 0.0]], [0.0]
    for mask, ratio in ((cheapest(profile), cheapest_ratio), (earliest(profile), earliest_ratio)):
        own_ms = profile.dw.active_amount(mask) + float(profile.t_update[mask].sum())
        by_overlap_ms = dw_ms * profile.dy.active_amount(mask) / dy_ms - own_ms if dy_ms else 0.0
        frozen_ms = profile.forward.amount[members & ~profile.forward.active_groups(mask)].sum()
        predicted_ms = profile.step_time(mask)
        rows.append([by_overlap_ms / predicted_ms, -frozen_ms / predicted_ms])
        sides.append(ratio * profile.full_ms / predicted_ms - 1)
    least = -_MOST * min(1.0, dy_ms / dw_ms) if dw_ms else -_MOST
    bounds = ([least, 0.0], [_MOST, _MOST])
    overlap, saving = lsq_linear(np.array(rows), np.array(sides), bounds, method="bvls").x
    return dataclasses.replace(with_overlap(profile, overlap), frozen_saving=float(saving))


def with_overlap(profile: Profile, overlap: float) -> Profile:
    """Return `profile` from a trace, with the share `overlap` of the dW work charged to the dy work."""
    dw_ms, dy_ms = _dw_and_dy_ms(profile)
    if not dw_ms or not dy_ms:
        return profile
    return dataclasses.replace(
        profile,
        dw=profile.dw.scaled(1 - overlap),
        t_update=profile.t_update * (1 - overlap),
        dy=profile.dy.scaled(1 + overlap * dw_ms / dy_ms),
        overlap=float(overlap),
    )


def _dw_and_dy_ms(profile: Profile) -> Tuple[float, float]:
    return float(profile.dw.amount.sum() + profile.t_update.sum()), float(profile.dy.amount.sum())


def with_calibrated_cache(
    profile: Profile,
    plain_ratio: float,
    write_ratio: float,
    cached_ratio: float,
    cheapest_cached_ratio: float,
) -> Profile:
    """Correct a profile so that it predicts the measured times of cache writes and of cached steps.

    A step in two parts begins its second part with cold caches, which no trace of a whole step shows: that
    part is slower, by about the same share s at every depth (`slower`). And a step in two parts has fewer
    ops, so that it is called faster than a full one: by about as many ms at every depth. With W(m) the
    predicted work of a cached step without reading, such a step takes d ms more than predicted, besides s:

        T(m) + d + s W(m),    s >= 0.

    That is an equation for each of the two measured selections, divided by T(m). For the one in the middle
    the change from its whole step to its cached one counts: an error of the former is not the cache's. A
    negative d first shortens reading; what is left is spared of the work of each step. The write's time gives
    `write_ms` alone.

    All ratios are to the full step's time: of a whole step of `middle(profile)`, of writing a minibatch to
    the cache and of a cached step of it, and of a cached step of `cheapest(profile)`.
    """
    assert profile.cache is not None
    costs, full_ms, cached = profile.cache, profile.full_ms, profile.with_cache
    inside, short = middle(profile), cheapest(profile)
    whole_error_ms = plain_ratio * full_ms - profile.step_time(inside)
    measured_ms = cached_ratio * full_ms - whole_error_ms, cheapest_cached_ratio * full_ms
    rows, sides = [], []
    for mask, ms in zip((inside, short), measured_ms):
        predicted_ms = cached.step_time(mask)
        work_ms = predicted_ms - cached.reading_ms[mask].item()
        rows.append([1 / predicted_ms, work_ms / predicted_ms])
        sides.append(ms / predicted_ms - 1)
    bounds = ([-np.inf, 0.0], [np.inf, np.inf])
    more_ms, slower = lsq_linear(np.array(rows), np.array(sides), bounds, method="bvls").x

    # Reading cannot take less than nothing; what is spared instead is not slower either.
    read_ms = costs.read_ms + more_ms
    most_ms = max(0.0, profile.forward.always - costs.once.always)
    spared_ms = min(most_ms, max(0.0, -read_ms) / (1 + slower))
    writing_ms = write_ratio * full_ms - profile.cache_write_time(inside)
    costs = dataclasses.replace(
        costs,
        once=costs.once.joined(CostGroups.from_sets(len(profile), [()], [spared_ms])),
        write_ms=max(0.0, costs.write_ms + writing_ms),
        read_ms=max(0.0, read_ms),
        slower=float(slower),
    )
    return dataclasses.replace(profile, cache=costs)


def ratios_to_full(
    step_of: Callable[[Any], Any],
    masks: Sequence[Any],
    full: Any,
    batch: Minibatch,
    seconds: float,
    *,
    rounds: int = 3,
    warmup: int = SETTLED,
    timed: Callable[[Any, Minibatch, int], np.ndarray] = step_ms,
    repeat: Optional[Callable[[Callable[[], Round], int], List[Round]]] = None,
) -> Numbers:
    """Measure (K,) step times under each of `masks`, (N,) bool, over one under `full`.

    The selections run in turn, long steps one by one and short ones four in a row, for about `seconds`, and
    at least `rounds` times. Other work on the machine comes and goes and adds time: only the faster half of
    each selection's steps counts, without the fastest tenth, which depends on luck where processors change
    their clock.

    `step_of` gives the step of a mask, or of another key, as `CompiledSteps.get` does; `warmup` and `timed`
    are as in `timing`. `repeat` calls a function that measures one round so many times; it may leave
    disturbed rounds out.
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
    ratios: Numbers = usual_ms[:-1] / usual_ms[-1]
    return ratios


def random_masks(profile: Profile, count: int, seed: int) -> List[Mask]:
    """Return `count` selections (N,) bool: a random depth, and a random share of the tensors above it."""
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
    profile: Profile, steps: CompiledSteps, batch: Minibatch, count: int, seed: int
) -> List[Json]:
    """Measure random selections: {"selected": ascending indices, "predicted_ms", "measured_ms"} of each.

    Each runs in turn with the full step, and the ratio of their times is multiplied by the profile's full
    step: a machine that has become slower since then does not count as an error of the model.
    """
    rows = []
    for mask in random_masks(profile, count, seed):
        (ratio,) = ratios_to_full(steps.get, [mask], profile.connected, batch, _VALIDATION_S).tolist()
        rows.append(
            {
                "selected": np.flatnonzero(mask).tolist(),
                "predicted_ms": profile.step_time(mask),
                "measured_ms": ratio * profile.step_time(profile.connected),
            }
        )
    return rows
