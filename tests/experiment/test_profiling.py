"""Profiles as the commands make them, and what they tell the user about it."""

import dataclasses
import re

import numpy as np
import pytest

import usermodels
from builders import invented_profile, small_network
from elastictrainer import UsageError
from elastictrainer.experiment import profiling
from elastictrainer.experiment.quantities import parse_bytes
from elastictrainer.reuse.settings import ReuseSettings
from elastictrainer.runs import resident
from elastictrainer.steps import optimizers
from elastictrainer.training.memory_limit import MemoryLimit
from log_lines import listen


def batch(tf):
    return tf.zeros((2, 8, 8, 3)), tf.constant([0, 1])


def test_a_tensor_that_the_loss_does_not_depend_on_is_named(tf):
    said = listen()
    profile = profiling.make_profile(
        usermodels.unconnected((8, 8, 3), 2),
        batch(tf),
        tf.keras.optimizers.SGD(0.1),
        {"model": "mine"},
        warmup_steps=1,
        steps=2,
        calibrate_s=0.1,
    )
    assert profile.metadata["model"] == "mine" and not profile.estimated.any()
    (line,) = said
    (unused,) = [name for name in profile.names if "unused" in name]
    assert line.endswith(f": {unused}")


def test_the_least_that_is_asked_for_is_enough_for_the_run_behind_the_profile(tf):
    model, optimizer = small_network(tf), optimizers.make("sgd")
    images = tf.zeros((4, 8, 8, 3)), tf.zeros((4,), tf.int64)

    def limited(limit):
        resident.keep_nothing()
        profile = profiling.make_profile(
            model, images, optimizer, {}, limit, warmup_steps=1, steps=2, calibrate_s=0
        )
        return MemoryLimit(limit, profile, model, optimizer, ReuseSettings())

    try:
        with pytest.raises(UsageError, match="too little for this model") as refused:
            limited(1e6)
        least = parse_bytes(re.search(r"The least, .*, is (.*)\.$", str(refused.value))[1])
        assert limited(least).examples >= 1
        with pytest.raises(UsageError, match="too little for this model"):
            limited(least - 100e6)
    finally:
        resident.keep_as_usual()


@pytest.mark.parametrize("estimated", [["second/kernel"], ["first/bias", "head/kernel"], []])
def test_tensors_whose_time_is_estimated_are_named(tf, monkeypatch, estimated):
    model = usermodels.good((8, 8, 3), 2)
    measured = invented_profile(model)
    marked = dataclasses.replace(measured, estimated=np.isin(measured.names, estimated))
    monkeypatch.setattr(profiling, "profile_model", lambda *arguments, **options: marked)
    said = listen()
    monkeypatch.setattr(profiling, "with_reuse_costs", lambda profile, *arguments, **options: profile)
    assert profiling.make_profile(model, batch(tf), None, {}) is marked
    lines = [line for line in said if "estimated from FLOPs" in line]
    assert [line.split(": ")[-1].split(", ") for line in lines] == ([estimated] if estimated else [])
