"""The limit of a run's memory, as it is asked for, and before there is a profile to divide it by."""

from typing import Any, Optional, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.experiment.settings import parse_bytes
from elastictrainer.profiler.profile import Profile
from elastictrainer.profiler.profile_model import traced_memory
from elastictrainer.runs import resident
from elastictrainer.runs.log import LOG
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.objective import Objective, classification_loss
from elastictrainer.training.memory import MemoryLimit, weight_bytes

_AUTO = 0.75  # of what is free, this process included


def limit(asked: Optional[str]) -> Optional[float]:
    """Return the bytes that a run may take by --memory; None: as many as it takes. UsageError on a GPU."""
    if asked is None:
        return None
    if tf.config.list_physical_devices("GPU"):
        raise UsageError(f"--memory {asked}: a step on a GPU takes the GPU's memory. Leave it out.")
    return _AUTO * _free_bytes() if asked == "auto" else parse_bytes(asked)


def note_shortage(profile: Optional[Profile]) -> None:
    """Log a note if the full steps of a run without a limit do not fit into what is free."""
    if profile is None or profile.memory is None:
        return
    free = _free_bytes()
    needed = resident.resident_bytes() + profile.memory.step_bytes(profile.connected)
    if needed > free:
        LOG.info(
            f"note: full steps take {needed / 1e9:.2f} GB, and {free / 1e9:.2f} GB are free. "
            f"--memory {int(_AUTO * free / 1e7) * 1e7 / 1e9:g}GB keeps the run within that."
        )


def before_profile(
    limit: float, model: tf.keras.Model, optimizer: Any, batch: Tuple[Any, Any]
) -> Optional[MemoryLimit]:
    """Return what fits into a process of `limit` bytes, by a full step that is traced but never runs.

    None on a GPU.

    Args:
        limit: bytes.
        model, optimizer: of the run.
        batch: inputs and labels.
    """
    variables = model.trainable_variables
    optimizers.build(optimizer, variables)
    step = CompiledStep(Objective(model, classification_loss()), optimizer, variables)
    memory = traced_memory(step, batch)
    if memory is None:
        return None
    connected = np.array([gradient is not None for gradient in step.gradients])
    return MemoryLimit(limit, memory, connected, weight_bytes(v.shape for v in variables))


def _free_bytes() -> float:
    """Return the bytes that this process may have, what it has already included."""
    return resident.available_bytes() + resident.resident_bytes()
