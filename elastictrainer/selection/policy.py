"""The policy of a run: which tensors train in its next step. No TensorFlow."""

from typing import Any, Callable, ContextManager, Dict, List, Optional, Protocol

import numpy as np
from numpy.typing import NDArray

from elastictrainer.profiler.timings import TensorTimings

FULL = "full"  # kinds of steps: one that trains every tensor,
PLAIN = "plain"  # a selection, from images to update,
RECORDING = "recording"  # the same, which also records what is frozen,
REPLAY = "replay"  # and one that begins with what was recorded

Log = Callable[[Dict[str, Any]], None]  # takes the record of a selection or of an interval


def no_log(record: Dict[str, Any]) -> None:
    """Drop the record."""


class Policy(Protocol):
    """Decides before each step which tensors train, and is told afterwards how long the step took."""

    @property
    def mask(self) -> Optional[NDArray[np.bool_]]:
        """(N,) bool, in the order of `model.trainable_weights`: the selection; None before the first."""

    @property
    def timings(self) -> Optional[TensorTimings]:
        """The model's profile, the renewed one where it was renewed; None: nothing is predicted."""

    @property
    def selects(self) -> bool:
        """Whether the mask changes while the run goes on."""

    @property
    def masks(self) -> List[NDArray[np.bool_]]:
        """Every selection so far, corrections included."""

    @property
    def selections(self) -> int:
        """How many selections were made by new importances."""

    @property
    def corrections(self) -> int:
        """How many more were made by the same importances, because measured and requested time differ."""

    @property
    def interval(self) -> int:
        """Its number: what was recorded in one interval is of no use in the next."""

    @property
    def epochs(self) -> float:
        """Over how many epochs the interval records and replays its frozen work; 1: it does not."""

    def next_mask(self, step: int, epoch: int, batch: int) -> NDArray[np.bool_]:
        """(N,) bool: what trains in step number `step`, which is number `batch` of its epoch (all from 0)."""

    def recording_begins(self, trainable: NDArray[np.bool_]) -> None:
        """Frozen work is recorded from here on; until the interval ends only `trainable` (N,) may train."""

    def without_recording(self, step: int) -> NDArray[np.bool_]:
        """(N,) bool: what trains in step number `step` where the interval cannot be recorded."""

    def stepping(self) -> ContextManager[None]:
        """What the step runs in: a trace while one is made."""

    def step_taken(self, step: int, ms: float, minibatch: Any, compiled: bool, kind: str) -> None:
        """Take note of a step.

        Args:
            step: its number.
            ms: wall-clock time, input pipeline included.
            minibatch: what it trained on; None: examples recorded before.
            compiled: its graph was built in it, so that `ms` is no step time.
            kind: FULL, PLAIN, RECORDING or REPLAY.
        """

    def full_step_ms(self) -> Optional[float]:
        """What a step that trains every tensor takes now; None before the first."""

    def full_training_ms(self, steps: int) -> Optional[float]:
        """What the first `steps` steps would have taken, had all been full; None before a full one."""

    def state(self) -> Dict[str, Any]:
        """What `restore` needs, as JSON values."""

    def restore(self, state: Dict[str, Any]) -> None:
        """Continue from `state`, in a policy made with the same arguments and the latest profile."""

    def close(self) -> None:
        """Release what is held, such as a trace in progress."""


class Renewal(Protocol):
    """Makes a new profile from full steps of the run."""

    def begin(self) -> None:
        """Start a trace."""

    def step(self) -> ContextManager[None]:
        """Trace the full step that runs inside."""

    def finish(self, timings: TensorTimings, full_ms: float, step: int, minibatch: Any) -> TensorTimings:
        """End the trace after `step` steps, and make a profile of it; `timings` is the profile so far."""

    def abandon(self) -> None:
        """End the trace, and drop it."""
