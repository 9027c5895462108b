"""Ops inside called functions: their trace events carry bare names, and belong to the op that calls.

TensorFlow inlines most functions, and what runs is then named below the call. Where it does not (the loops of Keras' GRU
and LSTM), an event is named as in the function's body, and two layers of a kind have the same names.
"""

from typing import Any, Dict, List, Sequence

import numpy as np

from elastictrainer.profiler.xplane import Trace, charge_to

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")


def bodies_of(graph: Any) -> Dict[str, List[str]]:
    """For each calling op of the graph, in graph order, the names of the ops in the function and in those it calls."""
    library = {function.signature.name: function for function in graph.as_graph_def().library.function}

    def names(function: str, seen: frozenset) -> List[str]:
        if function not in library or function in seen:
            return []
        found = []
        for node in library[function].node_def:
            found.append(node.name)
            if node.op in _CALLS:
                found += names(node.attr["f"].func.name, seen | {function})
        return found

    calling = [op for op in graph.get_operations() if op.type in _CALLS]
    return {op.name: names(op.get_attr("f").name, frozenset()) for op in calling}


def charge_calls(trace: Trace, known: Sequence[str], bodies: Dict[str, List[str]]) -> Trace:
    """The trace with every event inside a called function given to the op that calls.

    An event whose name stands in several functions goes to the one whose own events are nearest in time; where none of
    them has any, the events of a step are dealt out evenly in the order in which the functions are called.

    Args:
        trace: the events.
        known: names of the graph's own ops; events charged to these stay.
        bodies: calling op to the names in its function, in graph order.
    """
    lost = np.flatnonzero(charge_to(trace.ops, known) < 0)
    lost_names = [trace.ops[k] for k in lost]
    candidates: Dict[int, List[int]] = {int(k): [] for k in lost}
    calls = list(bodies)
    for number, call in enumerate(calls):
        for k, found in zip(lost, charge_to(lost_names, bodies[call])):
            if found >= 0:
                candidates[int(k)].append(number)
    if not any(candidates.values()):
        return trace
    first = len(trace.ops)  # the calls' own places among the op names
    owner = np.arange(first)
    for k, possible in candidates.items():
        if len(possible) == 1:
            owner[k] = first + possible[0]
    lines = [(start, end, owner[op]) for start, end, op in trace.lines]
    for step_start, step_end in trace.steps:
        _settle_ambiguous(lines, step_start, step_end, {k: p for k, p in candidates.items() if len(p) > 1}, first)
    return Trace(trace.steps, (*trace.ops, *calls), lines)


def _settle_ambiguous(lines: List[Any], step_start: float, step_end: float, ambiguous: Dict[int, List[int]], first: int) -> None:
    """Give each ambiguous event of one step to a call; `lines` is changed in place."""
    starts = [np.where((s >= step_start) & (s < step_end), s, np.nan) for s, _, _ in lines]
    spans = {}  # of what is known to be a call's
    for number in {number for possible in ambiguous.values() for number in possible}:
        own = np.concatenate([s[op == first + number] for s, (_, _, op) in zip(starts, lines)] or [np.zeros(0)])
        own = own[~np.isnan(own)]
        if len(own):
            spans[number] = (own.min(), own.max())
    for k, possible in ambiguous.items():
        places = [(s[i], line, i) for line, (s, (_, _, op)) in enumerate(zip(starts, lines))
                  for i in np.flatnonzero((op == k) & ~np.isnan(s))]  # fmt: skip
        placed = [number for number in possible if number in spans]
        for rank, (start, line, i) in enumerate(sorted(places)):
            if placed:
                number = min(placed, key=lambda n: max(spans[n][0] - start, start - spans[n][1], 0.0))
            else:
                number = possible[rank * len(possible) // len(places)]
            lines[line][2][i] = first + number
