import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from elastictrainer.errors import RunError
from elastictrainer.profiler import xplane
from elastictrainer.profiler.xplane import STEP_EVENT, Events, Trace, charge_to, read_trace, wall_shares

DATA = Path(__file__).parent.parent / "files"


def trace(lines, steps=((0.0, 100.0),), ops=("a", "b", "c")):
    """Times in ms for the reader's sake."""
    lines = [Events(np.array(s, float) * 1e6, np.array(e, float) * 1e6, np.array(o)) for s, e, o in lines]
    return Trace(np.array(steps) * 1e6, ops, lines)


@pytest.fixture
def space():
    return pytest.importorskip("tensorflow.tsl.profiler.protobuf.xplane_pb2").XSpace()


def read(space, folder):
    (folder / "t.xplane.pb").write_bytes(space.SerializeToString())
    return read_trace(folder / "t.xplane.pb")


def event(line, number, start, end):
    """Add an event of a name's number, in ns."""
    return line.events.add(metadata_id=number, offset_ps=start * 1000, duration_ps=(end - start) * 1000)


def name_in(table, *names):
    """Fill an XSpace plane's table of event or stat names, numbered from 1."""
    for number, name in enumerate(names, 1):
        table[number].id = number
        table[number].name = name


@pytest.mark.parametrize(
    "lines, steps, expected, nobodys",
    [
        ([([0], [60], [0]), ([40], [100], [1])], ((0, 100),), [[50, 50, 0]], [0]),
        ([([10], [90], [0])], ((0, 100),), [[80, 0, 0]], [20]),
        ([([0, 50], [30, 100], [0, 1])], ((0, 100),), [[30, 70, 0]], [0]),
        ([([0, 90], [20, 130], [0, 1])], ((10, 100), (100, 140)), [[10, 80, 0], [0, 30, 0]], [0, 10]),
        ([([0], [5], [0])], ((10, 20),), [[0, 0, 0]], [10]),
    ],
    ids=[
        "overlapping ops share an instant equally",
        "time before the first and after the last op is nobody's",
        "a gap belongs to the op that starts next",
        "events are cut at the step",
        "a step without ops is all outside",
    ],
)
def test_an_op_has_its_share_of_the_wall_time(lines, steps, expected, nobodys):
    shares, outside = wall_shares(trace(lines, steps))
    np.testing.assert_allclose(shares, expected)
    np.testing.assert_allclose(outside, nobodys)


def test_the_innermost_event_of_a_thread_owns_the_time():
    pieces = xplane.innermost(
        Events(np.array([0.0, 2.0, 3.0]), np.array([10.0, 8.0, 4.0]), np.array([0, 1, 2]))
    )
    assert pieces.tolist() == [[0, 2, 0], [2, 3, 1], [3, 4, 2], [4, 8, 1], [8, 10, 0]]


def test_shares_add_up_to_the_wall_time_of_a_random_trace():
    random = np.random.default_rng(0)
    lines = []
    for _ in range(3):
        start = np.sort(random.uniform(0, 95, 40))
        lines.append((start, start + random.uniform(0.1, 5, 40), random.integers(0, 3, 40)))
    shares, outside = wall_shares(trace(lines))
    assert shares.sum() + outside.sum() == pytest.approx(100)


def test_the_longest_known_path_prefix_is_charged():
    known = ["model/while", "model/while_15", "grad/conv", "grad/conv/filter"]
    traced = ["grad/conv", "grad/conv/filter/x_composition", "model/while_15/body/_1/add"]
    traced += ["ConstantFolding/grad/conv_1", "ArithmeticOptimizer/grad/conv", "other"]
    assert charge_to(traced, known).tolist() == [2, 3, 1, -1, 2, -1]


def test_a_hand_made_xspace_is_read(space, tmp_path):
    plane = space.planes.add(name="/host:CPU")
    others = "ExecutorState::Process", "EagerLocalExecute: step", "MemoryAllocation"
    name_in(plane.event_metadata, STEP_EVENT, "model/conv:Conv2D", *others)
    python = plane.lines.add(name="python", timestamp_ns=1000)
    event(python, 1, 0, 9000)
    event(python, 4, 0, 9000)
    worker = plane.lines.add(name="worker", timestamp_ns=2000)
    event(worker, 3, 0, 7000)
    event(worker, 2, 1000, 6000)
    space.planes.add(name="/host:metadata")
    found = read(space, tmp_path)
    assert found.ops == ("model/conv",)
    np.testing.assert_allclose(found.steps, [[1000, 10000]])
    np.testing.assert_allclose(found.lines[0][0], [3000])
    np.testing.assert_allclose(found.lines[0][1], [8000])


def test_an_op_that_only_the_executor_has_an_event_of_is_named_by_its_stat(space, tmp_path):
    """Code that XLA compiled runs inside the event that starts a call; ops within keep their own time."""
    plane = space.planes.add(name="/host:CPU")
    names = "ExecutorState::ProcessAsync::Start", "body/mul:Mul", "update:AssignSub"
    name_in(plane.event_metadata, STEP_EVENT, *names)
    name_in(plane.stat_metadata, "kernel_type", "name", "PartitionedCall", "PartitionedCall_1")
    line = plane.lines.add(name="tf_Compute", timestamp_ns=0)
    event(line, 1, 0, 100)
    first = event(line, 2, 0, 40)
    first.stats.add(metadata_id=1).ref_value = 3
    first.stats.add(metadata_id=2).str_value = "PartitionedCall"
    event(line, 3, 10, 15)
    event(line, 2, 40, 90).stats.add(metadata_id=2).ref_value = 4
    event(line, 2, 90, 95)  # says no name: nobody's
    event(line, 4, 95, 100)
    found = read(space, tmp_path)
    shares, outside = wall_shares(found)
    by_name = dict(zip(found.ops, shares[0] * 1e6))
    expected = {"PartitionedCall": 35, "body/mul": 5, "PartitionedCall_1": 50, "update": 10}
    assert by_name == pytest.approx(expected)
    assert outside[0] == 0


def test_kernels_on_gpu_streams_stand_for_the_ops_that_launched_them(space, tmp_path):
    """The published layout: stream lines on /device:GPU:n, the op in the stat tf_op, often as a reference."""
    host = space.planes.add(name="/host:CPU")
    names = "model/conv:Conv2D", "grad/conv:Conv2DBackpropFilter", "count:AssignAdd"
    name_in(host.event_metadata, STEP_EVENT, *names)
    python = host.lines.add(name="python", timestamp_ns=0)
    event(python, 1, 0, 100)
    worker = host.lines.add(name="tf_Compute", timestamp_ns=0)
    for number, (start, end) in {2: (0, 5), 3: (5, 9), 4: (95, 100)}.items():
        event(worker, number, start, end)

    device = space.planes.add(name="/device:GPU:0")
    name_in(device.stat_metadata, "tf_op", "model/conv:Conv2D", "kernel_details")
    name_in(device.event_metadata, "void winograd(float*)", "scale", "wgrad", "MemcpyH2D")
    compute = device.lines.add(name="Stream #16(Compute)", timestamp_ns=0)
    for number, start, end in ((1, 10, 30), (2, 30, 40)):  # two kernels of one op
        stat = event(compute, number, start, end).stats.add(metadata_id=1)
        stat.ref_value = 2
    event(compute, 3, 40, 80).stats.add(metadata_id=1).str_value = "grad/conv:Conv2DBackpropFilter"
    copies = device.lines.add(name="Stream #17(MemcpyH2D)", timestamp_ns=0)
    event(copies, 4, 80, 90).stats.add(metadata_id=3).str_value = "size:4"
    summary = device.lines.add(name="TensorFlow Ops", timestamp_ns=0)
    event(summary, 1, 0, 100).stats.add(metadata_id=1).ref_value = 2

    found = read(space, tmp_path)
    shares, outside = wall_shares(found)
    by_name = dict(zip(found.ops, shares[0] * 1e6))
    # The gaps go to what starts next; the ten nanoseconds before the first kernel to nobody.
    assert by_name == pytest.approx({"model/conv": 30, "grad/conv": 40, "MemcpyH2D": 10, "count": 10})
    assert outside[0] * 1e6 == pytest.approx(10)
    assert charge_to(found.ops, ["model/conv", "grad/conv", "count"]).tolist().count(-1) == 1


def test_a_real_trace_gives_the_checked_in_shares(tmp_path):
    """Two steps of a small network on two x86 cores; `make_trace.py` of commit 7dc2fe8 added up the sums."""
    pytest.importorskip("tensorflow")
    content = gzip.decompress((DATA / "small_network.xplane.pb.gz").read_bytes())
    (tmp_path / "t.xplane.pb").write_bytes(content)
    golden = json.loads((DATA / "small_network.json").read_text())
    found = read_trace(tmp_path / "t.xplane.pb")
    shares, outside = wall_shares(found)
    assert len(found.steps) == golden["steps"]
    by_name = dict(zip(found.ops, shares.sum(axis=0)))
    assert by_name.keys() == golden["ms"].keys()
    for name, ms in golden["ms"].items():
        assert by_name[name] == pytest.approx(ms, abs=2e-3), name
    # The step's wall time is all there, none twice.
    np.testing.assert_allclose(shares.sum(axis=1) + outside, np.diff(found.steps)[:, 0] / 1e6)


@pytest.mark.parametrize("content", [b"", b"no protobuf at all", b"\x0a\xff\xff\xff\xff\x0f"])
def test_a_file_without_steps_is_refused_by_name(tmp_path, content):
    pytest.importorskip("tensorflow")
    (tmp_path / "t.xplane.pb").write_bytes(content)
    with pytest.raises(RunError, match="t.xplane.pb"):
        read_trace(tmp_path / "t.xplane.pb")
