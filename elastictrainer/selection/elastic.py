"""The tensors that train under a scheme which selects: at every interval anew, corrected in between."""

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy as np

from elastictrainer.profiler.capture import Tracing
from elastictrainer.profiler.charging import renewed
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.selection.budget import Pace
from elastictrainer.selection.importance import ImportanceEvaluator
from elastictrainer.selection.reselection import Reselector
from elastictrainer.selection.schedule import Plan
from elastictrainer.selection.settings import SelectionSettings
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import StepCache
from elastictrainer.training.stopwatch import PROFILING, Stopwatch


class SelectedTensors:
    """The tensors of a scheme that selects: at every interval anew, corrected in between by measured times.

    Attributes:
        mask: (N,) bool: the latest selection; None before the first.
        masks: every selection so far, corrections included.
        corrections: how many of them were made within an interval.
        pace: what the steps cost.
    """

    TRACED = 4  # full steps that a renewed profile is made from

    def __init__(
        self,
        settings: SelectionSettings,
        metric: str,
        timings: TensorTimings,
        plan: Plan,
        steps: StepCache,
        watch: Stopwatch,
        probe: Callable[[int], Iterator[Tuple[Any, Any]]],
        log: Callable[[Dict[str, Any]], None],
        say: Callable[[str], None],
        keep_profile: Callable[[TensorTimings], None] = lambda timings: None,
    ):
        """
        Args:
            settings: how to select.
            metric: of the importance.
            timings: the profile.
            plan: when.
            steps: the compiled steps, for their objective and optimizer, and the full step's graph.
            watch: its laps account for selecting.
            probe: from a step's number to minibatches to score the tensors on.
            log: takes the record of each selection.
            say: takes a line for the user.
            keep_profile: takes a renewed profile.
        """
        self.plan, self.steps = plan, steps
        self.pace = Pace(settings.rho, timings, plan)
        evaluator = ImportanceEvaluator(steps.objective, steps.optimizer, metric, steps)
        self.reselect = Reselector(
            evaluator, self.pace, watch, settings.importance_batches, settings.solver, settings.feedback
        )
        self.mask: Optional[np.ndarray] = None
        self.masks: List[np.ndarray] = []
        self.corrections = 0
        self._everything = np.ones(len(timings), bool)
        self._probe, self._reprofile = probe, settings.reprofile
        self._log, self._say, self._keep_profile = log, say, keep_profile
        self._was_full = False
        self._renew = False  # the profile, as soon as full steps come
        self._may_renew = True  # once an interval
        self._compile_s = 0.0
        self._tracing: Optional[Tracing] = None
        self._example: Any = None

    timings = property(lambda self: self.pace.timings)

    def next_step(self, step: int, epoch: int, batch: int) -> np.ndarray:
        """(N,) bool: what trains in step number `step`, which is number `batch` of its epoch (all from 0)."""
        selecting = self.plan.selection_due(step)
        if self._tracing is not None and (selecting or not self.plan.burst_left(step)):
            self._renew_profile(step, choose_again=not selecting)
        if selecting:
            self._may_renew = True
            self.reselect.score(self._probe(step))
            self._choose(step, "selected")
        full = self.mask is None or self.plan.full_step_due(step)
        if not full:
            if self._was_full:
                self._forget_resting()
            elif self.reselect.feedback and self.pace.check_due():
                self._check(step)
        elif self._was_full and self._wants_trace(step):
            self._tracing = Tracing()
        self._was_full = full
        return self._everything if full else self.mask

    @contextlib.contextmanager
    def stepping(self) -> Iterator[None]:
        """What a step runs in: a trace, where one is being made."""
        with self._tracing.step() if self._tracing is not None else contextlib.nullcontext():
            yield

    def took(self, step: int, ms: float, example: Tuple[Any, Any], new: bool) -> None:
        """Step number `step`, on a minibatch like `example`, took `ms`; `new`: its graph was built in it."""
        self._example = example
        if new:
            self._compile_s = 1e-3 * ms
        elif self._tracing is None:
            self.pace.record(step, ms, self._was_full)

    def full_step_ms(self) -> Optional[float]:
        """What a full step takes now; None before the first."""
        return self.pace.full_step_ms()

    def full_training_ms(self, steps: int) -> Optional[float]:
        """What the steps of full training would have taken up to step number `steps`."""
        return self.pace.full_training_ms(steps)

    def state(self) -> Dict[str, Any]:
        """What `restore` needs, as JSON values."""
        return {
            "pace": self.pace.state(),
            "corrections": self.corrections,
            "was_full": self._was_full,
            "renew": self._renew,
            "may_renew": self._may_renew,
            "compile_s": self._compile_s,
        }

    def restore(self, state: Dict[str, Any], selections: List[Dict[str, Any]]) -> None:
        """Go on from `state` and the logged `selections`."""
        self.pace.restore(state["pace"])
        self.corrections = state["corrections"]
        self._was_full, self._compile_s = state["was_full"], state["compile_s"]
        self._renew, self._may_renew = state["renew"], state["may_renew"]
        for record in selections:
            self.masks.append(np.isin(np.arange(len(self._everything)), record["selected"]))
        if selections:
            self.mask = self.masks[-1]
            self.reselect.importance = np.array(selections[-1]["importance"])

    def close(self) -> None:
        """Stop a trace that is being made."""
        if self._tracing is not None:
            self._tracing.abandon()
            self._tracing = None

    def _choose(self, step: int, what: str) -> None:
        """Choose by the latest scores, and train that from here on."""
        mask, record = self.reselect.choose(step, self.mask)
        corrected = what != "selected"
        if corrected and (mask == self.mask).all():
            return
        self.pace.new_selection(record["predicted_ratio"], corrected)
        self.corrections += corrected
        self.mask = mask
        self.masks.append(mask)
        if corrected:
            self._forget_resting()
        self._log({**record, "corrected": corrected})
        remark = ""
        if record["over_budget"]:
            remark = f", over the {record['rho_selector']:.3f} to be had: nothing of importance costs less"
        elif record["kept_previous"]:
            remark = ", kept from before: no tensor's update promises to lower the loss"
        self._say(
            f"{what} {len(record['selected'])} of {len(mask)} tensors, predicted {record['predicted_ratio']:.3f} of a full "
            f"step, with {100 * record['importance_selected'] / max(record['importance_positive'], 1e-30):.0f} % of the "
            f"importance{remark}"
        )

    def _check(self, step: int) -> None:
        """Correct the selection where its time is off, and ask for a new profile where the old one is."""
        pays, apart = self.pace.check(step, self.reselect.target_ratio(step), self._compile_s)
        if apart and self._may_renew and self._reprofile != "never":
            self._renew, self._may_renew = True, False
        if pays:
            measured = self.pace.measured_ratio()
            self._choose(step, f"measured {measured:.3f} of a full step; corrected to")

    def _forget_resting(self) -> None:
        model, optimizer = self.steps.objective.model, self.steps.optimizer
        optimizers.forget_momentum(
            optimizer, [v for v, m in zip(model.trainable_variables, self.mask) if not m]
        )

    def _wants_trace(self, step: int) -> bool:
        """Whether a trace is to begin with full step number `step`, the graph of the full step being warm."""
        left = self.plan.burst_left(step)
        always = self._reprofile == "always" and self.plan.selection_due(step + left)
        return self._tracing is None and (self._renew or always) and left <= self.TRACED

    def _renew_profile(self, step: int, choose_again: bool) -> None:
        """Make a profile of the full steps just traced, and choose by it."""
        with self.reselect.watch.lap(PROFILING):
            tracing, self._tracing, self._renew = self._tracing, None, False
            full_step = self.steps.get(self._everything)
            full_step.trace(*self._example)
            self.pace.new_profile(
                renewed(self.timings, full_step, tracing.finish(), self.pace.full_step_ms(), step)
            )
            self._keep_profile(self.timings)
        self._say(
            f"the profile was renewed: full step {self.timings.full_ms:.1f} ms, rho_min {self.timings.rho_min:.3f}"
        )
        if choose_again and self.mask is not None:
            self._choose(step, "by the new profile, corrected to")
