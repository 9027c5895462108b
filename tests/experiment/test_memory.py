"""Whether a step fits into the memory."""

import pytest

pytest.importorskip("tensorflow")
from elastictrainer import UsageError
from elastictrainer.experiment import memory
from elastictrainer.models import zoo


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
    model = zoo.create("mobilenetv2", 2, image_size=96, weights="none")
    memory.require_enough(model, 4)
    with pytest.raises(UsageError, match="a step of 1000000 images of 96x96 pixels.*Lower --batch-size"):
        memory.require_enough(model, 1_000_000)
