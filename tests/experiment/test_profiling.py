"""Profiles as the commands make them, and what they tell the user about it."""

import dataclasses

import numpy as np
import pytest

import usermodels
from builders import invented_timings
from elastictrainer.experiment import profiling
from log_lines import listen


def batch(tf):
    return tf.zeros((2, 8, 8, 3)), tf.constant([0, 1])


def test_a_tensor_that_the_loss_does_not_depend_on_is_named(tf):
    said = listen()
    timings = profiling.make_profile(
        usermodels.unconnected((8, 8, 3), 2),
        batch(tf),
        tf.keras.optimizers.SGD(0.1),
        {"model": "mine"},
        warmup=1,
        steps=2,
        calibrate_s=0.1,
    )
    assert timings.metadata["model"] == "mine" and not timings.estimated.any()
    (line,) = said
    (unused,) = [name for name in timings.names if "unused" in name]
    assert line.endswith(f": {unused}")


@pytest.mark.parametrize("estimated", [["second/kernel"], ["first/bias", "head/kernel"], []])
def test_tensors_whose_time_is_estimated_are_named(tf, monkeypatch, estimated):
    model = usermodels.good((8, 8, 3), 2)
    measured = invented_timings(model)
    marked = dataclasses.replace(measured, estimated=np.isin(measured.names, estimated))
    monkeypatch.setattr(profiling, "profile_model", lambda *arguments, **options: marked)
    said = listen()
    monkeypatch.setattr(profiling, "with_reuse_costs", lambda timings, *arguments: timings)
    assert profiling.make_profile(model, batch(tf), None, {}) is marked
    lines = [line for line in said if "estimated from FLOPs" in line]
    assert [line.split(": ")[-1].split(", ") for line in lines] == ([estimated] if estimated else [])
