"""Trace to op times: read an XSpace and give every op its share of the wall-clock time."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from elastictrainer.errors import RunError

Message = Any  # of protobuf: a part of an XSpace

STEP_EVENT = "elastictrainer_step"
_STEP = -1  # in place of an op's number: the event marks a step
# An op's event is "scope/op_name:OpType"; the executor's events have no colon, or a blank after it.
_OP_EVENT = re.compile(r"^([A-Za-z0-9_.\\/>-]+):([A-Za-z_]\w*)$")
# An op that may return before its work is done, such as a call of what XLA compiled, has this event, named in
# a stat.
_ASYNC_EVENT = "ExecutorState::ProcessAsync::Start"
_REWRITTEN = re.compile(r"^(.*/)ArithmeticOptimizer/(\w+)$")


class Events(NamedTuple):
    """E op events: (E,) start and end in ns, and the op's number."""

    start: np.ndarray
    end: np.ndarray
    op: np.ndarray


@dataclass
class Trace:
    """The op events of some traced steps."""

    steps: np.ndarray  # (K, 2) start and end of each step, in ns
    ops: Tuple[str, ...]  # the M distinct traced op names
    lines: List[Events]  # of each host thread and GPU stream; an op's number is its place in `ops`


def read_trace(path: Union[str, Path]) -> Trace:
    """Read the op events of an `.xplane.pb` that `capture` made, on a CPU or with GPUs.

    On a GPU an op's time is that of its kernels, which name it in their stat `tf_op`; its event on the host
    only launches them and is left out. Ops without a kernel keep their host event. RunError where the file is
    no XSpace or holds no marked step.
    """
    from google.protobuf.message import DecodeError
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    try:
        space.ParseFromString(Path(path).read_bytes())
    except (DecodeError, SystemError) as error:  # protobuf 3 raises the latter for damaged text
        raise RunError(f"{path} is no profiler trace ({error}).") from None

    index: Dict[str, int] = {}
    host: List[np.ndarray] = []
    kernels: List[np.ndarray] = []
    for plane in space.planes:
        if plane.name.startswith("/host:CPU"):
            host.extend(_table(plane, line, _host_name, index) for line in plane.lines)
        elif plane.name.startswith("/device:GPU:"):
            # The lines that are no streams are summaries of these.
            streams = (line for line in plane.lines if line.name.startswith("Stream"))
            kernels.extend(_table(plane, line, _kernel_name, index) for line in streams)
    steps = np.concatenate([np.zeros((0, 3)), *(table[table[:, 0] == _STEP] for table in host)])
    if not len(steps):
        raise RunError(f"{path} holds no traced step.")
    # On the host an op of a GPU is its launch alone: its kernels have its time.
    no_work = [_STEP, *(number for table in kernels for number in table[:, 0])]
    tables = [table[~np.isin(table[:, 0], no_work)] for table in host] + kernels
    lines = [Events(table[:, 1], table[:, 2], table[:, 0].astype(np.int64)) for table in tables if len(table)]
    return Trace(steps[np.argsort(steps[:, 1]), 1:], tuple(index), lines)


def _table(
    plane: Message, line: Message, name_of: Callable[[Message, Message], Optional[str]], index: Dict[str, int]
) -> np.ndarray:
    """Return (E, 3) number in `index`, start and end in ns of a line's events; new names are added to it."""
    events = []
    for event in line.events:
        name = name_of(plane, event)
        if name is not None:
            number = _STEP if name == STEP_EVENT else index.setdefault(name, len(index))
            events.append((number, event.offset_ps, event.duration_ps))
    table = np.array(events, np.float64).reshape(-1, 3)
    table[:, 1] = line.timestamp_ns + table[:, 1] / 1e3
    table[:, 2] = table[:, 1] + table[:, 2] / 1e3
    return table


def _host_name(plane: Message, event: Message) -> Optional[str]:
    """Return the name of an event's op, or STEP_EVENT; None for another event."""
    name = str(plane.event_metadata[event.metadata_id].name)
    if name == _ASYNC_EVENT:
        return _stat(plane, event.stats, "name")
    match = _OP_EVENT.match(name)
    return match.group(1) if match else name if name == STEP_EVENT else None


def _kernel_name(plane: Message, event: Message) -> str:
    """Return the name of a kernel's op; a kernel of no op keeps its own."""
    metadata = plane.event_metadata[event.metadata_id]
    name = _stat(plane, [*event.stats, *metadata.stats], "tf_op") or str(metadata.name)
    return name.split(":")[0]


def _stat(plane: Message, stats: Iterable[Message], name: str) -> Optional[str]:
    for stat in stats:
        if plane.stat_metadata[stat.metadata_id].name == name:
            return str(stat.str_value or plane.stat_metadata[stat.ref_value].name)
    return None


def innermost(events: Events) -> np.ndarray:
    """Cut one thread's nested events into disjoint pieces in time order: (P, 3) start, end, innermost op."""
    start, end, op = events
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
    return np.array(pieces, np.float64).reshape(-1, 3)


def wall_shares(trace: Trace) -> Tuple[np.ndarray, np.ndarray]:
    """Return (K, M) ms, each op's share of each step's wall-clock time; and (K,) ms before or after all ops.

    An instant is shared equally by the ops active in it, so that overlapping ops add up to the wall time. An
    instant between the first and the last op in which none runs goes to the op that starts next: its launch.
    """
    pieces = np.concatenate([np.zeros((0, 3)), *map(innermost, trace.lines)])
    shares = np.zeros((len(trace.steps), len(trace.ops)))
    outside = (trace.steps[:, 1] - trace.steps[:, 0]) / 1e6
    for k, (step_start, step_end) in enumerate(trace.steps):
        start, end, op = pieces[(pieces[:, 0] < step_end) & (pieces[:, 1] > step_start)].T
        if len(op):
            start, end = np.maximum(start, step_start), np.minimum(end, step_end)
            shares[k], busy_ms = _share_one_step(start, end, op.astype(np.int64), len(trace.ops))
            outside[k] -= busy_ms
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
    """Return for each traced op name the index of the graph op it belongs to, or -1."""
    index = {name: i for i, name in enumerate(known)}
    found = [next((index[owner] for owner in _owners(name) if owner in index), -1) for name in traced]
    return np.array(found, np.int64)


def _owners(name: str) -> Iterator[str]:
    """Yield the graph ops that a traced name may belong to, the best match first.

    Graph optimisation renames: what replaces an op, or is in the body of a loop or function, is named below
    it. The longest known name that is a path prefix is the op to charge; failing that, the same with the
    leading path components (the optimizer's scope) taken off. An arithmetic rewrite is named next to the
    op it replaces, as `scope/ArithmeticOptimizer/REWRITE_op`.
    """
    rewritten = _REWRITTEN.match(name)
    if rewritten:
        words = rewritten.group(2).split("_")
        yield from (rewritten.group(1) + "_".join(words[k:]) for k in range(1, len(words)))
    parts = name.split("/")
    for first in range(len(parts)):
        yield from ("/".join(parts[first:last]) for last in range(len(parts), first, -1))
