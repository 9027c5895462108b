"""The clock that a policy needs: seconds by lap. No TensorFlow."""

from typing import ContextManager, Protocol

BUILDING = "building"  # making the variables of model, optimizer and metrics, before the first step
FULL_TRACING = "full_tracing"  # building the graph of the full step, its first run included
TRACING = "tracing"  # building the graph of a selection, its first run included
IMPORTANCE = "importance"  # scoring the tensors
TIMING = "timing"  # full steps that leave no trace, which tell what full training would take
SELECTION = "selection"  # choosing among them
HEAD = "head"  # features of the images, and solving the last layer on them
LOOP = "loop"  # around the steps: waiting for the first minibatch of an epoch, the progress shown
CHECKPOINT = "checkpoint"

SHARED = (LOOP, CHECKPOINT, BUILDING, FULL_TRACING)  # full training takes it as well, besides its steps


class Clock(Protocol):
    """Seconds of a run by lap; the training stopwatch is one."""

    def lap(self, name: str) -> ContextManager[None]:
        """Charge the block to `name`."""

    def of(self, *names: str) -> float:
        """Return seconds of these laps so far."""

    def training(self) -> float:
        """Return seconds of training so far: all laps but validation and calibration."""
