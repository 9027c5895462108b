"""One selection during training: score the tensors, set the budget, choose."""

import itertools
from typing import Any, Dict, Iterable, Optional, Tuple

import numpy as np

from elastictrainer.errors import UsageError
from elastictrainer.selection.budget import Pace
from elastictrainer.selection.importance import ImportanceEvaluator
from elastictrainer.selection.selector import select
from elastictrainer.training.stopwatch import IMPORTANCE, RECURRING, SELECTING, SELECTION, SHARED, Stopwatch


class Reselector:
    """Chooses the tensors of the next interval, and again within it where measured times ask for that.

    Attributes:
        importance: (N,) the latest; None before the first selection.
    """

    def __init__(
        self,
        evaluator: ImportanceEvaluator,
        pace: Pace,
        watch: Stopwatch,
        batches: int,
        solver: str,
        feedback: bool,
    ):
        """
        Args:
            evaluator: scores the tensors.
            pace: what this run's steps have cost so far, and the profile.
            watch: its laps IMPORTANCE and SELECTION are used.
            batches: probe minibatches.
            solver: see `select`.
            feedback: correct the budget by measured times; else the profile alone decides, and the same profile and
                seed give the same selections.
        """
        self.evaluator = evaluator
        self.pace = pace
        self.watch = watch
        self.batches = batches
        self.solver = solver
        self.feedback = feedback
        self.importance: Optional[np.ndarray] = None

    def score(self, probe: Iterable[Tuple[Any, Any]]) -> None:
        """Score the tensors on minibatches of `probe`."""
        with self.watch.lap(IMPORTANCE):
            self.importance = self.evaluator(itertools.islice(probe, self.batches))

    def target_ratio(self, step: int) -> float:
        """What a step may take of a full one from `step` on; see `Pace.target_ratio`."""
        if not self.feedback:
            return self.pace.rho
        plan = self.pace.plan
        made = len(plan.selection_steps) - plan.selections_left(step)
        to_come = plan.selections_left(step) - plan.selection_due(step)
        cost_s = self.watch.of(*SELECTING) / max(
            1, made
        )  # the first selection's scores tell what another may cost
        begun = plan.epochs_begun(step)
        recurring_s = self.watch.of(*RECURRING) / begun * (plan.epochs - begun)
        return self.pace.target_ratio(
            step,
            self.watch.training(),
            upcoming_s=cost_s * to_come + recurring_s,
            shared_s=self.watch.of(*SHARED) + recurring_s,
        )

    def choose(self, step: int, previous: Optional[np.ndarray]) -> Tuple[np.ndarray, Dict[str, Any]]:
        """Choose by the latest scores.

        Where nothing of importance fits into the time, the tensor of importance that costs least is trained.

        Args:
            step: steps done.
            previous: (N,) bool: the selection so far; kept where no tensor's update promises to lower the loss.

        Returns:
            The mask (N,) bool and what to log about it.

        Raises:
            UsageError: the first selection of a run finds no importance above zero.
        """
        with self.watch.lap(SELECTION):
            timings, importance = self.pace.timings, self.importance
            target = self.target_ratio(step)
            rho = self.pace.rho_for_selector(target) if self.feedback else target
            mask = select(timings, importance, rho, solver=self.solver).mask
            useful = (importance > 0) & timings.connected
            over_budget = useful.any() and not mask.any()
            if over_budget:
                mask = np.arange(len(timings)) == np.argmin(np.where(useful, timings.alone_ms, np.inf))
            kept = not useful.any()
            if kept:
                if previous is None:
                    raise UsageError(
                        "no tensor's update promises to lower the loss. Is the learning rate too high, or the model "
                        "trained already? Try a lower --learning-rate or more --importance-batches."
                    )
                mask = previous
            step_ms = timings.step_time(mask)
        return mask, {
            "step": step,
            "selected": np.flatnonzero(mask).tolist(),
            "rho_target": target,
            "rho_selector": rho,
            "predicted_ms": step_ms,
            "predicted_ratio": step_ms / timings.full_ms,
            "importance": importance.tolist(),
            "importance_selected": float(importance[mask].sum()),
            "importance_positive": float(importance[importance > 0].sum()),
            "kept_previous": bool(kept),
            "over_budget": bool(over_budget),
        }
