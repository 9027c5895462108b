"""Capture the small trace that test_xplane.py reads, and add up its shares in another way than the parser.

    python tests/files/make_trace.py

The other route: walk the time in steps of 50 ns; at each, find the innermost op of every thread, and give
each an equal part of the step; where no op runs, the part goes to the op that starts next.
"""

import gzip
import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from builders import small_network
from elastictrainer import Objective, optimizers
from elastictrainer.profiler.xplane import STEP_EVENT
from elastictrainer.steps.compiled_step import CompiledStep
from elastictrainer.steps.objective import classification_loss

STEPS, TICK_NS = 2, 50


def capture() -> bytes:
    tf.keras.utils.set_random_seed(0)
    model = small_network(tf)
    optimizer = optimizers.make("sgd")
    optimizers.build(optimizer, model.trainable_weights)
    step = CompiledStep(Objective(model, classification_loss()), optimizer, model.trainable_weights)
    batch = tf.random.normal((4, 8, 8, 3)), tf.constant([0, 1, 2, 0])
    for _ in range(4):
        step(*batch)
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder, tf.profiler.experimental.ProfilerOptions(2, 0, 0))
        for k in range(STEPS):
            with tf.profiler.experimental.Trace(STEP_EVENT, step_num=k):
                float(step(*batch))
        tf.profiler.experimental.stop()
        space = xplane_pb2.XSpace()
        space.ParseFromString(next(Path(folder).rglob("*.xplane.pb")).read_bytes())
    kept = xplane_pb2.XSpace()  # the events alone: no host names, no task descriptions
    for plane in space.planes:
        if plane.name == "/host:CPU":
            copy = kept.planes.add(name=plane.name)
            for line in plane.lines:
                new = copy.lines.add(id=line.id, timestamp_ns=line.timestamp_ns)
                for event in line.events:
                    new.events.add(
                        metadata_id=event.metadata_id,
                        offset_ps=event.offset_ps,
                        duration_ps=event.duration_ps,
                    )
                    copy.event_metadata[event.metadata_id].CopyFrom(plane.event_metadata[event.metadata_id])
    return kept.SerializeToString()


def walk(content: bytes) -> dict:
    space = xplane_pb2.XSpace()
    space.ParseFromString(content)
    plane = space.planes[0]
    threads, steps = [], []
    for line in plane.lines:
        ops = []
        for event in line.events:
            name = plane.event_metadata[event.metadata_id].name
            start = line.timestamp_ns + event.offset_ps / 1000
            end = start + event.duration_ps / 1000
            if name == STEP_EVENT:
                steps.append((start, end))
            elif ":" in name and "::" not in name and ": " not in name:
                ops.append((start, end, name.rsplit(":", 1)[0]))
        threads.append(ops)
    ms = {}
    everything = [op for ops in threads for op in ops]
    for step_start, step_end in steps:
        inside = [op for op in everything if op[0] < step_end and op[1] > step_start]
        first, last = min(op[0] for op in inside), max(op[1] for op in inside)
        now = first + TICK_NS / 2
        while now < last:
            running = []
            for ops in threads:
                here = [op for op in ops if op[0] <= now < op[1]]
                if here:
                    running.append(max(here)[2])
            if not running:
                running = [min(op for op in inside if op[0] > now)[2]]
            for name in running:
                ms[name] = ms.get(name, 0.0) + TICK_NS / 1e6 / len(running)
            now += TICK_NS
    return {"steps": len(steps), "ms": ms}


if __name__ == "__main__":
    content = capture()
    (HERE / "small_network.xplane.pb.gz").write_bytes(gzip.compress(content, mtime=0))
    (HERE / "small_network.json").write_text(json.dumps(walk(content), indent=1, sort_keys=True) + "\n")
