"""Runs with an activation cache, through `Trainer.fit`."""

import dataclasses
import itertools
import os
import signal

import numpy as np
import pytest

from builders import (
    ArrayData,
    bright_images,
    compiled_trainer,
    invented_profile,
    train_classifier,
    weights_of,
)
from cache_builders import with_reuse
from clocks import SetClock
from elastictrainer import Deadline, RunFolder
from elastictrainer.cache.settings import CacheSettings
from elastictrainer.errors import DataError, Interrupted
from elastictrainer.profiler.cost_groups import CostGroups
from log_lines import listen
from networks import augmented, residual, updating_statistics

EXACT = CacheSettings(dtype="float32")


def profile_of(model):
    """An invented profile under which much of a step is forward work that can be done once."""
    profile = with_reuse(invented_profile(model))
    n = len(profile)
    forward = CostGroups.from_sets(n, [(), *(range(k + 1) for k in range(n))], [0.2] + [0.3] * n)
    times = ("write_ms", "write_ms_per_mb", "read_ms", "read_ms_per_mb")
    cheap = {"cut_mb": np.full(n, 0.01), **dict.fromkeys(times, 1e-3)}
    return dataclasses.replace(
        profile, forward=forward, cache=dataclasses.replace(profile.cache, once=forward, **cheap)
    )


def run_of(tf, network=residual, data=None, seed=1, **options):
    """A run on arrays, always the same; returns its model, its figures and what it said."""
    tf.keras.utils.set_random_seed(seed)
    model, said = network(tf), listen()
    usual = {"activation_cache": EXACT, "epochs": 8, "profile": profile_of(model), "rho": 0.4, "interval": 4}
    optimizer, data = tf.keras.optimizers.SGD(0.05, momentum=0.9), data or ArrayData(tf, steps=12)
    options = {**usual, "deterministic": True, **options}
    return model, train_classifier(tf, model, data, optimizer, **options), said


def assert_equal(model, other):
    for one, another in zip(weights_of(model), weights_of(other)):
        np.testing.assert_array_equal(one, another)


def trainer_of(tf, **options):
    """A trainer of the residual network, always the same."""
    tf.keras.utils.set_random_seed(1)
    model = residual(tf)
    options = {"profile": profile_of(model), "rho": 0.4, "interval": 3, "activation_cache": EXACT, **options}
    return compiled_trainer(tf, model, deterministic=True, **options)


def test_most_steps_of_a_run_read_the_cache(tf):
    data = ArrayData(tf, steps=12)
    _, history, said = run_of(tf, data=data)
    results = history.elastic
    assert results["steps"] == 96
    assert results["cached_share"] == 93 / 96  # all but the opening of three full steps
    # Images of cached epochs are neither read nor decoded: two passes, what builds and what begins each of
    # them, and what tf.data reads ahead.
    assert data.asked < 60
    assert results["cache_bytes"] > 0
    assert results["cache_write_seconds"] > 0 and results["cache_read_seconds"] > 0
    assert any(line.startswith("cached activations") for line in said)
    assert history.history["loss"][-1] < history.history["loss"][0]


def test_each_interval_is_cached_where_the_same_tensors_train_in_all_of_them(tf):
    _, history, said = run_of(tf, scheme="traditional-tl", profile=None)
    assert [line.split(":")[0] for line in said if "cached activations" in line] == ["cached activations"] * 2
    assert history.elastic["cached_share"] == 1.0


@pytest.mark.parametrize("network, times", [(updating_statistics, 1), (residual, 0)])
def test_what_stops_the_cache_is_named_once(tf, network, times):
    _, history, said = run_of(tf, network=network, scheme="traditional-tl", epochs=2)
    named = [line for line in said if "so what is computed from it is not cached" in line]
    assert len(named) == times and all("norm/moving_" in line for line in named)
    assert history.elastic["cached_share"] > 0


def test_nothing_frozen_changes_within_an_interval(tf):
    """Between two selections only tensors of the selection move, and no step trains all of them."""
    snapshots = []

    class Watch(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            snapshots.append(weights_of(self.model))

    data = ArrayData(tf, steps=12)
    trainer = trainer_of(tf, interval=4, probe=data.probe)
    history = trainer.fit(data.stream, epochs=6, steps_per_epoch=12, callbacks=[Watch()], verbose=0)
    inside = [k for k in range(1, 6) if k not in {s["epoch"] for s in history.selections}]
    assert len(inside) == 4
    for k in inside:
        selected = [s for s in history.selections if s["epoch"] <= k][-1]["selected"]
        for i, (before, after) in enumerate(zip(snapshots[k - 1], snapshots[k])):
            if i not in selected:
                np.testing.assert_array_equal(before, after)


def test_sample_weights_are_cached(tf):
    x, y = bright_images(48)
    results = []
    for weights in (np.ones(48), np.zeros(48)):
        trainer = trainer_of(tf)
        before = weights_of(trainer.model)
        trainer.fit(x, y, sample_weight=weights.astype("float32"), batch_size=4, epochs=4, verbose=0)
        results.append(any(not np.array_equal(a, b) for a, b in zip(before, weights_of(trainer.model))))
    assert results == [True, False]


def without_room(place):
    """Settings of a cache in a folder that cannot be made: a file has its name."""
    place.write_text("")
    return dataclasses.replace(EXACT, memory=0, folder=place)


def test_an_interval_that_cannot_be_cached_is_trained_without_and_the_next_one_is(tf, tmp_path):
    place = tmp_path / "cache"
    room = tf.keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: epoch or place.unlink())
    _, history, said = run_of(tf, activation_cache=without_room(place), callbacks=[room])
    (line,) = [line for line in said if line.startswith("not cached")]
    assert f"{place} cannot hold" in line
    assert history.elastic["cached_share"] == 0.5  # all of the second interval
    assert [record["cached"] for record in history.selections] == [False, True]


def interrupt_after(tf, step):
    """A callback that asks the run to end after so many steps; a background job would ignore Ctrl-C."""

    class Interrupting(tf.keras.callbacks.Callback):
        done = 0

        def on_train_batch_end(self, batch, logs=None):
            self.done += 1
            if self.done == step:
                os.kill(os.getpid(), signal.SIGTERM)

    return Interrupting()


def interrupted_run(tf, tmp_path, at, *callbacks, network=residual, **options):
    """The folder of a run that was asked to end after so many steps."""
    run = RunFolder.create(tmp_path / f"interrupted-{at}")
    with pytest.raises(Interrupted, match=f"Saved after step {at}"):
        run_of(tf, network, run=run, callbacks=[*callbacks, interrupt_after(tf, at)], **options)
    return run


@pytest.fixture(scope="module")
def uninterrupted(tf, request, tmp_path_factory):
    """A network, and a whole run of it."""
    return request.param, run_of(tf, request.param, run=RunFolder(tmp_path_factory.mktemp("whole")))


SHORT = [(augmented, 5), (augmented, 60)]
LONG = [(network, at) for network in (residual, augmented) for at in (2, 5, 8, 20, 30, 47, 60, 85)]


@pytest.mark.parametrize(
    "uninterrupted, at",
    [*SHORT, *(pytest.param(*case, marks=pytest.mark.long) for case in LONG if case not in SHORT)],
    indirect=["uninterrupted"],
    ids=lambda part: getattr(part, "__name__", str(part)),
)
def test_a_resumed_run_is_the_uninterrupted_one(tf, tmp_path, uninterrupted, at):
    """Stopped in the opening, in the first epoch, in another one, and right after a selection."""
    network, (whole, expected, _) = uninterrupted
    interrupted = interrupted_run(tf, tmp_path, at, network=network)
    resumed, history, said = run_of(tf, network, run=interrupted, resume=True, seed=5)
    assert_equal(whole, resumed)
    assert history.elastic["cached_share"] == expected.elastic["cached_share"]


def test_a_cache_that_is_written_again_for_a_resumed_run_takes_no_training_time(tf, tmp_path):
    """Each look at the clock takes a second: one in each lap."""
    figures = []
    for at in (None, 40):
        clock = itertools.count().__next__
        run = interrupted_run(tf, tmp_path, at, clock=clock) if at else None
        figures.append(run_of(tf, run=run, clock=clock, resume=bool(at))[1].elastic)
    uninterrupted, resumed = (results["seconds"]["cache_write"] for results in figures)
    assert resumed == uninterrupted > 0


def test_a_resumed_run_goes_on_without_a_cache_where_there_is_no_room_any_more(tf, tmp_path):
    interrupted, place = interrupted_run(tf, tmp_path, 40, interval=2), tmp_path / "cache"

    # Where the next interval begins there is room again.
    room = tf.keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: epoch == 4 and place.unlink())
    options = {"interval": 2, "activation_cache": without_room(place), "callbacks": [room]}
    _, history, said = run_of(tf, run=interrupted, resume=True, **options)
    at = next(k for k, line in enumerate(said) if line.startswith("not cached"))
    assert any(line.startswith("cached activations") for line in said[at:])
    # All but the opening, and eight steps of the interrupted epoch.
    assert history.elastic["cached_share"] == pytest.approx((96 - 3 - 8) / 96)


@pytest.mark.parametrize(
    ("interval", "more_s", "room", "written"),
    [(None, 0.3, True, "again"), (None, 0.3, False, "not"), (4, 60.0, True, "new")],
    ids=["its interval", "no room", "a new interval"],
)
def test_a_finished_run_that_is_given_more_time_writes_the_cache_that_it_reads(
    tf, tmp_path, interval, more_s, room, written
):
    """Each look at the clock takes a twentieth of a second."""
    run, options = RunFolder.create(tmp_path / "run"), {"deterministic": False, "interval": interval}
    first = run_of(tf, run=run, deadline=Deadline(20.0, age_s=SetClock(tick_s=0.05)), **options)[1]
    options["deadline"] = Deadline(20.0, more_s=more_s, age_s=SetClock(tick_s=0.05))
    options["activation_cache"] = EXACT if room else without_room(tmp_path / "cache")
    _, history, said = run_of(tf, run=run, resume=True, **options)
    assert history.elastic["steps"] > first.elastic["steps"]
    assert sum("writing the cache again" in line for line in said) == (written != "new")
    assert any(line.startswith("not cached") for line in said) == (written == "not")
    assert any(line.startswith("cached activations") for line in said) == (written == "new")


def test_an_image_that_cannot_be_read_again_is_an_error_of_the_run(tf, tmp_path):
    interrupted = interrupted_run(tf, tmp_path, 40)

    class Damaged(ArrayData):
        """The cache written before the first epoch is gone; the run goes on in the fourth."""

        def stream(self, epoch=0, first=0):
            whole = super().stream(epoch, first)
            torn = whole.map(lambda x, y: (tf.debugging.check_numerics(x / 0.0, "cut short"), y))
            return whole if epoch else torn

    with pytest.raises(DataError, match="training data.*cut short"):
        run_of(tf, run=interrupted, resume=True, data=Damaged(tf, steps=12))


def frozen_weights_changed(tf, at=1):
    """A callback that loads other weights into the first layers at the end of an epoch inside an interval."""

    class Loading(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == at:
                for weight in self.model.weights[:4]:
                    weight.assign(0.95 * weight)

    return Loading()


def with_filter(tf, strength):
    """A network behind a filter, whose strength is no weight that `set_weights` would set."""
    strength.assign(1.0)

    class Filter(tf.keras.layers.Layer):
        def call(self, inputs):
            return tf.math.sin(strength * inputs)

    inputs = tf.keras.Input((8, 8, 3))
    return tf.keras.Model(inputs, residual(tf)(Filter()(inputs)))


@pytest.mark.parametrize("changed", ["weights", "a number in a frozen layer"])
def test_what_a_callback_changes_in_frozen_layers_is_noticed_and_cached_again(tf, changed):
    """Only a head trains, on the same minibatches in every epoch."""
    (x, y), runs, strength = bright_images(24), [], tf.Variable(1.0, trainable=False)
    for cache in ("off", EXACT):
        tf.keras.utils.set_random_seed(1)
        model, said = residual(tf) if changed == "weights" else with_filter(tf, strength), listen()
        callback = frozen_weights_changed(tf)
        if changed != "weights":
            callback = tf.keras.callbacks.LambdaCallback(
                on_epoch_begin=lambda epoch, logs: strength.assign(1.0 - 0.2 * (epoch // 3))
            )
        trainer = compiled_trainer(tf, model, scheme="traditional-tl", interval=6, activation_cache=cache)
        given = {"batch_size": 4, "shuffle": False, "epochs": 6, "callbacks": [callback], "verbose": 0}
        runs.append((trainer.fit(x, y, **given).elastic["cached_share"], weights_of(model)))
    (_, expected), (share, found) = runs
    for one, other in zip(expected, found):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    lines = [line.split(":")[0] for line in said if "cache" in line]
    assert lines == ["cached activations", "writing the cache again", "cached activations"]
    assert share == 1.0


@pytest.mark.parametrize("at", [36, *(pytest.param(at, marks=pytest.mark.long) for at in (37, 40))])
def test_a_run_resumed_around_a_callback_that_loads_weights_is_the_uninterrupted_one(tf, tmp_path, at):
    """At the last minibatch before it loads, at the first one after, and while the cache is written again."""
    loading = frozen_weights_changed(tf, at=2)
    whole, _, said = run_of(tf, callbacks=[loading])
    assert sum("cache again" in line for line in said) == 1
    run = interrupted_run(tf, tmp_path, at, loading)
    assert_equal(whole, run_of(tf, run=run, resume=True, seed=5, callbacks=[loading])[0])
