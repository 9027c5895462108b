"""From the trace of a full training step to the time of every tensor's work."""

from typing import Dict, List

import numpy as np

from elastictrainer.profiler.attribution import (
    BACKWARD,
    FORWARD,
    NEVER,
    UPDATE,
    Charge,
    attribute,
    members_of,
)
from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.profiler.flops import flops_of
from elastictrainer.profiler.function_bodies import bodies_of, charge_calls
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.profiler.xplane import Trace, charge_to, wall_shares
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.keras_compat import name_of


def timings_from_trace(step: CompiledStep, trace: Trace, step_ms: float) -> TensorTimings:
    """Charge the traced ops to groups and put the groups on the scale of the untraced step.

    Args:
        step: a traced step that trains every tensor (`CompiledStep.trace`).
        trace: of a few runs of it.
        step_ms: its time untraced.
    """
    if step.graph is None:
        raise ValueError("trace the step first (CompiledStep.trace)")
    connected = np.array([g is not None for g in step.gradients])
    operations = step.graph.get_operations()
    # An op's events are charged by its name. Called functions first: their inner ops are no ops of the graph.
    names, charges = attribute(operations, step.loss, step.gradients, step.handles)
    bodies, parts = bodies_of(step.graph, charges, step.gradients)
    trace = charge_calls(trace, names, bodies)
    shares, outside = wall_shares(trace)
    names, charges = [*names, *parts], [*charges, *parts.values()]
    target = charge_to(trace.ops, names)
    traced_ms = float(np.median(shares.sum(axis=1) + outside))

    # Sum by op in each step first, then by group: the median of a group's time, not the sum of its ops'
    # medians.
    unattributed = shares[:, target < 0].sum(axis=1)
    per_step: Dict[Charge, np.ndarray] = {}
    for column in np.flatnonzero(target >= 0):
        charge = charges[target[column]]
        if charge.kind == NEVER:  # graph optimisation gave its name to something that runs
            charge = Charge(FORWARD, 0)
        per_step[charge] = per_step.get(charge, 0.0) + shares[:, column]
    unattributed_ms = float(np.median(unattributed))
    busy_ms = float(np.median(shares.sum(axis=1)))
    by_charge = {charge: float(np.median(times)) for charge, times in per_step.items()}
    always_ms = unattributed_ms + float(np.median(outside))

    nothing_attributed = not by_charge
    flops = flops_of(operations)
    if nothing_attributed:  # no op of the trace is known: share the step out by FLOPs
        for charge, count in zip(charges, np.maximum(flops, 1.0)):
            if charge.kind != NEVER:
                by_charge[charge] = by_charge.get(charge, 0.0) + count
        always_ms = 0.0
    # The groups' medians do not add up to the step's median, and tracing costs a little: one factor for all.
    scale = step_ms / (sum(by_charge.values()) + always_ms)
    by_charge = {charge: ms * scale for charge, ms in by_charge.items()}

    n = len(step.variables)
    # A group of one tensor is its dW work (or its update); a group of several is dy work that they share.
    dw = _sum_singles(by_charge, BACKWARD, n)
    update = _sum_singles(by_charge, UPDATE, n)
    estimated = np.full(n, nothing_attributed)
    # A time of zero would make a tensor free, and the selector would always take it.
    timeless = connected & (dw + update <= 0)
    if timeless.any():
        dw[timeless] = _estimate_dw(step, charges, flops, by_charge)[timeless]
        estimated |= timeless
    shared: Dict[int, float] = {}
    for charge, ms in by_charge.items():
        if charge.kind != FORWARD and charge.members & (charge.members - 1):  # more than one bit
            shared[charge.members] = shared.get(charge.members, 0.0) + ms
    forward = {c.members: ms for c, ms in by_charge.items() if c.kind == FORWARD}
    # Time of no known op, and around the ops, is paid whatever trains: that of the empty set.
    forward[0] = forward.get(0, 0.0) + always_ms * scale

    counted: Dict[int, float] = {}
    for charge, count in zip(charges, flops):
        if charge.kind != NEVER:
            members = 0 if charge.kind == FORWARD else charge.members
            counted[members] = counted.get(members, 0.0) + count

    coverage = 0.0 if nothing_attributed or busy_ms == 0 else 1 - unattributed_ms / busy_ms
    lost = {trace.ops[c]: float(np.median(shares[:, c])) for c in np.flatnonzero(target < 0)}
    return TensorTimings(
        names=tuple(name_of(v) for v in step.variables),
        shapes=tuple(tuple(int(d) for d in v.shape) for v in step.variables),
        dw=CostGroups.singletons(dw),
        dy=CostGroups.from_sets(n, [members_of(m) for m in shared], list(shared.values())),
        forward=CostGroups.from_sets(n, [members_of(m) for m in forward], list(forward.values())),
        t_update=update,
        connected=connected,
        estimated=estimated,
        flops=CostGroups.from_sets(n, [members_of(m) for m in counted], list(counted.values())),
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
    """Return (N,) ms of the groups of `kind` with one member."""
    times = np.zeros(n)
    for charge, ms in by_charge.items():
        if charge.kind == kind and charge.members and not charge.members & (charge.members - 1):
            times[charge.members.bit_length() - 1] += ms
    return times


def _estimate_dw(
    step: CompiledStep, charges: List[Charge], flops: np.ndarray, by_charge: Dict[Charge, float]
) -> np.ndarray:
    """Estimate (N,) ms for each tensor's weight gradient (dW) from its FLOPs, at the backward pass' measured
    rate.
    """
    n = len(step.variables)
    # An update reads and adds each element.
    count = np.array([2.0 * np.prod(v.shape) for v in step.variables])
    for charge, op_flops in zip(charges, flops):
        if charge.kind == BACKWARD and charge.members == charge.members & -charge.members:
            count[charge.members.bit_length() - 1] += op_flops
    backward_flops = sum(f for c, f in zip(charges, flops) if c.kind == BACKWARD)
    backward_ms = sum(ms for c, ms in by_charge.items() if c.kind == BACKWARD)
    rate = backward_ms / backward_flops if backward_flops else sum(by_charge.values()) / count.sum()
    return count * rate if n else count
