"""The selector of a run: which tensors train in each of its intervals. No TensorFlow."""

from typing import Any, Callable, Dict, List, Optional, Union

import numpy as np
from numpy.typing import NDArray

from elastictrainer.profiler.cost_groups import Mask
from elastictrainer.profiler.profile import Profile
from elastictrainer.runs.log import LOG
from elastictrainer.selection.selector import (
    EXCEPTIONS,
    LATE_LAYERS,
    OVER_BUDGET,
    UNCHANGED,
    Solver,
    freeze_below,
    select_with_fallback,
)

_REMARKS = {
    UNCHANGED: ", as before: no tensor's update promises to lower the loss",
    LATE_LAYERS: ", the late layers: no tensor's update promises to lower the loss",
    OVER_BUDGET: ", over the budget of {:.3f}: no tensor of positive importance costs less",
}


class Selector:
    """Decides at the start of each interval which tensors train in it.

    With a solver it selects by the time that a step may take, and by scores if there are some. Without one
    the same tensors train in all intervals.

    Attributes:
        profile: the model's profile; None: nothing is predicted.
        mask: (N,) bool, in the order of `model.trainable_weights`: what trains.
        masks: every selection so far.
        interval: number of intervals begun.
        importance: (N,) the latest scores; None: there are none.
    """

    def __init__(
        self,
        mask: Mask,
        profile: Optional[Profile] = None,
        solver: Union[str, Solver, None] = None,
        score: Optional[Callable[[int], NDArray[np.float64]]] = None,
        at_interval: Callable[[], Dict[str, Any]] = dict,
        on_freeze: Callable[[Mask], None] = lambda mask: None,
        log: Callable[[Dict[str, Any]], None] = lambda record: None,
        memory: Optional[float] = None,
    ):
        """
        Args:
            mask: what trains before the first selection, or all the time.
            profile: see above; a solver needs it.
            solver, memory: see `select`.
            score: makes the (N,) importances of the tensors as they are now, for an interval of this number;
                None: the solver needs none.
            at_interval: without a solver: called at the start of every interval but the first; returns
                figures for the log.
            on_freeze: called with the mask whenever the tensors outside it cease to train.
            log: takes the record of each interval that has one, together with the step's number.
        """
        self.mask, self.profile = mask, profile
        self.masks: List[Mask] = []
        self.interval = 0
        self.importance: Optional[NDArray[np.float64]] = None
        self._solver, self._score, self._memory = solver, score, memory
        self._at_interval, self._on_freeze, self._log = at_interval, on_freeze, log
        self._record: Dict[str, Any] = {}  # of the interval, for the log

    @property
    def selects(self) -> bool:
        """Return whether tensors are selected at every interval."""
        return self._solver is not None

    def score(self, skipped: bool = False) -> None:
        """Score the tensors for the interval to come, if the scheme asks for it and it is not `skipped`."""
        self.importance = self._score(self.interval) if self._score and not skipped else None

    def begin(self, share: float, cached: bool) -> Mask:
        """Begin the next interval, with what `score` has found; `settle` comes next.

        Args:
            share: time of a step over a full one's; it is brought into what is possible.
            cached: the activations of the interval will be cached, and its steps read them.

        Returns:
            (N,) bool: what trains.
        """
        self._record = self._at_interval() if self.interval and not self.selects else {}
        return self.select(share, cached)

    def select(self, share: float, cached: bool) -> Mask:
        """Select; also for an interval that goes on, where its activations cannot be cached."""
        if self._solver is None:
            return self.mask
        assert self.profile is not None
        possible = self.profile.with_cache if cached else self.profile
        # A share that no step can meet is no error here: late in a run by the clock little time is left.
        share = float(np.clip(share, possible.rho_min, 1.0))
        # Without scores all are worth the same, and the solver needs none.
        scored, solver = self.importance is not None, self._solver
        importance = np.asarray(self.importance) if scored else np.ones(len(possible))
        if not scored and self._score is not None:
            solver = freeze_below
        previous = self.masks[-1] if self.masks else None
        mask, exception = select_with_fallback(possible, importance, share, solver, previous, self._memory)
        step_ms = possible.step_time(mask)
        self.mask = mask
        self._record = {
            "selected": np.flatnonzero(mask).tolist(),
            "rho_target": share,
            "predicted_ms": step_ms,
            "predicted_ratio": step_ms / possible.full_ms,
            **{name: name == exception for name in EXCEPTIONS},
            "cached": cached,
        }
        if scored:
            self._record["importance"] = importance.tolist()
            self._record["importance_selected"] = float(importance[mask].sum())
            self._record["importance_positive"] = float(importance[importance > 0].sum())
        if possible.memory is not None:
            self._record["predicted_bytes"] = possible.memory.total(mask)
        return mask

    def settle(self, step: int, again: bool = False) -> None:
        """Log what trains from step number `step` on, and freeze the rest, once it is known whether the
        interval is cached. `again`: in an interval that goes on.
        """
        self.interval += not again
        if self._record:
            self._log({"step": step, **self._record})
        if self.selects:
            self.masks.append(self.mask)
            self._on_freeze(self.mask)
            LOG.info(self._line())
        self._record = {}

    def _line(self) -> str:
        """Return a line on the selection."""
        record, worth = self._record, ""
        remark = "".join(_REMARKS[name].format(record["rho_target"]) for name in EXCEPTIONS if record[name])
        if record.get("importance_positive"):  # else there is nothing to have a share of
            share = record["importance_selected"] / record["importance_positive"]
            worth = f", with {100 * share:.0f} % of the importance"
        return (
            f"selected {self.mask.sum()} of {len(self.mask)} tensors, predicted "
            f"{record['predicted_ratio']:.3f} of a full step{worth}{remark}"
        )

    def state(self) -> Dict[str, Any]:
        """Return the state that `restore` needs, as JSON values."""
        return {
            "interval": self.interval,
            "masks": [np.flatnonzero(mask).tolist() for mask in self.masks],
            "importance": None if self.importance is None else self.importance.tolist(),
        }

    def restore(self, state: Dict[str, Any]) -> None:
        """Continue from `state`, in a selector made with the same arguments."""
        tensors = np.arange(len(self.mask))
        self.interval, importance = state["interval"], state["importance"]
        self.masks = [np.isin(tensors, selected) for selected in state["masks"]]
        self.mask = self.masks[-1] if self.masks else self.mask
        self.importance = None if importance is None else np.array(importance)
