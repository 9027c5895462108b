"""From the trace of a full training step to the time of every tensor's work."""

from typing import Any, Dict, Iterable, List, NamedTuple, Tuple

import numpy as np

from elastictrainer.profiler.attribution import BACKWARD, FORWARD, NEVER, UPDATE, Charge, attribute
from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.profiler.flops import flops_of
from elastictrainer.profiler.function_bodies import bodies_of, charge_calls
from elastictrainer.profiler.profile import Profile
from elastictrainer.profiler.xplane import Trace, charge_to, wall_shares
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.keras_compat.variables import name_of


class _Times(NamedTuple):
    """The ms of a traced step, medians over the steps that were traced.

    Attributes:
        by_charge: of the graph's ops, by what they are charged to.
        always: of other ops, and of the step before its first op and after its last one.
        metadata: for the profile.
    """

    by_charge: Dict[Charge, float]
    always: float
    metadata: Dict[str, Any]


def profile_from_trace(step: CompiledStep, trace: Trace, step_ms: float) -> Profile:
    """Charge the traced ops to groups and put the groups on the scale of the untraced step.

    Args:
        step: a traced step that trains every tensor (`CompiledStep.trace`).
        trace: of a few runs of it.
        step_ms: its time untraced.
    """
    if step.graph is None:
        raise ValueError("trace the step first (CompiledStep.trace)")
    n = len(step.variables)
    operations = step.graph.get_operations()
    names, charges = attribute(operations, step.loss, step.gradients, step.handles)
    flops = _sums((c, count) for c, count in zip(charges, flops_of(operations)) if c.kind != NEVER)
    by_charge, always_ms, metadata = _times(step, trace, names, charges)
    estimated = np.full(n, not by_charge)
    if not by_charge:  # no op of the trace is known: share the step out by FLOPs
        by_charge, always_ms = {charge: max(count, 1.0) for charge, count in flops.items()}, 0.0
    # The groups' medians do not add up to the step's median, and tracing costs a little: one factor for all.
    scale = step_ms / (sum(by_charge.values()) + always_ms)
    by_charge = {charge: ms * scale for charge, ms in by_charge.items()}

    # A group of one tensor is its dW work (or its update); a group of several is dy work that they share.
    dw, update = _of_single_tensors(by_charge, BACKWARD, n), _of_single_tensors(by_charge, UPDATE, n)
    backward = [(c.members, ms) for c, ms in by_charge.items() if c.kind in (BACKWARD, UPDATE)]
    shared = _sums((members, ms) for members, ms in backward if members & (members - 1))  # more than one bit
    # What nothing needs has time where graph optimisation gave its name to something that runs.
    forward = _sums((c.members, ms) for c, ms in by_charge.items() if c.kind in (FORWARD, NEVER))
    # Time of no known op, and around the ops, is paid whatever trains: that of the empty set.
    forward[0] = forward.get(0, 0.0) + always_ms * scale
    connected = np.array([g is not None for g in step.gradients])
    # A time of zero would make a tensor free, and the selector would always take it.
    timeless = connected & (dw + update <= 0)
    if timeless.any():
        dw[timeless] = _estimated_dw(step, flops, by_charge)[timeless]
        estimated |= timeless
    counted = _sums((0 if c.kind == FORWARD else c.members, count) for c, count in flops.items())
    return Profile(
        names=tuple(name_of(v) for v in step.variables),
        shapes=tuple(tuple(int(d) for d in v.shape) for v in step.variables),
        dw=CostGroups.singletons(dw),
        dy=CostGroups.from_bits(n, shared),
        forward=CostGroups.from_bits(n, forward),
        t_update=update,
        connected=connected,
        estimated=estimated,
        flops=CostGroups.from_bits(n, counted),
        metadata={"step_ms": step_ms, **metadata},
    )


def _times(step: CompiledStep, trace: Trace, names: List[str], charges: List[Charge]) -> _Times:
    """Add up the traced time by `charges`, those of the graph's ops called `names`."""
    # An op's events are charged by its name. Called functions first: their inner ops are no ops of the graph.
    bodies, parts = bodies_of(step.graph, charges, step.gradients)
    trace = charge_calls(trace, names, bodies)
    shares, outside = wall_shares(trace)
    target = charge_to(trace.ops, [*names, *parts])
    charges = [*charges, *parts.values()]
    known = target >= 0

    # Sum by op in each step first, then by group: the median of a group's time, not the sum of its ops'
    # medians.
    per_step = _sums((charges[target[op]], shares[:, op]) for op in np.flatnonzero(known))
    by_charge = {charge: float(np.median(times)) for charge, times in per_step.items()}
    lost_ms = float(np.median(shares[:, ~known].sum(axis=1)))
    busy_ms = float(np.median(shares.sum(axis=1)))
    lost = {trace.ops[op]: float(np.median(shares[:, op])) for op in np.flatnonzero(~known)}
    most_lost = sorted(lost.items(), key=lambda item: -item[1])[:10]
    metadata = {
        "traced_step_ms": float(np.median(shares.sum(axis=1) + outside)),
        "coverage": 1 - lost_ms / busy_ms if by_charge and busy_ms else 0.0,
        "unattributed": [{"op": op, "ms": ms} for op, ms in most_lost],
    }
    return _Times(by_charge, lost_ms + float(np.median(outside)), metadata)


def _sums(amounts: Iterable[Tuple[Any, Any]]) -> Dict[Any, Any]:
    """Add up amounts by their keys."""
    sums: Dict[Any, Any] = {}
    for key, amount in amounts:
        sums[key] = sums.get(key, 0.0) + amount
    return sums


def _of_single_tensors(by_charge: Dict[Charge, float], kind: str, n: int) -> np.ndarray:
    """Return (N,): the amounts of `kind` that are for one tensor alone."""
    return np.array([by_charge.get(Charge(kind, 1 << i), 0.0) for i in range(n)])


def _estimated_dw(
    step: CompiledStep, flops: Dict[Charge, float], by_charge: Dict[Charge, float]
) -> np.ndarray:
    """Estimate (N,) ms for each tensor's weight gradient (dW) from its FLOPs, at the backward pass' measured
    rate.
    """
    # An update reads and adds each element.
    count = np.array([2.0 * np.prod(v.shape) for v in step.variables])
    count += _of_single_tensors(flops, BACKWARD, len(count))
    backward_flops, backward_ms = (
        sum(amount for charge, amount in amounts.items() if charge.kind == BACKWARD)
        for amounts in (flops, by_charge)
    )
    rate = backward_ms / backward_flops if backward_flops else sum(by_charge.values()) / count.sum()
    return np.asarray(count * rate)
