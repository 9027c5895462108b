"""Correct a profile by the measured times of a few selections. NumPy only."""

import dataclasses
from typing import Tuple

import numpy as np

from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.profiler.profile import Profile

_MOST = 0.9  # share of a traced time that a correction may move: measured noise must leave no time at zero


def cheapest(profile: Profile) -> np.ndarray:
    """Select the tensor that costs least, alone, (N,) bool; nearly all forward work is frozen then."""
    return _only(profile, int(np.argmin(profile.alone_ms)))


def earliest(profile: Profile) -> np.ndarray:
    """Select one tensor, (N,) bool, that needs nearly all activation gradients (dy) and has little dW work
    itself.
    """
    dy = profile.dy.amount_per_tensor() - profile.t_dw
    return _only(profile, int(np.argmax(np.where(profile.connected, dy, -np.inf))))


def calibrated(profile: Profile, cheapest_ratio: float, earliest_ratio: float) -> Profile:
    """Correct a profile so that it predicts the measured times of `cheapest` and `earliest`; the full step
    stays.

    TensorFlow fuses frozen forward work and keeps no activation of it, which makes it cheaper
    (`frozen_saving`). It computes a weight gradient (dW) at the same time as the activation gradient
    (dy). The time that a step saves without the dW depends on how well the two share processors and memory;
    it is not the share of time that the dW has in a full step (`overlap`).

    Args:
        profile: from a trace, without either figure.
        cheapest_ratio: measured step time of `cheapest(profile)` over the full step's.
        earliest_ratio: of `earliest(profile)`.
    """
    full_ms = profile.step_time(profile.connected)
    dw_ms, dy_ms = _dw_ms(profile), float(profile.dy.amount.sum())

    def terms(mask: np.ndarray, ratio: float) -> Tuple[float, float, float]:
        """Return ms: what the prediction lacks, what an overlap of 1 would add, and frozen forward work."""
        forward = profile.forward
        frozen = forward.has_members() & ~forward.active_groups(mask)
        moved_ms = dw_ms * profile.dy.active_amount(mask) / dy_ms if dy_ms else 0.0
        by_overlap_ms = moved_ms - profile.dw.active_amount(mask) - float(profile.t_update[mask].sum())
        return ratio * full_ms - profile.step_time(mask), by_overlap_ms, float(forward.amount[frozen].sum())

    # Two unknowns, two measured steps: for each, missing = overlap * by_overlap - saving * frozen.
    both = terms(cheapest(profile), cheapest_ratio), terms(earliest(profile), earliest_ratio)
    missing_ms, by_overlap_ms, frozen_ms = np.array(both).T
    # The second equation, less as much of the first as leaves no saving in it.
    share = frozen_ms[1] / frozen_ms[0] if frozen_ms[0] else 0.0
    left_by_overlap_ms = by_overlap_ms[1] - share * by_overlap_ms[0]
    if left_by_overlap_ms > 0.1 * dw_ms:  # else the two steps differ by too little to tell
        profile = with_overlap(profile, (missing_ms[1] - share * missing_ms[0]) / left_by_overlap_ms)
    saved_ms = profile.overlap * by_overlap_ms[0] - missing_ms[0]
    saving = float(np.clip(saved_ms / frozen_ms[0], 0.0, _MOST)) if frozen_ms[0] else 0.0
    return dataclasses.replace(profile, frozen_saving=saving)


def middle(profile: Profile) -> np.ndarray:
    """Select the tensor, (N,) bool, that has as many before it as behind it, alone."""
    order = profile.order[profile.connected[profile.order]]
    return _only(profile, int(order[len(order) // 2]))


def with_calibrated_cache(
    profile: Profile,
    plain_ratio: float,
    write_ratio: float,
    cached_ratio: float,
    cheapest_cached_ratio: float,
) -> Profile:
    """Correct a profile so that it predicts the measured times of cache writes and of cached steps.

    A step in two parts begins its second part with cold caches, which no trace of a whole step shows: that
    part is slower, by about the same share at every depth (`slower`). And a step in two parts has fewer ops,
    so that it is called faster than a full one: by about as many ms at every depth (less of what is in each
    step, whatever trains).

    Args:
        profile: with its `cache`, which has the times of writing and reading.
        plain_ratio: measured time of a step of `middle(profile)`, computed as a whole, over the full step's.
        write_ratio: of writing a minibatch to the cache.
        cached_ratio: of a cached step.
        cheapest_cached_ratio: of a cached step of `cheapest(profile)`.
    """
    assert profile.cache is not None
    costs, full_ms = profile.cache, profile.full_ms
    inside, short = middle(profile), cheapest(profile)
    cached = profile.with_cache
    plain_ms, inside_ms = profile.step_time(inside), cached.step_time(inside)
    short_ms = cached.step_time(short)
    writing_ms = write_ratio * full_ms - profile.cache_write_time(inside)

    # An error of the prediction of the whole step of `inside` is not the cache's: the change from that step
    # to the cached one counts. A cached step of `short` has hardly any work left: its own time counts.
    missing_ms = cheapest_cached_ratio * full_ms - short_ms
    more_ms = (cached_ratio - plain_ratio) * full_ms - (inside_ms - plain_ms) - missing_ms
    short_work_ms = short_ms - cached.reading_ms[short].item()
    more_work_ms = inside_ms - cached.reading_ms[inside].item() - short_work_ms
    slower = max(0.0, more_ms) / more_work_ms if more_work_ms > 0 else 0.0

    # Where reading would take less than nothing, calling the step takes less than calling a full one; what is
    # spared is not slower either.
    read_ms = costs.read_ms + missing_ms - slower * short_work_ms
    most_ms = max(0.0, profile.forward.always - costs.once.always)
    spared_ms = min(most_ms, max(0.0, -read_ms) / (1 + slower))
    costs = dataclasses.replace(
        costs,
        once=costs.once.joined(CostGroups.from_sets(len(profile), [()], [spared_ms])),
        write_ms=max(0.0, costs.write_ms + writing_ms),
        read_ms=max(0.0, read_ms),
        slower=slower,
    )
    return dataclasses.replace(profile, cache=costs)


def with_overlap(profile: Profile, overlap: float) -> Profile:
    """Return `profile` from a trace, with the share `overlap` of the dW work charged to the dy work.

    An overlap that would leave less than a tenth of either is cut down to that.
    """
    dw_ms, dy_ms = _dw_ms(profile), float(profile.dy.amount.sum())
    if not dw_ms or not dy_ms:
        return profile
    overlap = float(np.clip(overlap, -_MOST * min(1.0, dy_ms / dw_ms), _MOST))
    return dataclasses.replace(
        profile,
        dw=profile.dw.scaled(1 - overlap),
        t_update=profile.t_update * (1 - overlap),
        dy=profile.dy.scaled(1 + overlap * dw_ms / dy_ms),
        overlap=overlap,
    )


def _dw_ms(profile: Profile) -> float:
    return float(profile.dw.amount.sum() + profile.t_update.sum())


def _only(profile: Profile, tensor: int) -> np.ndarray:
    return np.arange(len(profile)) == tensor
