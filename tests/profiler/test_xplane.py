import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from elastictrainer.errors import RunError
from elastictrainer.profiler.xplane import (
    STEP_EVENT,
    Events,
    Trace,
    charge_to,
    innermost,
    read_trace,
    wall_shares,
)

DATA = Path(__file__).parent.parent / "files"


def trace(lines, steps=((0.0, 100.0),), ops=("a", "b", "c")):
    """Times in ms for the reader's sake."""
    return Trace(
        np.array(steps) * 1e6,
        ops,
        [Events(np.array(s, float) * 1e6, np.array(e, float) * 1e6, np.array(o)) for s, e, o in lines],
    )


def name_in(table, *names):
    """Fill an XSpace plane's table of event or stat names, numbered from 1."""
    for number, name in enumerate(names, 1):
        table[number].id = number
        table[number].name = name


def test_overlapping_ops_share_an_instant_equally():
    shares, outside = wall_shares(trace([([0], [60], [0]), ([40], [100], [1])]))
    np.testing.assert_allclose(shares, [[50.0, 50.0, 0.0]])
    np.testing.assert_allclose(outside, [0.0])


def test_time_before_the_first_and_after_the_last_op_is_nobodys():
    shares, outside = wall_shares(trace([([10], [90], [0])]))
    np.testing.assert_allclose(shares[0], [80, 0, 0])
    np.testing.assert_allclose(outside, [20])


def test_a_gap_between_ops_belongs_to_the_op_that_starts_next():
    shares, _ = wall_shares(trace([([0, 50], [30, 100], [0, 1])]))
    np.testing.assert_allclose(shares[0], [30, 70, 0])


def test_the_innermost_event_of_a_thread_owns_the_time():
    pieces = innermost(Events(np.array([0.0, 2.0, 3.0]), np.array([10.0, 8.0, 4.0]), np.array([0, 1, 2])))
    assert pieces.tolist() == [[0, 2, 0], [2, 3, 1], [3, 4, 2], [4, 8, 1], [8, 10, 0]]


def test_events_are_cut_at_the_step():
    shares, outside = wall_shares(trace([([0, 90], [20, 130], [0, 1])], steps=((10, 100), (100, 140))))
    np.testing.assert_allclose(shares, [[10, 80, 0], [0, 30, 0]])
    np.testing.assert_allclose(outside, [0, 10])


def test_shares_add_up_to_the_wall_time_of_a_random_trace():
    random = np.random.default_rng(0)
    lines = []
    for _ in range(3):
        start = np.sort(random.uniform(0, 95, 40))
        lines.append((start, start + random.uniform(0.1, 5, 40), random.integers(0, 3, 40)))
    shares, outside = wall_shares(trace(lines))
    assert shares.sum() + outside.sum() == pytest.approx(100)


def test_a_step_without_ops_is_all_outside():
    shares, outside = wall_shares(trace([([0], [5], [0])], steps=((10, 20),)))
    assert shares.sum() == 0 and outside[0] == pytest.approx(10)


def test_the_longest_known_path_prefix_is_charged():
    known = ["model/while", "model/while_15", "grad/conv", "grad/conv/filter"]
    traced = [
        "grad/conv",
        "grad/conv/filter/x_composition",
        "model/while_15/body/_1/add",
        "ConstantFolding/grad/conv_1",
        "ArithmeticOptimizer/grad/conv",
        "other",
    ]
    assert charge_to(traced, known).tolist() == [2, 3, 1, -1, 2, -1]


def test_a_hand_made_xspace_is_read(tmp_path):
    xplane_pb2 = pytest.importorskip("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    space = xplane_pb2.XSpace()
    plane = space.planes.add(name="/host:CPU")
    names = (
        STEP_EVENT,
        "model/conv:Conv2D",
        "ExecutorState::Process",
        "EagerLocalExecute: step",
        "MemoryAllocation",
    )
    name_in(plane.event_metadata, *names)
    python = plane.lines.add(name="python", timestamp_ns=1000)
    python.events.add(metadata_id=1, offset_ps=0, duration_ps=9_000_000)
    python.events.add(metadata_id=4, offset_ps=0, duration_ps=9_000_000)
    worker = plane.lines.add(name="worker", timestamp_ns=2000)
    worker.events.add(metadata_id=3, offset_ps=0, duration_ps=7_000_000)
    worker.events.add(metadata_id=2, offset_ps=1_000_000, duration_ps=5_000_000)
    space.planes.add(name="/host:metadata")
    (tmp_path / "t.xplane.pb").write_bytes(space.SerializeToString())
    read = read_trace(tmp_path / "t.xplane.pb")
    assert read.ops == ("model/conv",)
    np.testing.assert_allclose(read.steps, [[1000, 10000]])
    np.testing.assert_allclose(read.lines[0][0], [3000])
    np.testing.assert_allclose(read.lines[0][1], [8000])


def test_an_op_that_only_the_executor_has_an_event_of_is_named_by_its_stat(tmp_path):
    """Code that XLA compiled runs inside the event that starts a call; ops within keep their own time."""
    xplane_pb2 = pytest.importorskip("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    space = xplane_pb2.XSpace()
    plane = space.planes.add(name="/host:CPU")
    name_in(
        plane.event_metadata,
        STEP_EVENT,
        "ExecutorState::ProcessAsync::Start",
        "body/mul:Mul",
        "update:AssignSub",
    )
    name_in(plane.stat_metadata, "kernel_type", "name", "PartitionedCall", "PartitionedCall_1")
    line = plane.lines.add(name="tf_Compute", timestamp_ns=0)

    def event(number, start, end):
        return line.events.add(metadata_id=number, offset_ps=start * 1000, duration_ps=(end - start) * 1000)

    event(1, 0, 100)
    first = event(2, 0, 40)
    first.stats.add(metadata_id=1).ref_value = 3
    first.stats.add(metadata_id=2).str_value = "PartitionedCall"
    event(3, 10, 15)
    event(2, 40, 90).stats.add(metadata_id=2).ref_value = 4
    event(2, 90, 95)  # says no name: nobody's
    event(4, 95, 100)
    (tmp_path / "t.xplane.pb").write_bytes(space.SerializeToString())
    read = read_trace(tmp_path / "t.xplane.pb")
    shares, outside = wall_shares(read)
    by_name = dict(zip(read.ops, shares[0] * 1e6))
    assert by_name == pytest.approx(
        {"PartitionedCall": 35, "body/mul": 5, "PartitionedCall_1": 50, "update": 10}
    )
    assert outside[0] == 0


def test_kernels_on_gpu_streams_stand_for_the_ops_that_launched_them(tmp_path):
    """The published layout: stream lines on /device:GPU:n, the op in the stat tf_op, often as a reference."""
    xplane_pb2 = pytest.importorskip("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    space = xplane_pb2.XSpace()
    host = space.planes.add(name="/host:CPU")
    name_in(
        host.event_metadata,
        STEP_EVENT,
        "model/conv:Conv2D",
        "grad/conv:Conv2DBackpropFilter",
        "count:AssignAdd",
    )
    python = host.lines.add(name="python", timestamp_ns=0)
    python.events.add(metadata_id=1, offset_ps=0, duration_ps=100_000)
    worker = host.lines.add(name="tf_Compute", timestamp_ns=0)
    for number, (start, end) in {2: (0, 5), 3: (5, 9), 4: (95, 100)}.items():
        worker.events.add(metadata_id=number, offset_ps=start * 1000, duration_ps=(end - start) * 1000)

    device = space.planes.add(name="/device:GPU:0")
    name_in(device.stat_metadata, "tf_op", "model/conv:Conv2D", "kernel_details")
    name_in(device.event_metadata, "void winograd(float*)", "scale", "wgrad", "MemcpyH2D")

    def kernel(line, number, start, end):
        return line.events.add(metadata_id=number, offset_ps=start * 1000, duration_ps=(end - start) * 1000)

    compute = device.lines.add(name="Stream #16(Compute)", timestamp_ns=0)
    for number, start, end in ((1, 10, 30), (2, 30, 40)):  # two kernels of one op
        stat = kernel(compute, number, start, end).stats.add(metadata_id=1)
        stat.ref_value = 2
    kernel(compute, 3, 40, 80).stats.add(metadata_id=1).str_value = "grad/conv:Conv2DBackpropFilter"
    copies = device.lines.add(name="Stream #17(MemcpyH2D)", timestamp_ns=0)
    kernel(copies, 4, 80, 90).stats.add(metadata_id=3).str_value = "size:4"
    summary = device.lines.add(name="TensorFlow Ops", timestamp_ns=0)
    kernel(summary, 1, 0, 100).stats.add(metadata_id=1).ref_value = 2

    (tmp_path / "t.xplane.pb").write_bytes(space.SerializeToString())
    read = read_trace(tmp_path / "t.xplane.pb")
    shares, outside = wall_shares(read)
    by_name = dict(zip(read.ops, shares[0] * 1e6))
    # The gaps go to what starts next; the ten nanoseconds before the first kernel to nobody.
    assert by_name == pytest.approx({"model/conv": 30, "grad/conv": 40, "MemcpyH2D": 10, "count": 10})
    assert outside[0] * 1e6 == pytest.approx(10)
    assert charge_to(read.ops, ["model/conv", "grad/conv", "count"]).tolist().count(-1) == 1


def test_a_real_trace_gives_the_checked_in_shares(tmp_path):
    """Two steps of a small network on two x86 cores; another program added up the sums (make_trace.py)."""
    pytest.importorskip("tensorflow")
    (tmp_path / "t.xplane.pb").write_bytes(
        gzip.decompress((DATA / "small_network.xplane.pb.gz").read_bytes())
    )
    golden = json.loads((DATA / "small_network.json").read_text())
    read = read_trace(tmp_path / "t.xplane.pb")
    shares, outside = wall_shares(read)
    assert len(read.steps) == golden["steps"]
    by_name = dict(zip(read.ops, shares.sum(axis=0)))
    assert by_name.keys() == golden["ms"].keys()
    for name, ms in golden["ms"].items():
        assert by_name[name] == pytest.approx(ms, abs=2e-3), name
    # The step's wall time is all there, none twice.
    np.testing.assert_allclose(shares.sum(axis=1) + outside, np.diff(read.steps)[:, 0] / 1e6)


@pytest.mark.parametrize("content", [b"", b"no protobuf at all", b"\x0a\xff\xff\xff\xff\x0f"])
def test_a_file_without_steps_is_refused_by_name(tmp_path, content):
    pytest.importorskip("tensorflow")
    (tmp_path / "t.xplane.pb").write_bytes(content)
    with pytest.raises(RunError, match="t.xplane.pb"):
        read_trace(tmp_path / "t.xplane.pb")
