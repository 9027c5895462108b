"""The policy of a run: which tensors train in each interval. No TensorFlow."""

from typing import Any, Callable, Dict, List, Optional, Union

import numpy as np
from numpy.typing import NDArray

from elastictrainer.profiler.profile import Profile
from elastictrainer.runs.log import LOG
from elastictrainer.selection.plan import Plan
from elastictrainer.selection.selector import OVER_BUDGET, UNCHANGED, Solver, select_with_fallback

Log = Callable[[Dict[str, Any]], None]  # takes the record of a selection or of an interval


class Policy:
    """Decides at the start of each interval which tensors train in it. This one: the same from first to last.

    Attributes:
        plan: when the intervals begin.
        profile: the model's profile; None: nothing is predicted.
        mask: (N,) bool, in the order of `model.trainable_weights`: what trains; all of them before the first
            selection.
        masks: every selection so far; empty where the scheme does not select.
        interval: number of intervals begun.
        selects: whether the mask may change from interval to interval.
        needs_scores: whether it needs importances, and with them a head that knows something.
    """

    selects = False
    needs_scores = False

    def __init__(
        self,
        mask: NDArray[np.bool_],
        plan: Plan,
        profile: Optional[Profile] = None,
        at_interval: Callable[[], Dict[str, Any]] = dict,
        log: Log = lambda record: None,
    ):
        """
        Args:
            mask, plan, profile: see above.
            at_interval: called at the start of every interval but the first; returns figures for the log.
            log: takes the figures, together with the step's number.
        """
        self.mask, self.plan, self.profile = mask, plan, profile
        self.masks: List[NDArray[np.bool_]] = []
        self.interval = 0
        self._at_interval, self._log = at_interval, log
        self._figures: Dict[str, Any] = {}  # of the interval, for the log

    def score(self) -> None:
        """Score the tensors for the interval to come, where it needs that."""

    def begin(self, target: float, cached: bool) -> NDArray[np.bool_]:
        """Begin the next interval; `settle` comes next.

        Args:
            target: time of a step over a full one's, 0 to 1.
            cached: the activations of the interval will be cached, and its steps read them.

        Returns:
            (N,) bool: what trains.
        """
        self._figures = self._at_interval() if self.interval else {}
        self.interval += 1
        return self.mask

    def without_cache(self, target: float) -> None:
        """Select again where the interval's activations cannot be cached: steps take longer than planned."""

    def settle(self, step: int) -> None:
        """Log what trains from step number `step` on, once it is known whether the interval is cached."""
        if self._figures:
            self._log({"step": step, **self._figures})
        self._figures = {}

    def state(self) -> Dict[str, Any]:
        """Return the state that `restore` needs, as JSON values."""
        return {"interval": self.interval}

    def restore(self, state: Dict[str, Any]) -> None:
        """Continue from `state`, in a policy made with the same arguments."""
        self.interval = state["interval"]


class ElasticPolicy(Policy):
    """Trains the tensors of the largest importance that a step has time for.

    Attributes:
        importance: (N,) the latest scores; None: before the first.
    """

    selects = True

    def __init__(
        self,
        profile: Profile,
        plan: Plan,
        score: Callable[[int], NDArray[np.float64]],
        needs_scores: bool = True,
        solver: Union[str, Solver] = "dp",
        on_freeze: Callable[[NDArray[np.bool_]], None] = lambda mask: None,
        log: Log = lambda record: None,
        memory: Optional[float] = None,
    ):
        """
        Args:
            profile, plan: see `Policy`.
            score: makes the (N,) importances of the tensors as they are now, for an interval of this number.
            needs_scores: whether the importances depend on the state of training: then the head comes first.
            solver, memory: see `select`.
            on_freeze: called with the mask whenever the tensors outside it cease to train.
            log: takes the record of each selection.
        """
        super().__init__(np.ones(len(profile), bool), plan, profile, log=log)
        self.needs_scores = needs_scores
        self.importance: Optional[NDArray[np.float64]] = None
        self._record: Dict[str, Any] = {}  # of the latest choice, for the log
        self._profile, self._score, self._solver, self._memory = profile, score, solver, memory
        self._on_freeze = on_freeze

    def score(self) -> None:
        """Score the tensors."""
        self.importance = self._score(self.interval)

    def begin(self, target: float, cached: bool) -> NDArray[np.bool_]:
        """Select by the scores; see `Policy.begin`."""
        self.interval += 1
        return self._choose(target, cached)

    def without_cache(self, target: float) -> None:
        """Select again by the same scores."""
        self._choose(target, cached=False)

    def settle(self, step: int) -> None:
        """Log the selection, and freeze the other tensors."""
        self.masks.append(self.mask)
        self._on_freeze(self.mask)
        record = self._record
        self._log({"step": step, **record})
        remark = ""
        if record["kept_previous"]:
            remark = ", as before: no tensor's update promises to lower the loss"
        elif record["over_budget"]:
            target = record["rho_target"]
            remark = f", over the budget of {target:.3f}: no tensor of positive importance costs less"
        share = record["importance_selected"] / max(record["importance_positive"], 1e-30)
        LOG.info(
            f"selected {self.mask.sum()} of {len(self.mask)} tensors, predicted "
            f"{record['predicted_ratio']:.3f} of a full step, with {100 * share:.0f} % of the importance"
            f"{remark}"
        )

    def state(self) -> Dict[str, Any]:
        """Return the selections and the latest importances, as JSON values."""
        return {
            **super().state(),
            "masks": [np.flatnonzero(mask).tolist() for mask in self.masks],
            "importance": None if self.importance is None else self.importance.tolist(),
        }

    def restore(self, state: Dict[str, Any]) -> None:
        """Continue from `state`; from the beginning if there was time for the head alone, and now is more."""
        if "masks" not in state:
            return
        super().restore(state)
        tensors = np.arange(len(self._profile))
        self.masks = [np.isin(tensors, selected) for selected in state["masks"]]
        self.mask = self.masks[-1] if self.masks else np.ones(len(tensors), bool)
        self.importance = None if state["importance"] is None else np.array(state["importance"])

    def _choose(self, target: float, cached: bool) -> NDArray[np.bool_]:
        """Choose by the latest importances."""
        importance, previous = np.asarray(self.importance), self.masks[-1] if self.masks else None
        possible = self._profile.with_cache if cached else self._profile
        # A target that no step can meet is no error here: late in a run by the clock little time is left.
        target = float(np.clip(target, possible.rho_min, 1.0))
        mask, exception = select_with_fallback(
            possible, importance, target, self._solver, previous, self._memory
        )
        step_ms = possible.step_time(mask)
        self.mask = mask
        self._record = {
            "selected": np.flatnonzero(mask).tolist(),
            "rho_target": target,
            "predicted_ms": step_ms,
            "predicted_ratio": step_ms / possible.full_ms,
            "importance": importance.tolist(),
            "importance_selected": float(importance[mask].sum()),
            "importance_positive": float(importance[importance > 0].sum()),
            "kept_previous": exception == UNCHANGED,
            "over_budget": exception == OVER_BUDGET,
            "cached": cached,
        }
        if possible.memory is not None:
            self._record["predicted_bytes"] = possible.memory.total(mask)
        return mask
