"""Profile the memory of a model's full step: what its graph says, and what was measured of it."""

import contextlib
from dataclasses import dataclass
from typing import Any, Iterator, Optional

import numpy as np
import tensorflow as tf

from elastictrainer.profiler.attribution import attribute, read_by_calls
from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.profiler.memory_groups import held_memory
from elastictrainer.profiler.step_memory import StepMemory
from elastictrainer.runs import resident
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.keras_compat.variables import tf_variables
from elastictrainer.steps.optimizers import slot_bytes

# Where it cannot be measured, as MobileNetV2 was on x86 with TensorFlow 2.15: of an op's node in a graph, and
# the memory of a step besides the tensors it holds.
_PER_OP, _ALLOWANCE = 9e3, 45e6


@dataclass
class Measured:
    """The memory of the first steps of a process, in bytes.

    Attributes:
        loaded: resident before them.
        peak: the most above `loaded`; None where the system does not tell.
        stays: resident above `loaded` after them: the graph, and parts that TensorFlow sets up once.
    """

    loaded: float
    peak: Optional[float] = None
    stays: float = 0.0


@contextlib.contextmanager
def measured_steps(copied: float) -> Iterator[Measured]:
    """Measure the memory of the block, which traces a step and runs it a few times.

    Args:
        copied: bytes that are there twice, or are slots, while the steps run; they do not count as theirs.
    """
    with resident.releasing_large_blocks():
        resident.release_memory()
        measured = Measured(resident.resident_bytes())
        counts = resident.reset_peak()
        yield measured
        peak = resident.peak_bytes() if counts else None
        resident.release_memory()
        measured.stays = max(0.0, resident.resident_bytes() - measured.loaded)
        if peak is not None:
            measured.peak = max(0.0, peak - measured.loaded - copied)


def variable_bytes(variables: Any) -> float:
    """Return the bytes of the values of variables."""
    distinct = {id(variable): variable for variable in tf_variables(variables)}
    return float(sum(v.dtype.size * np.prod(v.shape.as_list()) for v in distinct.values()))


def predicted(step: CompiledStep, batch: Any) -> Optional[StepMemory]:
    """Return the memory model of a full step that has not run yet; None on a GPU.

    Args:
        step: of all tensors; it is traced for that.
        batch: inputs and labels.
    """
    resident.release_memory()
    measured = Measured(resident.resident_bytes())
    step.trace(*batch)
    return step_memory(step, batch, measured)


def step_memory(step: CompiledStep, batch: Any, measured: Measured) -> Optional[StepMemory]:
    """Return the memory model of the full step; None on a GPU, whose memory is another.

    Args:
        step: traced, of all tensors.
        batch: inputs and labels.
        measured: of the step's first runs.
    """
    if tf.config.list_physical_devices("GPU") or step.graph is None:
        return None
    operations, n = step.graph.get_operations(), len(step.variables)
    examples = int(tf.nest.flatten(batch[0])[0].shape[0])
    _, charges = attribute(operations, step.loss, step.gradients, step.handles)
    calls = read_by_calls(step.graph, charges, step.gradients)
    found = held_memory(operations, charges, examples, calls)
    counted, most = sum(found.ops.values()), max(found.forward, sum(found.sizes.values()))
    per_op, allowance = _PER_OP, _ALLOWANCE
    if measured.peak is not None:
        # Such that peak = graph + max(forward, held) + allowance: the model gives the measured full step.
        # Some of what stays held the step's results before: malloc does not give all of it back.
        stays = min(measured.stays, max(0.0, measured.peak - most))
        per_op, allowance = stays / counted, max(0.0, measured.peak - stays - most)
    ops = {members: count for members, count in found.ops.items() if members}
    return StepMemory(
        CostGroups.from_bits(n, found.sizes),
        CostGroups.from_bits(n, ops).scaled(per_op),
        always=per_op * found.ops.get(0, 0) + allowance,
        forward=found.forward,
        loaded=measured.loaded,
        batch=examples,
        measured=measured.peak,
        unknown=found.unknown,
        slots=CostGroups.singletons(slot_bytes(step.optimizer, step.variables)),
    )
