"""Profile a model: one full training step, traced and charged to its tensors."""

import dataclasses
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer import environment, optimizers
from elastictrainer.errors import UsageError
from elastictrainer.objective import Objective
from elastictrainer.profiler.attribution import BACKWARD, FORWARD, NEVER, UPDATE, Charge, attribute, members_of
from elastictrainer.profiler.calls import bodies_of, charge_calls
from elastictrainer.profiler.capture import capture
from elastictrainer.profiler.flops import flops_of
from elastictrainer.profiler.membership import Membership
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.profiler.validation import ratio_to_full, validate_timings
from elastictrainer.profiler.xplane import Trace, charge_to, wall_shares
from elastictrainer.state import restored
from elastictrainer.steps import StepCache, TrainStep


def profile_model(
    model: tf.Module,
    loss: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    batch: Tuple[Any, Any],
    optimizer: Any = None,
    *,
    metrics: Tuple[Any, ...] = (),
    warmup: int = 4,
    steps: int = 8,
    validate: int = 0,
    seed: int = 0,
    metadata: Optional[Dict[str, Any]] = None,
) -> TensorTimings:
    """Measure how long each trainable tensor's work takes on this device (paper Sec. 3.1 and 5.1).

    Works for any Keras model, and for a plain tf.Module that is called with inputs: ops are charged by what depends on them in the graph, never by layer names. The model
    and the optimizer are left as they were.

    Args:
        model: N trainable tensors.
        loss: takes labels and outputs, returns a scalar.
        batch: inputs and labels of the size to train with.
        optimizer: the one to train with; None: the paper's SGD.
        metrics: Keras metrics that the training step updates.
        warmup: steps before anything is measured.
        steps: traced steps; times are medians over them.
        validate: how many random selections to measure against the prediction.
        seed: of the random selections.
        metadata: what to say about model and data in the profile.

    Raises:
        UsageError: the model has no trainable tensor, the loss depends on none, or XLA hides the ops.
    """
    variables = model.trainable_variables
    if not variables:
        raise UsageError("the model has no trainable tensor: nothing to profile. Set `trainable = True` on a layer.")
    optimizer = optimizers.make("sgd") if optimizer is None else optimizer
    optimizers.build(optimizer, variables)
    objective = Objective(model, loss)
    step = TrainStep(objective, optimizer, variables, metrics)
    step.trace(*batch)
    _refuse_compiled(step.graph)
    connected = np.array([g is not None for g in step.gradients])
    if not connected.any():
        raise UsageError("the loss depends on no trainable tensor of the model: there is no gradient to profile.")
    with restored([*step.state(), *variables, *optimizers.variables_of(optimizer)]):
        trace, untraced = _quietest_capture(step, batch, warmup, steps)
        timings = _timings_from_trace(step, trace, untraced, connected)
        timings.metadata = {
            **(metadata or {}),
            **timings.metadata,
            **environment.describe(),
            "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "warmup_steps": warmup,
            "traced_steps": steps,
        }
        cache = StepCache(objective, optimizer, metrics, size=2)
        # A new object: the derived times of the old one are computed already, without the saving.
        timings = dataclasses.replace(timings, frozen_saving=_frozen_saving(timings, cache, batch))
        if validate:
            timings.validation = validate_timings(timings, objective, optimizer, batch, metrics, validate, seed)
    return timings


def _refuse_compiled(graph: tf.Graph) -> None:
    """UsageError where XLA would make one op of many, so that their time cannot be told apart."""
    if tf.config.optimizer.get_jit():
        raise UsageError(
            "TensorFlow's auto-clustering is on (tf.config.optimizer.set_jit): it fuses ops so that no tensor's time can be "
            "told apart. Switch it off: set_jit('')."
        )
    compiled = [f.signature.name for f in graph.as_graph_def().library.function if f.attr["_XlaMustCompile"].b]
    if compiled:
        raise UsageError(
            f"the model or its loss is compiled by XLA in part ({compiled[0]}): ops in there cannot be told apart. "
            "Remove jit_compile=True."
        )


def _quietest_capture(step: TrainStep, batch: Tuple[Any, Any], warmup: int, steps: int) -> Tuple[Trace, np.ndarray]:
    """Capture until two captures agree within 3 %, at most four times; the fastest: other work only ever adds time."""
    captures = [capture(step, batch, warmup, steps)]
    while len(captures) < 4:
        captures.append(capture(step, batch, 1, steps))
        medians = sorted(float(np.median(untraced)) for _, untraced in captures)
        if medians[1] <= 1.03 * medians[0]:
            break
    return min(captures, key=lambda captured: float(np.median(captured[1])))


def _frozen_saving(timings: TensorTimings, cache: StepCache, batch: Tuple[Any, Any]) -> float:
    """How much faster forward work is while nothing it depends on is trained, from the cheapest selection's step.

    TensorFlow fuses convolution, normalisation and activation, and forgets activations, where no gradient wants what
    lies between: the same op is cheaper in a graph that does not train what is below it.
    """
    cheapest = np.zeros(len(timings), bool)
    cheapest[np.argmin(timings.alone_ms)] = True
    frozen_ms = timings.forward.ms[timings.forward.filled() & ~timings.forward.touched(cheapest)].sum()
    full_ms = timings.step_time(timings.connected)
    saved_ms = timings.step_time(cheapest) - ratio_to_full(cache, cheapest, timings.connected, batch) * full_ms
    return float(np.clip(saved_ms / frozen_ms, 0.0, 0.9)) if frozen_ms > 0 else 0.0


def _timings_from_trace(step: TrainStep, trace: Any, untraced: np.ndarray, connected: np.ndarray) -> TensorTimings:
    """Charge the traced ops to groups and put the groups on the scale of the untraced step."""
    operations = step.graph.get_operations()
    names, charges = attribute(operations, step.loss, step.gradients, step.handles)
    trace = charge_calls(trace, names, bodies_of(step.graph))
    shares, outside = wall_shares(trace)
    target = charge_to(trace.ops, names)
    step_ms = float(np.median(untraced))
    traced_ms = float(np.median(shares.sum(axis=1) + outside))

    # Sum by op in each step first, then by group: the median of a group's time, not the sum of its ops' medians.
    per_step: Dict[Optional[Charge], np.ndarray] = {None: np.zeros(len(shares))}
    for column, k in enumerate(target):
        charge = charges[k] if k >= 0 else None
        if charge is not None and charge.kind == NEVER:  # graph optimisation gave its name to something that runs
            charge = Charge(FORWARD, 0)
        per_step[charge] = per_step.get(charge, 0.0) + shares[:, column]
    unattributed_ms = float(np.median(per_step.pop(None)))
    busy_ms = float(np.median(shares.sum(axis=1)))
    by_charge = {charge: float(np.median(times)) for charge, times in per_step.items()}
    always_ms = unattributed_ms + float(np.median(outside))

    nothing_attributed = not by_charge
    flops = flops_of(operations)
    if nothing_attributed:
        for charge, count in zip(charges, np.maximum(flops, 1.0)):
            if charge.kind != NEVER:
                by_charge[charge] = by_charge.get(charge, 0.0) + count
        always_ms = 0.0
    # The groups' medians do not add up to the step's median, and tracing costs a little: one factor for all.
    scale = step_ms / (sum(by_charge.values()) + always_ms)
    by_charge = {charge: ms * scale for charge, ms in by_charge.items()}

    n = len(step.variables)
    own = _sum_singles(by_charge, BACKWARD, n)
    update = _sum_singles(by_charge, UPDATE, n)
    estimated = np.full(n, nothing_attributed)
    timeless = connected & (own + update <= 0)
    if timeless.any():
        own[timeless] = _estimate_own(step, charges, flops, by_charge)[timeless]
        estimated |= timeless
    shared: Dict[int, float] = {}
    for charge, ms in by_charge.items():
        if charge.kind != FORWARD and charge.members & (charge.members - 1):
            shared[charge.members] = shared.get(charge.members, 0.0) + ms
    forward = {c.members: ms for c, ms in by_charge.items() if c.kind == FORWARD}
    forward[0] = forward.get(0, 0.0) + always_ms * scale

    counted: Dict[int, float] = {}
    for charge, count in zip(charges, flops):
        if charge.kind != NEVER:
            members = 0 if charge.kind == FORWARD else charge.members
            counted[members] = counted.get(members, 0.0) + count

    coverage = 0.0 if nothing_attributed or busy_ms == 0 else 1 - unattributed_ms / busy_ms
    lost = {trace.ops[c]: float(np.median(shares[:, c])) for c in np.flatnonzero(target < 0)}
    return TensorTimings(
        names=tuple(v.name for v in step.variables),
        shapes=tuple(tuple(int(d) for d in v.shape) for v in step.variables),
        dw=Membership.singletons(own),
        dy=Membership.from_sets(n, [members_of(m) for m in shared], list(shared.values())),
        forward=Membership.from_sets(n, [members_of(m) for m in forward], list(forward.values())),
        t_update=update,
        connected=connected,
        estimated=estimated,
        flops=Membership.from_sets(n, [members_of(m) for m in counted], list(counted.values())),
        metadata={
            "step_ms": step_ms,
            "traced_step_ms": traced_ms,
            "coverage": coverage,
            "unattributed": [
                {"op": op, "ms": ms} for op, ms in sorted(lost.items(), key=lambda item: -item[1])[:10]
            ],
        },
    )


def _sum_singles(by_charge: Dict[Charge, float], kind: str, n: int) -> np.ndarray:
    """(N,) ms of the groups of `kind` with one member."""
    times = np.zeros(n)
    for charge, ms in by_charge.items():
        if charge.kind == kind and charge.members and not charge.members & (charge.members - 1):
            times[charge.members.bit_length() - 1] += ms
    return times


def _estimate_own(
    step: TrainStep, charges: List[Charge], flops: np.ndarray, by_charge: Dict[Charge, float]
) -> np.ndarray:
    """(N,) ms for each tensor's own work from its FLOPs, at the measured rate of the backward pass."""
    n = len(step.variables)
    count = np.array([2.0 * np.prod(v.shape) for v in step.variables])  # an update reads and adds each element
    for charge, op_flops in zip(charges, flops):
        if charge.kind == BACKWARD and charge.members == charge.members & -charge.members:
            count[charge.members.bit_length() - 1] += op_flops
    backward_flops = sum(f for c, f in zip(charges, flops) if c.kind == BACKWARD)
    backward_ms = sum(ms for c, ms in by_charge.items() if c.kind == BACKWARD)
    rate = backward_ms / backward_flops if backward_flops else sum(by_charge.values()) / count.sum()
    return count * rate if n else count
