"""Trace to op times: read an XSpace and give every op its share of the wall-clock time."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import numpy as np

from elastictrainer.errors import RunError

STEP_EVENT = "elastictrainer_step"
# Kinds of events that are no op's index: the marker of a step, one of no interest, an asynchronous op's.
_STEP, _NEITHER, _ASYNC = -1, -2, -3
# An op's event is "scope/op_name:OpType"; the executor's events have no colon, or a blank after it.
_OP_EVENT = re.compile(r"^([A-Za-z0-9_.\\/>-]+):([A-Za-z_]\w*)$")
# An op that may return before its work is done, such as a call of what XLA compiled, has this event, named in
# a stat.
_ASYNC_EVENT = "ExecutorState::ProcessAsync::Start"
_REWRITTEN = re.compile(r"^(.*/)ArithmeticOptimizer/(\w+)$")


@dataclass
class Trace:
    """The op events of some traced steps.

    Attributes:
        steps: (K, 2) start and end of each step, in ns.
        ops: the M distinct traced op names.
        lines: one entry per host thread and per GPU stream: start (E,), end (E,) in ns, and op index (E,) of
            its events.
    """

    steps: np.ndarray
    ops: Tuple[str, ...]
    lines: List[Tuple[np.ndarray, np.ndarray, np.ndarray]]


def read_trace(path: Union[str, Path]) -> Trace:
    """Read the op events of an `.xplane.pb` that `capture` made, on a CPU or with GPUs.

    On a GPU an op's time is that of its kernels, which name it in their stat `tf_op`; its event on the host
    only launches them and is left out. Ops without a kernel keep their host event.

    Raises:
        RunError: the file is no XSpace or holds no marked step.
    """
    from google.protobuf.message import DecodeError
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    try:
        space.ParseFromString(Path(path).read_bytes())
    except (DecodeError, SystemError) as error:  # protobuf 3 raises the latter for damaged text
        raise RunError(f"{path} is no profiler trace ({error}).") from None

    op_index: Dict[str, int] = {}
    steps: List[Tuple[float, float]] = []
    host: List[np.ndarray] = []
    kernels: List[np.ndarray] = []
    for plane in space.planes:
        if plane.name.startswith("/host:CPU"):
            kind_of = _kinds_by_name(plane, op_index)
            for line in plane.lines:
                table = _table(line, _host_kinds(plane, line, kind_of, op_index))
                marker = table[:, 0] == _STEP
                steps.extend((start, end) for _, start, end in table[marker])
                host.append(table[~marker])
        elif plane.name.startswith("/device:GPU:"):
            for line in plane.lines:
                if line.name.startswith("Stream"):  # the other lines are summaries of the streams
                    kernels.append(_table(line, _kernel_kinds(plane, line, op_index)))
    if not steps:
        raise RunError(f"{path} holds no traced step.")
    # On the host an op of a GPU is its launch alone: its kernels have its time.
    launched = np.unique(np.concatenate([table[:, 0] for table in kernels])) if kernels else np.zeros(0)
    tables = [table[~np.isin(table[:, 0], launched)] for table in host] + kernels
    lines = [(table[:, 1], table[:, 2], table[:, 0].astype(np.int64)) for table in tables if len(table)]
    return Trace(np.array(sorted(steps)), tuple(op_index), lines)


def _table(line: Any, kinds: List[int]) -> np.ndarray:
    """Return (E, 3) kind, start and end in ns of a line's events, without those of no interest."""
    events = [(k, e.offset_ps, e.duration_ps) for k, e in zip(kinds, line.events) if k != _NEITHER]
    table = np.array(events, np.float64).reshape(-1, 3)
    table[:, 1] = line.timestamp_ns + table[:, 1] / 1e3
    table[:, 2] = table[:, 1] + table[:, 2] / 1e3
    return table


def _kinds_by_name(plane: Any, op_index: Dict[str, int]) -> Dict[int, int]:
    """Return for each event name on the host its op's index, _STEP, _ASYNC (it names the op) or _NEITHER."""
    kind_of = {}
    for event_id, metadata in plane.event_metadata.items():
        match = _OP_EVENT.match(metadata.name)
        if metadata.name == STEP_EVENT:
            kind_of[event_id] = _STEP
        elif metadata.name == _ASYNC_EVENT:
            kind_of[event_id] = _ASYNC
        elif match:
            kind_of[event_id] = op_index.setdefault(match.group(1), len(op_index))
        else:
            kind_of[event_id] = _NEITHER
    return kind_of


def _host_kinds(plane: Any, line: Any, kind_of: Dict[int, int], op_index: Dict[str, int]) -> List[int]:
    """Return for each event of a host's thread the index of its op, _STEP or _NEITHER."""
    kinds = []
    for event in line.events:
        kind = kind_of.get(event.metadata_id, _NEITHER)
        if kind == _ASYNC:
            name = _stat(plane, event.stats, "name")
            kind = _NEITHER if name is None else op_index.setdefault(name, len(op_index))
        kinds.append(kind)
    return kinds


def _kernel_kinds(plane: Any, line: Any, op_index: Dict[str, int]) -> List[int]:
    """Return for each event of a GPU's stream the index of its op; a kernel of no op keeps its name."""
    kinds = []
    for event in line.events:
        metadata = plane.event_metadata[event.metadata_id]
        name = _stat(plane, [*event.stats, *metadata.stats], "tf_op") or metadata.name
        kinds.append(op_index.setdefault(name.split(":")[0], len(op_index)))
    return kinds


def _stat(plane: Any, stats: Iterable[Any], name: str) -> Optional[str]:
    """Return the text of the first stat of this name, or None."""
    for stat in stats:
        if plane.stat_metadata[stat.metadata_id].name == name:
            return str(stat.str_value or plane.stat_metadata[stat.ref_value].name)
    return None


def innermost(
    start: np.ndarray, end: np.ndarray, op: np.ndarray
) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut one thread's nested events into disjoint pieces, each owned by the innermost event.

    Args:
        start, end, op: (E,) the events of a thread, in any order.

    Returns:
        start, end, op of the pieces, in time order.
    """
    pieces: List[Tuple[float, float, int]] = []
    open_events: List[Tuple[float, int]] = []  # (end, op), the innermost last
    now = -np.inf

    def advance(until: float) -> None:
        nonlocal now
        while open_events and now < until:
            top_end, top_op = open_events[-1]
            stop = min(top_end, until)
            if stop > now:
                pieces.append((now, stop, top_op))
                now = stop
            if top_end <= until:
                open_events.pop()
        now = until

    # Sorted by start, an outer event before an inner one that starts with it: a stack holds the open ones.
    for i in np.lexsort((-end, start)):
        advance(start[i])
        open_events.append((end[i], int(op[i])))
    advance(np.inf)
    table = np.array(pieces, np.float64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2].astype(np.int64)


def wall_shares(trace: Trace) -> Tuple[np.ndarray, np.ndarray]:
    """Give each op its share of each step's wall-clock time.

    An instant is shared equally by the ops active in it, so that overlapping ops add up to the wall time. An
    instant between the first and the last op in which none runs goes to the op that starts next: its launch.

    Returns:
        (K, M) ms: each op's share of each step; and (K,) ms: the step's time with no op before or after it.
    """
    pieces = [innermost(*line) for line in trace.lines]
    start = np.concatenate([p[0] for p in pieces]) if pieces else np.zeros(0)
    end = np.concatenate([p[1] for p in pieces]) if pieces else np.zeros(0)
    op = np.concatenate([p[2] for p in pieces]) if pieces else np.zeros(0, np.int64)
    shares = np.zeros((len(trace.steps), len(trace.ops)))
    outside = np.zeros(len(trace.steps))
    for k, (step_start, step_end) in enumerate(trace.steps):
        inside = (start < step_end) & (end > step_start)
        if not inside.any():
            outside[k] = (step_end - step_start) / 1e6
            continue
        shares[k], busy = _share_one_step(
            np.maximum(start[inside], step_start),
            np.minimum(end[inside], step_end),
            op[inside],
            len(trace.ops),
        )
        outside[k] = (step_end - step_start) / 1e6 - busy
    return shares, outside


def _share_one_step(start: np.ndarray, end: np.ndarray, op: np.ndarray, ops: int) -> Tuple[np.ndarray, float]:
    """Return (M,) ms of wall-clock share for each op, and the ms from the first start to the last end."""
    ticks, where = np.unique(np.concatenate([start, end]), return_inverse=True)
    begins, ends = where[: len(start)], where[len(start) :]
    # Between two neighbouring ticks the set of active ops does not change: count them by a running sum.
    active = np.zeros(len(ticks))
    np.add.at(active, begins, 1)
    np.add.at(active, ends, -1)
    active = np.cumsum(active)[:-1]
    length = np.diff(ticks)
    # With n(t) ops active at t an event from a to b gets the integral of dt / n(t) over [a, b], a difference
    # of a running integral. The shares of all events then add up to the wall time.
    integral = np.concatenate([[0.0], np.cumsum(np.where(active > 0, length / np.maximum(active, 1), 0.0))])
    shares = np.bincount(op, weights=integral[ends] - integral[begins], minlength=ops)
    first_at = {}
    for tick, name in zip(begins[::-1], op[::-1]):  # backwards: the first event of a tick stays
        first_at[tick] = name
    for gap in np.flatnonzero(active == 0):
        shares[first_at[gap + 1]] += length[gap]
    return shares / 1e6, float(ticks[-1] - ticks[0]) / 1e6


def charge_to(traced: Sequence[str], known: Sequence[str]) -> np.ndarray:
    """Return for each traced op name the index of the graph op it belongs to, or -1.

    Graph optimisation renames: what replaces an op, or is in the body of a loop or function, is named below
    it. The longest known name that is a path prefix is the op to charge; failing that, the same with the
    leading path components (the optimizer's scope) taken off. An arithmetic rewrite is named next to the
    op it replaces, as `scope/ArithmeticOptimizer/REWRITE_op`.
    """
    index = {name: i for i, name in enumerate(known)}
    result = np.full(len(traced), -1, np.int64)
    for t, name in enumerate(traced):
        rewritten = _REWRITTEN.match(name)
        neighbours = []
        if rewritten:
            words = rewritten.group(2).split("_")
            neighbours = [rewritten.group(1) + "_".join(words[k:]) for k in range(1, len(words))]
        known_neighbour = next((index[other] for other in neighbours if other in index), None)
        if known_neighbour is not None:
            result[t] = known_neighbour
            continue
        parts = name.split("/")
        for first in range(len(parts)):
            prefixes = ("/".join(parts[first:last]) for last in range(len(parts), first, -1))
            longest = next((index[prefix] for prefix in prefixes if prefix in index), None)
            if longest is not None:
                result[t] = longest
                break
    return result
