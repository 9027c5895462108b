"""One selection during training: score the tensors, set the budget, choose."""

import itertools
from typing import Any, Dict, Iterable, List, Optional, Tuple

import numpy as np

from elastictrainer.errors import UsageError
from elastictrainer.importance import ImportanceEvaluator
from elastictrainer.pace import Pace
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.selector import select
from elastictrainer.stopwatch import Stopwatch


class Reselector:
    """Chooses the tensors of the next interval."""

    def __init__(
        self,
        evaluator: ImportanceEvaluator,
        timings: TensorTimings,
        pace: Pace,
        watch: Stopwatch,
        batches: int,
        solver: str,
        feedback: bool,
    ):
        """
        Args:
            evaluator: scores the tensors.
            timings: the profile.
            pace: what this run's steps have cost so far.
            watch: its laps "importance" and "selection" are used.
            batches: probe minibatches.
            solver: see `select`.
            feedback: correct the budget by measured times; else the profile alone decides, and the same profile and
                seed give the same selections.
        """
        self.evaluator = evaluator
        self.timings = timings
        self.pace = pace
        self.watch = watch
        self.batches = batches
        self.solver = solver
        self.feedback = feedback
        self.costs_s: List[float] = []

    def __call__(
        self, step: int, probe: Iterable[Tuple[Any, Any]], previous: Optional[np.ndarray]
    ) -> Tuple[np.ndarray, Dict[str, Any]]:
        """Choose.

        Args:
            step: steps done.
            probe: minibatches to score the tensors on.
            previous: (N,) bool: the selection so far; kept where no tensor's update promises to lower the loss.

        Returns:
            The mask (N,) bool and what to log about it.

        Raises:
            UsageError: the first selection of a run finds no importance above zero.
        """
        spent_before = self._selecting_s()
        with self.watch.lap("importance"):
            importance = self.evaluator(itertools.islice(probe, self.batches))
        with self.watch.lap("selection"):
            rho = self.pace.rho
            if self.feedback:
                to_come = self.pace.selections_left(step) - 1
                upcoming = float(np.median(self.costs_s)) * to_come if self.costs_s else 0.0
                rho = self.pace.rho_for_selector(step, self.watch.training(), upcoming)
            selection = select(self.timings, importance, rho, solver=self.solver)
            mask = selection.mask
            kept = not mask.any()
            if kept:
                if previous is None:
                    raise UsageError(
                        "no tensor's update promises to lower the loss. Is the learning rate too high, or the model "
                        "trained already? Try a lower --learning-rate or more --importance-batches."
                    )
                mask = previous
            step_ms = self.timings.step_time(mask)
            self.pace.new_selection(step_ms)
        self.costs_s.append(self._selecting_s() - spent_before)
        return mask, {
            "step": step,
            "selected": np.flatnonzero(mask).tolist(),
            "rho_selector": rho,
            "predicted_ms": step_ms,
            "predicted_ratio": step_ms / self.timings.full_ms,
            "importance": importance.tolist(),
            "importance_selected": float(importance[mask].sum()),
            "importance_positive": float(importance[importance > 0].sum()),
            "kept_previous": bool(kept),
        }

    def _selecting_s(self) -> float:
        return self.watch.seconds["importance"] + self.watch.seconds["selection"] + self.watch.seconds["tracing"]
