"""A run within a limit of memory: what it does less of, what it says, and what it refuses."""

import dataclasses
import re

import numpy as np
import pytest

pytest.importorskip("tensorflow")
from builders import ArrayData, image_batch, invented_profile, small_network, train_classifier
from elastictrainer import Trainer, UsageError
from elastictrainer.cache.settings import CacheSettings
from elastictrainer.experiment.settings import parse_bytes
from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.profiler.step_memory import StepMemory
from elastictrainer.runs import resident
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.selection import schemes
from elastictrainer.steps import optimizers
from elastictrainer.training import memory_limit, memory_needs
from elastictrainer.training.memory_limit import MemoryLimit
from log_lines import listen

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
    resident.keep_large_blocks()


@pytest.fixture
def model(tf):
    return small_network(tf)


def limit_of(model, above, cache=None, **options):
    """A limit of which so many bytes above what the process has now can be used."""
    optimizer = optimizers.make("sgd")
    optimizers.build(optimizer, model.trainable_variables)
    resident.release_memory()
    profile = with_memory(invented_profile(model), **options)
    limit = (resident.resident_bytes() + above) / memory_needs.usable(1.0)
    return MemoryLimit(limit, profile, model, optimizer, cache or CacheSettings())


def test_the_process_as_it_is_counts_as_taken(model):
    limit = limit_of(model, 1000 * _MB)
    assert limit.profile.memory.loaded == pytest.approx(resident.resident_bytes(), rel=0.05)
    assert limit.examples == 4 and limit.scale == 1


@pytest.mark.parametrize("grown, counted", [(0, 100), (30, 70), (400, 50)])
def test_a_graph_does_not_count_what_the_profile_of_this_process_has_set_up(model, grown, counted):
    """Of what stays after a profile's steps half is a graph at least; the other half is there once."""
    resident.release_large_blocks()
    resident.release_memory()
    now, n = resident.resident_bytes(), len(model.trainable_variables)
    graph = CostGroups.singletons(np.full(n, 100 * _MB / n))
    memory = StepMemory(CostGroups.singletons(np.zeros(n)), graph, 0.0, 0.0, now - grown * _MB, 4)
    profile = dataclasses.replace(invented_profile(model), memory=memory)
    optimizer = optimizers.make("sgd")
    optimizers.build(optimizer, model.trainable_variables)
    limit = MemoryLimit(now + 1000 * _MB, profile, model, optimizer, CacheSettings())
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
    assert limit.cache.kept_bytes == limit.cache_bytes
    assert limit_of(model, 1000 * _MB, CacheSettings(memory=5)).cache.kept_bytes == 5
    assert limit.step_bytes + limit.cache_bytes + 50 * _MB == pytest.approx(memory_needs.usable(limit._limit))


def test_less_and_less_trains_within_less_and_less(model):
    """A step of one tensor takes 40 MB, scores 100 MB for one example; 50 MB are for minibatches."""
    elastic, said = schemes.create("elastic"), listen()

    def scheme(above, solves=True):
        return limit_of(model, above * _MB).scheme(elastic, solves)

    assert scheme(190) is elastic and not said
    assert scheme(125).solver is schemes.create("freeze-below").solver
    assert "the last layers train. With" in said.pop()
    assert isinstance(scheme(70), schemes.HeadAlone)
    assert "the head alone is solved" in said.pop()
    with pytest.raises(UsageError, match=r"least, with the head alone in training, is [\d.]+GB\."):
        scheme(20)
    with pytest.raises(UsageError, match=r"least, with the last layers alone in training, is [\d.]+GB\."):
        scheme(70, solves=False)


def test_the_least_that_is_named_is_enough(model):
    for above, solves in ((20, True), (70, False)):
        with pytest.raises(UsageError) as refused:
            limit_of(model, above * _MB).scheme(schemes.create("elastic"), solves)
        least = parse_bytes(re.search(r"is (\S+)\.$", str(refused.value))[1])
        limit_of(model, least - resident.resident_bytes()).scheme(schemes.create("elastic"), solves)


def test_a_scheme_without_scores_needs_no_room_for_them(model):
    freeze_below = schemes.create("freeze-below")
    assert limit_of(model, 125 * _MB).scheme(freeze_below, True) is freeze_below


def test_full_steps_are_not_timed_where_none_fits(model):
    assert limit_of(model, 1000 * _MB).times_full_steps
    limit = limit_of(model, 125 * _MB)
    assert not limit.times_full_steps and limit.cache_bytes >= 0


def test_a_profile_without_memory_is_refused(model):
    with pytest.raises(UsageError, match="et-profile"):
        MemoryLimit(1e12, invented_profile(model), model, optimizers.make("sgd"), CacheSettings())


def test_a_scheme_that_does_not_select_has_nothing_to_leave_out(model):
    with pytest.raises(UsageError, match="full selects nothing"):
        Trainer(model, scheme="full", memory=10**9)


def test_memory_excludes_deterministic(model):
    with pytest.raises(UsageError, match="excludes deterministic=True"):
        Trainer(model, memory=10**9, deterministic=True)


def test_what_is_asked_for_is_rounded_up():
    assert memory_needs.size_to_ask_for(1.301e9) == "1.4GB"
    size = 1e9 * float(memory_needs.size_to_ask_for(2e9)[:-2])
    assert 2.02e9 <= memory_needs.usable(size) < 2.07e9, "two processes that do the same differ by some"


def test_a_run_that_will_not_fit_is_told_what_to_ask_for(model, monkeypatch):
    profile, said = with_memory(invented_profile(model)), listen()
    monkeypatch.setattr(resident, "available_bytes", lambda: 500 * _MB)
    memory_limit.note_shortage(profile)
    assert not said
    monkeypatch.setattr(resident, "available_bytes", lambda: 200 * _MB)
    memory_limit.note_shortage(profile)
    (note,) = said
    assert "--memory" in note and "are free" in note


def test_a_run_selects_only_what_fits_and_scores_on_what_fits(tf):
    """Ten tensors of 40 MB each: with 290 MB, of these 50 for minibatches, five may train."""
    model = small_network(tf)
    data = ArrayData(tf)
    profile = with_memory(invented_profile(model))
    resident.release_memory()
    limit = resident.resident_bytes() + 290 * _MB
    history = train_classifier(
        tf,
        model,
        data,
        profile=profile,
        epochs=2,
        rho=1.0,
        activation_cache="off",
        memory=limit,
    )
    for selection in history.selections:
        assert 1 <= len(selection["selected"]) <= 5
        assert selection["predicted_bytes"] <= limit


def test_a_resumed_run_with_less_room_says_so_and_does_not_solve_a_head_that_it_has(tf, tmp_path):
    """One tensor needs 90 MB above the process, with 50 of them for minibatches; the head alone 50."""

    def train(above, run, **options):
        resident.release_memory()
        model = small_network(tf)
        return train_classifier(
            tf,
            model,
            ArrayData(tf),
            profile=with_memory(invented_profile(model)),
            head="solve",
            activation_cache="off",
            run=run,
            memory=(resident.resident_bytes() + above * _MB) / memory_needs.usable(1.0),
            **options,
        )

    said = listen()
    assert train(70, RunFolder.create(tmp_path / "head"), epochs=2).elastic["steps"] == 1 and any(
        "head alone" in line for line in said
    )
    run = RunFolder.create(tmp_path / "run")
    train(1000, run, epochs=1)
    with pytest.raises(UsageError, match="The least, with the last layers alone in training"):
        train(70, run, epochs=2, resume=True)


def test_the_network_is_profiled_with_its_memory(tf):
    from builders import quick_profile

    profile = quick_profile(small_network(tf), image_batch(tf))
    memory = profile.memory
    assert memory.batch == 2
    full = np.ones(len(profile), bool)
    assert memory.measured is None or memory.step_bytes(full) == pytest.approx(memory.measured, rel=0.3)
    one = np.arange(len(profile)) == len(profile) - 1
    assert memory.step_bytes(one) < memory.step_bytes(full)
