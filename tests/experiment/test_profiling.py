"""Profiles as the commands make them, and what they tell the user about it."""

import dataclasses
import re

import numpy as np
import pytest

import usermodels
from builders import invented_profile, small_network
from elastictrainer import UsageError
from elastictrainer.experiment import assembly, profiling
from elastictrainer.experiment.settings import TrainSettings, parse_bytes
from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.profiler.profile_model import traced_memory
from elastictrainer.runs import resident
from elastictrainer.selection import schemes
from elastictrainer.steps import optimizers
from elastictrainer.training.memory import limited
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


def test_within_a_limit_a_profile_is_made_where_one_example_fits(tf, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, optimizer, said = small_network(tf), optimizers.make("sgd"), listen()
    images = tf.zeros((4, 8, 8, 3)), tf.zeros((4,), tf.int64)
    metadata = assembly.profile_metadata(TrainSettings(), model, (8, 8, 3), 2)
    scheme = schemes.create("elastic")

    def with_larger_activations(step, batch):
        """Memory of a step on which each tensor holds 40 MB more."""
        made = traced_memory(step, batch)
        more = CostGroups.singletons(np.full(made.held.tensors, 40e6))
        return dataclasses.replace(made, held=made.held.joined(more))

    monkeypatch.setattr(profiling, "traced_memory", with_larger_activations)

    def obtained(limit, solves=True):
        return profiling.obtain_profile(
            model, metadata, lambda: images, optimizer, scheme, 0.0, limit=limit, solves=solves
        )

    with pytest.raises(UsageError, match="The least, with the head alone in training, is"):
        obtained(1e6)
    with pytest.raises(UsageError, match="The least, with the last layers alone in training") as refused:
        obtained(1e6, solves=False)
    least = parse_bytes(re.search(r"is (\S+)\.$", str(refused.value))[1])
    assert obtained(least - 80e6) is None and "the head alone is solved" in said[-1]
    profile = obtained(least)
    assert limited(least, profile, resident.settled_bytes()).scheme(scheme, True).selects


@pytest.mark.parametrize("estimated", [["second/kernel"], ["first/bias", "head/kernel"], []])
def test_tensors_whose_time_is_estimated_are_named(tf, monkeypatch, estimated):
    model = usermodels.good((8, 8, 3), 2)
    measured = invented_profile(model)
    marked = dataclasses.replace(measured, estimated=np.isin(measured.names, estimated))
    monkeypatch.setattr(profiling, "profile_model", lambda *arguments, **options: marked)
    said = listen()
    monkeypatch.setattr(profiling, "with_cache_costs", lambda profile, *arguments, **options: profile)
    assert profiling.make_profile(model, batch(tf), None, {}) is marked
    lines = [line for line in said if "estimated from FLOPs" in line]
    assert [line.split(": ")[-1].split(", ") for line in lines] == ([estimated] if estimated else [])
