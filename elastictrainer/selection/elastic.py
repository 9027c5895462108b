"""The policy of a scheme that selects at the start of every interval. NumPy only."""

from typing import Any, Callable, Dict, Optional, Union

import numpy as np
from numpy.typing import NDArray

from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.runs.log import LOG
from elastictrainer.selection.plan import Plan
from elastictrainer.selection.policy import Log, Policy
from elastictrainer.selection.selector import KEPT, OVER_BUDGET, Solver, choose


class ElasticPolicy(Policy):
    """Trains the tensors of the largest importance that a step has time for.

    Attributes:
        importance: (N,) the latest scores; None: before the first.
    """

    selects = True

    def __init__(
        self,
        timings: TensorTimings,
        plan: Plan,
        score: Callable[[], NDArray[np.float64]],
        scores: bool = True,
        solver: Union[str, Solver] = "dp",
        on_freeze: Callable[[NDArray[np.bool_]], None] = lambda mask: None,
        log: Log = lambda record: None,
        memory: Optional[float] = None,
    ):
        """
        Args:
            timings, plan: see `Policy`.
            score: makes the (N,) importances of the tensors as they are now.
            scores: whether the importances depend on the state of training, so that the head comes first.
            solver, memory: see `select`.
            on_freeze: called with the mask whenever the tensors outside it cease to train.
            log: takes the record of each selection.
        """
        super().__init__(None, plan, timings, log=log)
        self.scores = scores
        self.importance: Optional[NDArray[np.float64]] = None
        self._record: Dict[str, Any] = {}  # of the latest choice, for the log
        self._timings, self._score, self._solver, self._memory = timings, score, solver, memory
        self._on_freeze = on_freeze

    def score(self) -> None:
        """Score the tensors."""
        self.importance = self._score()

    def begin(self, step: int, target: float, cached: bool) -> NDArray[np.bool_]:
        """Select by the scores; see `Policy.begin`."""
        self.interval += 1
        return self._choose(target, cached)

    def without_cache(self, target: float) -> None:
        """Select again by the same scores."""
        self.mask = self.masks[-1] if self.masks else None
        self._choose(target, cached=False)

    def settle(self, step: int) -> None:
        """Log the selection, and freeze the other tensors."""
        assert self.mask is not None
        self.masks.append(self.mask)
        self._on_freeze(self.mask)
        self._log({"step": step, **self._record})
        importance = self._record["importance_selected"] / max(self._record["importance_positive"], 1e-30)
        LOG.info(
            f"selected {self.mask.sum()} of {len(self.mask)} tensors, predicted "
            f"{self._record['predicted_ratio']:.3f} of a full step, with {100 * importance:.0f} % of the "
            "importance" + _remark(self._record)
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
        tensors = np.arange(len(self._timings))
        self.masks = [np.isin(tensors, selected) for selected in state["masks"]]
        self.mask = self.masks[-1] if self.masks else None
        self.importance = None if state["importance"] is None else np.array(state["importance"])

    def _choose(self, target: float, cached: bool) -> NDArray[np.bool_]:
        """Choose by the latest importances."""
        importance = np.asarray(self.importance)
        possible = self._timings.with_cache if cached else self._timings
        # A target that no step can meet is no error here: late in a run by the clock little time is left.
        target = float(np.clip(target, possible.rho_min, 1.0))
        mask, exception = choose(possible, importance, target, self._solver, self.mask, self._memory)
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
            "kept_previous": exception == KEPT,
            "over_budget": exception == OVER_BUDGET,
            "recorded": cached,
        }
        if possible.memory is not None:
            self._record["predicted_bytes"] = possible.memory.total(mask)
        return mask


def _remark(record: Dict[str, Any]) -> str:
    """Describe an unusual selection; usually an empty string."""
    if record["kept_previous"]:
        return ", as before: no tensor's update promises to lower the loss"
    if record["over_budget"]:
        return f", over the budget of {record['rho_target']:.3f}: no tensor of positive importance costs less"
    return ""
