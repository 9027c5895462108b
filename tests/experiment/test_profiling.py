"""Profiles as the commands make them, and what they tell the user about it."""

import dataclasses
import re
from types import SimpleNamespace

import numpy as np
import pytest

import usermodels
from builders import invented_profile, small_network
from elastictrainer import UsageError
from elastictrainer.cache.settings import CacheSettings
from elastictrainer.experiment import profiling
from elastictrainer.experiment.settings import TrainSettings, parse_bytes
from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.profiler.profile_model import TooSlow, traced_memory
from elastictrainer.runs import resident
from elastictrainer.selection import schemes
from elastictrainer.steps import optimizers
from elastictrainer.training.memory import limited
from log_lines import listen


def batch(tf):
    return tf.zeros((2, 8, 8, 3)), tf.constant([0, 1])


def run_of(tf, model, options):
    """What a run on images of 8x8 pixels with these options of the command line is made of."""
    images = tf.zeros((4, 8, 8, 3)), tf.zeros((4,), tf.int64)
    data = SimpleNamespace(image_size=(8, 8), class_names=("a", "b"), train=lambda epoch: iter([images]))
    return TrainSettings(**dict(options)), data, model, optimizers.make("sgd")


def obtained(tf, model, options=(), **more):
    """The profile that such a run makes."""
    return profiling.obtain_profile(*run_of(tf, model, options), schemes.create("elastic"), **more)


def test_a_tensor_that_the_loss_does_not_depend_on_is_named(tf):
    said = listen()
    model, sgd = usermodels.unconnected((8, 8, 3), 2), tf.keras.optimizers.SGD(0.1)
    options = {"warmup_steps": 1, "steps": 2, "calibrate_s": 0.1}
    profile = profiling.make_profile(model, batch(tf), sgd, {"model": "mine"}, **options)
    assert profile.metadata["model"] == "mine" and not profile.estimated.any()
    (line,) = said
    (unused,) = [name for name in profile.names if "unused" in name]
    assert line.endswith(f": {unused}")


def test_within_a_limit_a_profile_is_made_where_one_example_fits(tf, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, said, scheme = small_network(tf), listen(), schemes.create("elastic")

    def with_larger_activations(step, batch):
        """Memory of a step on which each tensor holds 40 MB more."""
        made = traced_memory(step, batch)
        more = CostGroups.singletons(np.full(made.held.tensors, 40e6))
        return dataclasses.replace(made, held=made.held.joined(more))

    monkeypatch.setattr(profiling, "traced_memory", with_larger_activations)

    def within(limit):
        return obtained(tf, model, {"calibration_seconds": 0.0}, limit=limit)

    def without(limit, solves=True, **options):
        run = run_of(tf, model, {"scheme": "elastic", **options})
        return profiling.without_profile(*run, CacheSettings(), limit, solves)[0]

    with pytest.raises(UsageError, match="The least, with the head alone in training, is"):
        without(1e6)
    with pytest.raises(UsageError, match="The least, with the last layers alone in training") as refused:
        without(1e6, solves=False)
    least = parse_bytes(re.search(r"is (\S+GB);", str(refused.value))[1])
    assert within(least - 80e6) is None
    assert not without(least - 80e6).trains and "the head alone is solved" in said[-1]
    assert without(1e12, time="10m").tensors == 3, "a quarter of ten: they need no profile"
    profile = within(least)
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


@pytest.mark.parametrize(
    "time, age_s, expected",
    [
        (None, 900.0, "whole"),
        ("50m", 5.0, "whole"),
        ("200s", 5.0, "short"),
        ("140s", 5.0, ""),
        ("200s", 12.0, ""),
    ],
)
def test_a_profile_is_made_where_it_fits_into_a_tenth_of_the_time(
    tf, tmp_path, monkeypatch, time, age_s, expected
):
    """Where loading took long the device is slow, or other programs run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(profiling, "process_age_s", lambda: age_s)
    model, made, said = small_network(tf), [], listen()

    def make(*arguments, **options):
        made.append("short" if options.get("must_fit") else "whole")
        profile = invented_profile(model)
        profile.metadata["calibration_seconds"] = options["calibrate_s"]
        return profile

    monkeypatch.setattr(profiling, "make_profile", make)
    profile = obtained(tf, model, {"time": time})
    assert made == [expected][: bool(expected)] and (profile is None) == (not expected)
    assert len(list(tmp_path.glob("profiles/*.json"))) == (expected == "whole")
    assert any("no profile: " in line for line in said) == (not expected)


@pytest.mark.parametrize("share, kept", [(0.4, 0), (0.6, 1)])
def test_a_profile_with_too_little_calibration_is_for_its_run_alone(tf, tmp_path, monkeypatch, share, kept):
    monkeypatch.chdir(tmp_path)
    model, said = small_network(tf), listen()

    def make(*arguments, **options):
        profile = invented_profile(model)
        profile.metadata["calibration_seconds"] = share * options["calibrate_s"]
        return profile

    monkeypatch.setattr(profiling, "make_profile", make)
    assert obtained(tf, model, {}) is not None
    assert len(list(tmp_path.glob("profiles/*.json"))) == kept
    assert any("for this run alone" in line for line in said) == (not kept)


def test_a_profile_whose_graph_takes_too_long_is_given_up(tf):
    model, optimizer = usermodels.good((8, 8, 3), 2), optimizers.make("sgd")
    options = {"warmup_steps": 1, "steps": 2, "calibrate_s": 0.1, "must_fit": True}
    with pytest.raises(TooSlow):
        profiling.make_profile(model, batch(tf), optimizer, {}, allowed_s=1e-3, **options)
    assert profiling.make_profile(model, batch(tf), optimizer, {}, allowed_s=600.0, **options).full_ms > 0
