"""A run within a limit of memory: what it does less of, what it says, and what it refuses."""

import dataclasses
import re

import numpy as np
import pytest

pytest.importorskip("tensorflow")
from builders import ArrayData, compiled_trainer, invented_profile, small_network, train_classifier
from elastictrainer import Trainer, UsageError
from elastictrainer.cache.settings import CacheSettings
from elastictrainer.experiment import profiling
from elastictrainer.experiment.settings import parse_bytes
from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.profiler.memory import StepMemory
from elastictrainer.runs import resident
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.selection import schemes
from elastictrainer.training.memory import limited, size_to_ask_for, weight_bytes
from log_lines import listen

_MB = 1e6


@pytest.fixture(autouse=True)
def as_usual_afterwards(monkeypatch):
    """The allocator of this process stays as it is: other tests follow."""
    monkeypatch.setattr(resident, "give_back_freed_memory", lambda: None)


@pytest.fixture
def profile(tf):
    """Under which each of ten tensors holds 40 MB, the rest of a step nothing."""
    profile = invented_profile(small_network(tf))
    n = len(profile)
    held, nothing = CostGroups.singletons(np.full(n, 400 * _MB / n)), CostGroups.singletons(np.zeros(n))
    return dataclasses.replace(profile, memory=StepMemory(held, nothing, 0.0, 0.0, 1.0, 4, nothing))


def limit_of(profile, above, resident_bytes=500 * _MB, **options):
    """A limit of which so many bytes above what the process has can be used."""
    return limited((resident_bytes + above) / 0.97, profile, resident_bytes, **options)


def now(above):
    """A limit of which so many bytes above what this process has now can be used."""
    return (resident.settled_bytes() + above) / 0.97


def test_the_process_as_it_is_counts_as_taken(profile):
    limit = limit_of(profile, 1000 * _MB)
    assert limit.step.loaded == 500 * _MB and limit.usable == pytest.approx(1500 * _MB)
    assert limit.examples == 4 and limit.scale == 1 and limit.times_full_steps
    small = limit_of(profile, 125 * _MB)
    assert not small.times_full_steps and small.cache_bytes >= 0


def test_full_steps_that_do_not_fit_take_fewer_examples_and_their_times_are_scaled(profile):
    limit = limit_of(profile, 280 * _MB)  # of 400 MB a half fits, with 50 MB for minibatches
    assert limit.examples == 2 and 1 < limit.scale <= 2
    assert any("2 of 4 images" in line for line in limit.lines())


def test_the_cache_gets_a_quarter_of_what_the_cheapest_step_leaves(profile):
    limit = limit_of(profile, 1000 * _MB)
    left = 1000 * _MB - 40 * _MB - 50 * _MB  # the cheapest tensor; minibatches
    assert limit.cache_bytes == pytest.approx(left / 4, rel=0.02)
    assert limit.cache(CacheSettings()).kept_bytes == limit.cache_bytes
    assert limit.cache(CacheSettings(memory=5)).kept_bytes == 5
    assert limit.step_bytes + limit.cache_bytes + 50 * _MB == pytest.approx(limit.usable)


def test_without_a_profile_as_many_of_the_last_layers_train_as_fit(profile):
    count = len(profile)
    quarter = int(schemes.LastLayers().of(count).sum())

    def last(above):
        return limit_of(profile, above * _MB).last_layers()

    assert last(10_000).tensors == quarter
    assert last(60) is None
    for above in range(80, 800, 20):
        limit, found = limit_of(profile, above * _MB), last(above)
        takes = [limit.last_layers_bytes(n) for n in range(2, quarter + 1)]
        assert (1 if found is None else found.tensors) == 1 + sum(np.array(takes) <= limit.usable)


def test_less_and_less_trains_within_less_and_less(profile):
    """A step of one tensor takes 40 MB, scores 100 MB for one example; 50 MB are for minibatches."""
    elastic, said = schemes.create("elastic"), listen()

    def scheme(above, solves=True, **options):
        return limit_of(profile, above * _MB).scheme(elastic, solves, **options)

    assert scheme(190) is elastic and not said
    assert scheme(125).solver is schemes.create("freeze-below").solver
    assert "the late layers train. With" in said.pop()
    assert isinstance(scheme(125, least=1e9), schemes.HeadAlone), "no room to make a profile"
    assert isinstance(scheme(70), schemes.HeadAlone)
    assert "the head alone is solved" in said.pop()
    freeze_below = schemes.create("freeze-below")
    assert limit_of(profile, 125 * _MB).scheme(freeze_below, True) is freeze_below, "it needs no scores"


@pytest.mark.parametrize("above, solves, what", [(20, True, "head"), (70, False, "last layers")])
def test_the_least_that_is_named_is_enough(profile, above, solves, what):
    elastic, message = (
        schemes.create("elastic"),
        rf"least, with the {what} alone in training, is \S+GB; a smaller",
    )
    with pytest.raises(UsageError, match=message) as refused:
        limit_of(profile, above * _MB).scheme(elastic, solves)
    least = parse_bytes(re.search(r"is (\S+GB);", str(refused.value))[1])
    limited(least, profile, 500 * _MB).scheme(elastic, solves)


def test_large_weights_are_not_copied_but_steps_undone(profile, tmp_path):
    slots = CostGroups.singletons(np.full(len(profile), 10 * _MB))
    small = limit_of(profile, 1000 * _MB)
    assert not small.must_undo and small.weights_folder is None
    large = dataclasses.replace(
        small, weights=weight_bytes([(100, 10**6)]), step=dataclasses.replace(small.step, slots=slots)
    )
    assert large.must_undo and large.weights_folder is not None and not large.times_full_steps
    assert dataclasses.replace(large, folder=tmp_path).weights_folder == tmp_path
    assert large.measuring_bytes(4) == pytest.approx(small.measuring_bytes(4), abs=_MB), "no slots, no copies"


def test_a_profile_without_memory_is_refused(profile):
    with pytest.raises(UsageError, match="et-profile"):
        limited(1e12, dataclasses.replace(profile, memory=None), 0.0)


def test_requests_that_a_limit_excludes_are_refused(tf):
    model = small_network(tf)
    with pytest.raises(UsageError, match="full selects nothing"):
        Trainer(model, scheme="full", memory=10**9)
    with pytest.raises(UsageError, match="excludes deterministic=True"):
        Trainer(model, memory=10**9, deterministic=True)


def test_what_is_asked_for_is_rounded_up():
    assert size_to_ask_for(1.301e9) == "1.4GB"
    size = 1e9 * float(size_to_ask_for(2e9)[:-2])
    assert 2.02e9 <= 0.97 * size < 2.07e9, "two processes that do the same differ by some"


def test_a_limit_is_a_size_or_three_quarters_of_what_is_free(tf, monkeypatch):
    assert profiling.memory_limit(None) is None
    assert profiling.memory_limit("1.5GB") == 1.5e9
    monkeypatch.setattr(resident, "available_bytes", lambda: 3 * 10**9)
    monkeypatch.setattr(resident, "resident_bytes", lambda: 10**9)
    assert profiling.memory_limit("auto") == 3e9
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["one"])
    with pytest.raises(UsageError, match="GPU"):
        profiling.memory_limit("1GB")


def test_a_run_that_will_not_fit_is_told_what_to_ask_for(profile, monkeypatch):
    said = listen()
    monkeypatch.setattr(resident, "available_bytes", lambda: 500 * _MB)
    profiling.note_shortage(profile)
    assert not said
    monkeypatch.setattr(resident, "available_bytes", lambda: 200 * _MB)
    profiling.note_shortage(profile)
    (note,) = said
    assert "--memory" in note and "are free" in note


def test_a_run_selects_only_what_fits_and_scores_on_what_fits(tf, profile):
    """Ten tensors of 40 MB each: with 290 MB, of these 50 for minibatches, five may train."""
    limit = resident.settled_bytes() + 290 * _MB
    options = {"profile": profile, "epochs": 2, "rho": 1.0, "activation_cache": "off", "memory": limit}
    history = train_classifier(tf, small_network(tf), ArrayData(tf), **options)
    for selection in history.selections:
        assert 1 <= len(selection["selected"]) <= 5
        assert selection["predicted_bytes"] <= limit


def test_a_trainer_counts_the_same_for_a_step_in_every_fit(tf, profile):
    """A graph of 40 MB: it is as large in the third call as in the first."""
    n = len(profile)
    graph = CostGroups.singletons(np.full(n, 40 * _MB / n))
    profile.memory = dataclasses.replace(profile.memory, graph=graph)
    model, images = small_network(tf), tf.random.normal((16, 8, 8, 3))
    trainer = compiled_trainer(
        tf, model, profile=profile, rho=1.0, activation_cache="off", memory=now(1000 * _MB)
    )
    for _ in range(3):
        trainer.fit(images, tf.zeros((16,), tf.int64), batch_size=4, epochs=1, verbose=0)
        assert trainer.profile.memory.graph_bytes == pytest.approx(40 * _MB)


def test_a_resumed_run_with_less_room_says_so_and_does_not_solve_a_head_that_it_has(tf, profile, tmp_path):
    """One tensor needs 90 MB above the process, with 50 of them for minibatches; the head alone 50."""

    def train(above, run, **options):
        options.update(profile=profile, head="solve", activation_cache="off", memory=now(above * _MB))
        return train_classifier(tf, small_network(tf), ArrayData(tf), run=run, **options)

    said, run = listen(), RunFolder.create(tmp_path / "run")
    alone = RunFolder.create(tmp_path / "head")
    assert train(70, alone, epochs=2).elastic["steps"] == 1
    assert any("head alone" in line for line in said)
    assert train(70, alone, epochs=2, resume=True).elastic["scheme"] == "head-alone"
    train(1000, run, epochs=1)
    with pytest.raises(UsageError, match="The least, with the last layers alone in training"):
        train(70, run, epochs=2, resume=True)
