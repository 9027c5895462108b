"""A run's steps: what is timed, what counts as training, and what becomes of data that cannot be read."""

import numpy as np
import pytest

from builders import bright_images, compiled_trainer, invented_profile, small_network
from clocks import SetClock
from elastictrainer import RunError, Trainer, UsageError
from elastictrainer.cache.settings import CacheSettings
from elastictrainer.errors import DataError
from elastictrainer.training.callbacks import TrainerCallback


def dense_trainer(tf, **options):
    """Of two dense layers, without anything random in a step."""
    tf.keras.utils.set_random_seed(4)
    layers = tf.keras.layers
    model = tf.keras.Sequential([tf.keras.Input((2,)), layers.Dense(3, activation="tanh"), layers.Dense(1)])
    trainer = Trainer(model, **options)
    trainer.compile("sgd", "mse")
    return trainer


def points(count, seed=0):
    x = np.random.default_rng(seed).normal(size=(count, 2)).astype(np.float32)
    return x, x.sum(axis=1, keepdims=True)


def endless(tf, minibatches=None):
    """A stream of minibatches of 4; `minibatches`: as many, then it ends."""
    data = tf.data.Dataset.from_tensors(points(4)).repeat(minibatches)
    return lambda epoch, first: data


def test_data_that_cannot_be_read_is_an_error_of_the_run_with_the_reason(tf):
    def read(number):
        with tf.control_dependencies([tf.debugging.assert_less(number, tf.int64.max // 2, "torn file")]):
            return tf.ones((2,)), tf.ones((1,))

    good = tf.data.Dataset.range(6).concatenate(tf.data.Dataset.from_tensors(tf.int64.max))
    trainer = dense_trainer(tf, scheme="full")
    with pytest.raises(DataError, match="training data.*torn file") as raised:
        trainer.fit(good.repeat().map(read).batch(2), steps_per_epoch=5, verbose=0)
    assert isinstance(raised.value, RunError)


def test_a_smaller_last_minibatch_is_not_timed(tf):
    watch, options = TrainerCallback(), {"batch_size": 8, "epochs": 2, "verbose": 0}
    dense_trainer(tf, scheme="full").fit(*points(20), callbacks=watch, **options)
    timed = watch.run_state.progress.recent_ms
    assert len(timed) == 3  # of 8, 8, 4, 8, 8, 4; the first one is also the first of its graph


def test_keras_own_validation_counts_as_validation(tf):
    class Slow(tf.keras.callbacks.Callback):
        def on_test_batch_end(self, batch, logs=None):
            clock.now += 8.0

    clock = SetClock()
    validation = {"validation_data": points(8), "validation_batch_size": 4, "callbacks": [Slow()]}
    trainer = dense_trainer(tf, scheme="full", clock=clock)
    history = trainer.fit(endless(tf), steps_per_epoch=3, epochs=2, **validation, verbose=0)
    assert history.elastic["validation_seconds"] == 2 * 2 * 8.0 and history.elastic["train_seconds"] == 0


def test_a_stream_must_not_end_and_needs_the_length_of_an_epoch(tf):
    with pytest.raises(UsageError, match="epoch 2.* minibatch 3 of 4"):
        dense_trainer(tf, scheme="full").fit(endless(tf, 6), steps_per_epoch=4, epochs=2, verbose=0)
    with pytest.raises(UsageError, match="epoch 1.* minibatch 1"):
        dense_trainer(tf, scheme="full").fit(endless(tf, 0), steps_per_epoch=4, verbose=0)
    with pytest.raises(UsageError, match="steps_per_epoch"):
        dense_trainer(tf, scheme="full").fit(endless(tf))


def test_a_scheme_without_full_steps_times_them_beside_the_run_and_leaves_no_trace(tf):
    """Training the last layer equals Keras' own `fit` with the others frozen."""
    exact = CacheSettings(dtype="float32")
    ours, theirs = dense_trainer(tf, scheme="traditional-tl", activation_cache=exact), dense_trainer(tf).model
    theirs.layers[-2].trainable = False
    theirs.compile("sgd", "mse")
    options = {"batch_size": 4, "epochs": 3, "shuffle": False, "verbose": 0}
    history, plain = ours.fit(*points(20), **options), theirs.fit(*points(20), **options)
    assert history.elastic["full_step_ms"] > 0 and history.elastic["calibration_seconds"] > 0
    np.testing.assert_allclose(history.history["loss"], plain.history["loss"], rtol=1e-5)
    for value, other in zip(ours.model.get_weights(), theirs.get_weights()):
        np.testing.assert_allclose(value, other, rtol=1e-5)


@pytest.mark.parametrize("scheme", ["full", "elastic"])
def test_what_full_training_waits_for_as_well_is_part_of_its_time(tf, scheme):
    """Each epoch begins with a wait that is longer than all of its steps."""
    clock, steps = SetClock(tick_s=1e-3), 12  # a step takes two looks or more
    x, y = bright_images(4 * steps)

    def read():
        clock.now += 50.0
        yield from zip(x.reshape(steps, 4, *x.shape[1:]), y.reshape(steps, 4))

    kinds = tf.TensorSpec((4, *x.shape[1:]), tf.float32), tf.TensorSpec((4,), tf.int64)
    data = tf.data.Dataset.from_generator(read, output_signature=kinds)
    data = data.apply(tf.data.experimental.assert_cardinality(steps))
    model = small_network(tf)
    options = {"profile": invented_profile(model), "rho": 0.9, "interval": 4, "activation_cache": "off"}
    trainer = compiled_trainer(tf, model, "sgd", scheme=scheme, clock=clock, **options)
    summary = trainer.fit(data, epochs=3, verbose=0).elastic
    laps = summary["seconds"]
    assert summary["train_seconds"] == pytest.approx(sum(laps.values())), "there is no validation"
    assert summary["rho_achieved"] == summary["train_seconds"] / summary["full_training_seconds"]
    assert laps["building"] > 50 and laps["loop"] > 2 * 50, "the first wait is for what all is made on"
    shared = laps["loop"] + laps["checkpoint"] + laps["full_tracing"] + laps["building"]
    steps_s = (3 * steps - 1) * 1e-3 * summary["full_step_ms"]  # the first is in the tracing
    assert summary["full_training_seconds"] == pytest.approx(shared + steps_s)
    if scheme == "full":
        assert summary["rho_achieved"] == pytest.approx(1.0, abs=0.01)
        assert laps["steps"] < 1.0, "a wait is taken for a part of the steps"


def test_what_is_made_before_the_first_step_is_not_taken_for_what_every_epoch_takes(tf):
    class Slow(tf.keras.layers.Dense):
        def build(self, input_shape):
            clock.now += 64.0
            super().build(input_shape)

    clock = SetClock()
    trainer = Trainer(tf.keras.Sequential([Slow(1)]), scheme="full", clock=clock)
    trainer.compile("sgd", "mse")
    results = trainer.fit(*points(16), batch_size=8, epochs=2, verbose=0).elastic
    assert results["seconds"]["building"] == 64.0 and results["seconds"]["loop"] == 0
    assert results["full_training_seconds"] == 64.0, "full training makes it, too"


@pytest.mark.parametrize("probe", [True, False], ids=["of the user", "none"])
def test_values_in_the_data_that_are_not_finite_are_named_with_their_minibatch(tf, probe):
    images, labels = bright_images(64)
    images[50] = np.nan
    good = [(images[:8], labels[:8])]
    options = {"interval": 1, "deterministic": True, "probe": (lambda k: good) if probe else None}
    trainer = compiled_trainer(tf, small_network(tf), rho=1.0, **options)
    with pytest.raises(DataError, match="inputs of minibatch 7 of epoch .* hold NaN"):
        trainer.fit(images, labels, batch_size=8, epochs=4, shuffle=False, verbose=0)
