"""The check that a step fits into the memory."""

import subprocess
import sys

import pytest

pytest.importorskip("tensorflow")
from elastictrainer import UsageError
from elastictrainer.experiment import memory
from elastictrainer.models import zoo
from elastictrainer.runs import resident


def test_the_outputs_of_all_layers_count(tf):
    model = tf.keras.Sequential(
        [tf.keras.Input((10, 10, 3)), tf.keras.layers.Conv2D(5, 3), tf.keras.layers.Flatten()]
    )
    nested = tf.keras.Sequential([tf.keras.Input((10, 10, 3)), model])
    assert memory.step_bytes(model, 2) == memory.step_bytes(nested, 2) == 0.5 * 4 * 2 * (8 * 8 * 5) * 2


def test_what_a_step_takes_is_not_overestimated():
    """Measured by scripts/benchmarks/memory.py: 440 MB above what was resident, for four images."""
    model = zoo.create("mobilenetv2", 200, weights="none")
    assert 50e6 < memory.step_bytes(model, 4) < 440e6


def test_what_cannot_fit_is_told_with_the_way_out(monkeypatch):
    model = zoo.create("demo", 2, weights="none")
    memory.require_enough(model, 4)
    with pytest.raises(UsageError, match="10000000 images of 32x32"):
        memory.require_enough(model, 10_000_000)


def test_a_limit_is_a_size_or_three_quarters_of_what_is_free(monkeypatch):
    assert memory.limit(None) is None
    monkeypatch.setattr(resident, "release_large_blocks", lambda: True)  # it is for the rest of the process
    assert memory.limit("1.5GB") == 1.5e9
    monkeypatch.setattr(resident, "available_bytes", lambda: 3 * 10**9)
    monkeypatch.setattr(resident, "resident_bytes", lambda: 10**9)
    assert memory.limit("auto") == 3e9


def test_a_run_within_a_limit_gives_back_what_its_largest_step_took():
    code = """
import tensorflow as tf
from elastictrainer.runs import resident
resident.use_system_allocator()
tf.ones(1)
before = resident.resident_bytes()
large = tf.ones((2**25,))
grown = resident.resident_bytes() - before
del large
resident.release_memory()
print(grown / 2**20, (resident.resident_bytes() - before) / 2**20)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    grown, kept = map(float, done.stdout.split())
    assert grown > 100
    assert kept < 32


def test_a_limit_on_a_gpu_is_refused(tf, monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["one"])
    with pytest.raises(UsageError, match="GPU"):
        memory.limit("1GB")
