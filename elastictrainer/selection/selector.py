"""The tensor selector: the most importance within a time budget. NumPy only."""

from dataclasses import dataclass
from typing import Any, Callable, Optional, Tuple, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elastictrainer.errors import UsageError, unknown
from elastictrainer.profiler.profile import Profile
from elastictrainer.selection.search import Search

UNCHANGED = "unchanged"  # the selection is the previous one: no tensor has a positive importance
OVER_BUDGET = "over budget"  # the selection exceeds the budget: no tensor of positive importance costs less
# From the profile, the (N,) importances and the ms that a step may take, to the (N,) bool of what trains, all
# in the order of `model.trainable_weights`.
Solver = Callable[[Profile, NDArray[Any], float], NDArray[Any]]
_LARGEST = 1e100  # of an importance: sums and quotients of such numbers stay finite


@dataclass(frozen=True)
class Selection:
    """The tensors to train.

    Attributes:
        mask: (N,) bool, in the order of `model.trainable_weights`.
        step_ms: predicted time of a step under the mask.
        importance: summed importance of the mask.
    """

    mask: NDArray[Any]
    step_ms: float
    importance: float


def select(
    profile: Profile,
    importance: ArrayLike,
    rho: float,
    solver: Union[str, Solver] = "dp",
    resolution: int = 10_000,
    cached: bool = False,
    memory: Optional[float] = None,
) -> Selection:
    """Choose the tensors with the largest summed importance whose step takes at most `rho` of the full step.

    Maximises sum(importance[i] for selected i) subject to `profile.step_time(mask) <= rho * profile.full_ms`
    (paper Sec. 3.3). Tensors of importance zero or less are never selected.

    Args:
        profile: the profile, N tensors.
        importance: (N,) larger is better, in the order of `model.trainable_weights`.
        rho: requested step time over the full step's, in [profile.rho_min, 1].
        solver: "dp": a knapsack on the chain model, exact there up to costs rounded up to 1 / resolution of
            the budget; the time that the chain overestimates is then spent by the cost groups. Or a `Solver`
            of one's own, such as `freeze_below`; whether it meets the budget is not checked.
        resolution: cells of time of the knapsack.
        cached: the step reads activations that were cached before; only with a profile that has the costs of
            that, as those of et-profile and Trainer.fit do.
        memory: bytes that the process may have resident (see `StepMemory.total`); None: as many as it takes.
            Of the selection of a `Solver` the earliest tensors are then left out until it fits.

    Returns:
        The selection. Its mask is empty where no tensor of positive importance fits the budget.

    Raises:
        UsageError: an argument out of range, `cached` or `memory` with a profile that cannot tell its costs,
            or too little memory for any tensor.
    """
    importance = np.asarray(importance, np.float64)
    if importance.shape != (len(profile),):
        raise UsageError(f"importance must have shape ({len(profile)},), not {importance.shape}.")
    beyond = np.flatnonzero(~(np.abs(importance) < _LARGEST))
    if len(beyond):
        raise UsageError(
            f"the importance of {profile.names[beyond[0]]} is {importance[beyond[0]]:g}: the loss diverged. "
            "Lower the learning rate, or check the data."
        )
    if cached and not profile.cache:
        raise UsageError(
            "the profile does not have the costs of cached steps, which `cached` needs: take one that "
            "et-profile or Trainer.fit made."
        )
    profile = profile.with_cache if cached else profile
    rho_min = profile.rho_min
    if not rho_min * (1 - 1e-9) <= rho <= 1:
        raise UsageError(
            f"rho {rho:g} is not achievable: the cheapest selection takes {rho_min:.3f} of the full step. "
            f"Valid: {np.ceil(rho_min * 1000) / 1000:.3f} to 1."
        )
    if isinstance(solver, str) and solver != "dp":
        raise unknown("solver", solver, ["dp"])
    if resolution < 1:
        raise UsageError(f"resolution must be at least 1, not {resolution}.")

    # rho_min x full_ms may come out a last digit below what the cheapest selection takes.
    budget = max(rho, rho_min) * profile.full_ms * (1 + 1e-12)
    useful = _useful(profile, importance, memory)
    search = Search(profile, importance, useful, budget, memory)
    if isinstance(solver, str):
        mask = search.solve(resolution)
    else:
        mask = profile.as_mask(solver(profile, importance, budget)) & profile.connected
        for tensor in profile.order[::-1]:
            if search.fits_memory(mask):
                break
            mask[tensor] = False
    return Selection(mask, profile.step_time(mask), float(importance[mask].sum()))


def _useful(profile: Profile, importance: NDArray[Any], memory: Optional[float]) -> NDArray[Any]:
    """Return (N,) bool: the tensors whose training promises something, and fits alone into memory.

    Raises:
        UsageError: none fits, or the profile does not say what a step takes.
    """
    useful = (importance > 0) & profile.connected
    if memory is None:
        return useful
    if profile.memory is None:
        raise UsageError(
            "the profile does not say what a step takes of memory: make a new one with et-profile, on a "
            "device that trains on its processor."
        )
    total = np.where(profile.connected, profile.memory.loaded + profile.memory.alone, np.inf)
    if total.min() > memory:
        raise UsageError(
            f"{memory / 1e9:.2f} GB of memory are too little to train any tensor: the cheapest one takes "
            f"{total.min() / 1e9:.2f} GB."
        )
    return useful & (total <= memory)


def select_with_fallback(
    profile: Profile,
    importance: NDArray[Any],
    rho: float,
    solver: Union[str, Solver] = "dp",
    previous: Optional[NDArray[Any]] = None,
    memory: Optional[float] = None,
) -> Tuple[NDArray[Any], Optional[str]]:
    """Select as `select` does, with a fallback where its answer is empty.

    Where all tensors of positive importance exceed the budget, that is the cheapest of them; where there is
    none, `previous`, the (N,) selection so far.

    Returns:
        (N,) bool; and UNCHANGED or OVER_BUDGET where the mask is not the answer of `select`, else None.

    Raises:
        UsageError: as `select`; or no importance is positive, and there is no previous selection.
    """
    mask = select(profile, importance, rho, solver=solver, memory=memory).mask
    if mask.any():
        return mask, None
    useful = _useful(profile, importance, memory)
    if useful.any():
        return np.arange(len(profile)) == np.argmin(np.where(useful, profile.alone_ms, np.inf)), OVER_BUDGET
    if previous is None:
        raise UsageError(
            "no tensor's update promises to lower the loss. Is the learning rate too high, or the model "
            "trained already? Try a lower --learning-rate or more --importance-batches."
        )
    return previous, UNCHANGED


def freeze_below(profile: Profile, importance: NDArray[Any], budget: float) -> NDArray[Any]:
    """Select all tensors from the output inwards that the budget allows; importance does not count. A
    `Solver`.
    """
    best = np.zeros(len(profile), bool)
    mask = best.copy()
    for tensor in profile.order[profile.connected[profile.order]]:
        mask[tensor] = True
        if profile.step_time(mask) <= budget:  # earlier ones may cost less where they cache less
            best = mask.copy()
    return best
