"""A run within a limit of memory: what it does less of, what it says, and what it refuses."""

import dataclasses

import numpy as np
import pytest

pytest.importorskip("tensorflow")
from builders import ArrayData, image_batch, invented_profile, small_network, train_classifier
from elastictrainer import Trainer, UsageError
from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.profiler.step_memory import StepMemory
from elastictrainer.reuse.settings import ReuseSettings
from elastictrainer.runs import resident
from elastictrainer.steps import optimizers
from elastictrainer.training import memory_limit
from elastictrainer.training.memory_limit import MemoryLimit

_MB = 1e6


def with_memory(profile, held=400 * _MB):
    """A profile under which every tensor holds the same, the rest of a step nothing."""
    n = len(profile)
    each = StepMemory(
        CostGroups.singletons(np.full(n, held / n)), CostGroups.singletons(np.zeros(n)), 0.0, 0.0, 1.0, 4
    )
    return dataclasses.replace(profile, memory=each)


@pytest.fixture(autouse=True)
def as_usual_afterwards():
    yield
    resident.keep_as_usual()


@pytest.fixture
def model(tf):
    return small_network(tf)


def limit_of(model, above, reuse=None, **options):
    """A limit of which so many bytes above what the process has now can be used."""
    optimizer = optimizers.make("sgd")
    optimizers.build(optimizer, model.trainable_variables)
    resident.give_back()
    profile = with_memory(invented_profile(model), **options)
    limit = (resident.resident_bytes() + above) / memory_limit.usable(1.0)
    return MemoryLimit(limit, profile, model, optimizer, reuse or ReuseSettings())


def test_the_process_as_it_is_counts_as_taken(model):
    limit = limit_of(model, 1000 * _MB)
    assert limit.profile.memory.loaded == pytest.approx(resident.resident_bytes(), rel=0.05)
    assert limit.examples == 4 and limit.scale == 1


@pytest.mark.parametrize("grown, counted", [(0, 100), (30, 70), (400, 50)])
def test_a_graph_does_not_count_what_the_profile_of_this_process_has_set_up(model, grown, counted):
    """Of what stays after a profile's steps half is a graph at least; the other half is there once."""
    resident.keep_nothing()
    resident.give_back()
    now, n = resident.resident_bytes(), len(model.trainable_variables)
    graph = CostGroups.singletons(np.full(n, 100 * _MB / n))
    memory = StepMemory(CostGroups.singletons(np.zeros(n)), graph, 0.0, 0.0, now - grown * _MB, 4)
    profile = dataclasses.replace(invented_profile(model), memory=memory)
    optimizer = optimizers.make("sgd")
    optimizers.build(optimizer, model.trainable_variables)
    limit = MemoryLimit(now + 1000 * _MB, profile, model, optimizer, ReuseSettings())
    assert limit.profile.memory.graph.amount.sum() / _MB == pytest.approx(counted, abs=8)


def test_full_steps_that_do_not_fit_take_fewer_examples_and_their_times_are_scaled(model, tf):
    limit = limit_of(model, 280 * _MB)  # of 400 MB a half fits, with 50 MB for minibatches
    assert limit.examples == 2 and 1 < limit.scale <= 2
    images = tf.ones((4, 8, 8, 3))
    x, (y, weights) = next(limit.shortened(lambda number: [(images, (tf.ones((4,)), None))])(0))
    assert x.shape[0] == y.shape[0] == 2 and weights is None
    assert any("2 of 4 images" in line for line in limit.lines())


def test_the_cache_gets_a_quarter_of_what_the_cheapest_step_leaves(model):
    limit = limit_of(model, 1000 * _MB)
    left = 1000 * _MB - 40 * _MB - 50 * _MB  # the cheapest tensor; minibatches
    assert limit.cache_bytes == pytest.approx(left / 4, rel=0.02)
    assert limit.reuse.kept_bytes == limit.cache_bytes
    assert limit_of(model, 1000 * _MB, ReuseSettings(memory=5)).reuse.kept_bytes == 5
    assert limit.step_bytes + limit.cache_bytes + 50 * _MB == pytest.approx(memory_limit.usable(limit._limit))


def test_the_file_of_a_large_model_counts_as_keras_makes_it_in_memory(model, monkeypatch):
    small = limit_of(model, 1000 * _MB)
    monkeypatch.setattr(memory_limit, "file_bytes", lambda variables, optimizer: 450.0 * _MB)
    large = limit_of(model, 1000 * _MB)
    taken = small.step_bytes + small.cache_bytes - large.step_bytes - large.cache_bytes
    assert taken == pytest.approx((450 - 50) * _MB, rel=0.02), "50 MB are for a small one, and minibatches"
    with pytest.raises(UsageError, match="least"):
        limit_of(model, 450 * _MB)


def test_too_little_is_refused_with_the_least_to_ask_for(model):
    with pytest.raises(UsageError, match=r"least.* [\d.]+GB\."):
        limit_of(model, 60 * _MB)


def test_a_profile_without_memory_is_refused(model):
    with pytest.raises(UsageError, match="et-profile"):
        MemoryLimit(1e12, invented_profile(model), model, optimizers.make("sgd"), ReuseSettings())


def test_a_scheme_that_does_not_select_has_nothing_to_leave_out(model):
    with pytest.raises(UsageError, match="full selects nothing"):
        Trainer(model, scheme="full", memory=10**9)


def test_memory_excludes_deterministic(model):
    with pytest.raises(UsageError, match="excludes deterministic=True"):
        Trainer(model, memory=10**9, deterministic=True)


def test_what_is_asked_for_is_rounded_up():
    assert memory_limit.size_to_ask_for(1.301e9) == "1.4GB"
    size = 1e9 * float(memory_limit.size_to_ask_for(2e9)[:-2])
    assert 2.02e9 <= memory_limit.usable(size) < 2.07e9, "two processes that do the same differ by some"


def test_a_run_that_will_not_fit_is_told_what_to_ask_for(model, monkeypatch):
    monkeypatch.setattr(resident, "available_bytes", lambda: 200 * _MB)
    remark = memory_limit.shortage_note(with_memory(invented_profile(model)))
    assert "--memory" in remark and "are free" in remark
    monkeypatch.setattr(resident, "available_bytes", lambda: 500 * _MB)
    assert memory_limit.shortage_note(with_memory(invented_profile(model))) == ""


def test_a_run_selects_only_what_fits_and_scores_on_what_fits(tf):
    """Ten tensors of 40 MB each: with 290 MB, of these 50 for minibatches, five may train."""
    model = small_network(tf)
    data = ArrayData(tf)
    profile = with_memory(invented_profile(model))
    resident.give_back()
    limit = resident.resident_bytes() + 290 * _MB
    history = train_classifier(
        tf,
        model,
        data,
        profile=profile,
        epochs=2,
        rho=1.0,
        reuse="off",
        memory=limit,
    )
    for selection in history.selections:
        assert 1 <= len(selection["selected"]) <= 5
        assert selection["predicted_bytes"] <= limit


def test_the_network_is_profiled_with_its_memory(tf):
    from builders import quick_profile

    profile = quick_profile(small_network(tf), image_batch(tf))
    memory = profile.memory
    assert memory.batch == 2
    full = np.ones(len(profile), bool)
    assert memory.measured is None or memory.step_bytes(full) == pytest.approx(memory.measured, rel=0.3)
    one = np.arange(len(profile)) == len(profile) - 1
    assert memory.step_bytes(one) < memory.step_bytes(full)
