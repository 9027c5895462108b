"""Runs whose head is solved before the first step, through `Trainer.fit`."""

import json
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
from elastictrainer import Checkpointing, Deadline, Elastic, RunFolder, Trainer, UsageError
from elastictrainer.cache.settings import CacheSettings
from elastictrainer.errors import DataError, Interrupted
from elastictrainer.selection.schemes import LastLayers
from elastictrainer.steps.objective import SmoothedCrossentropy
from elastictrainer.training.callbacks import TrainerCallback
from elastictrainer.training.head import HeadPass
from log_lines import listen
from networks import augmented, residual


class Noting(TrainerCallback):
    """Notes the records of the head, and the model's last layer then."""

    def __init__(self):
        super().__init__()
        self.records, self.kernels = [], []

    def on_head(self, record):
        self.records.append(dict(record))
        self.kernels.append(self.model.layers[-1].get_weights()[0])


def run_of(tf, seed=1, data=None, network=residual, **options):
    tf.keras.utils.set_random_seed(seed)
    model, said, noting = network(tf), listen(), Noting()
    usual = {"head": "solve", "profile": with_reuse(invented_profile(model)), "rho": 0.5, "epochs": 4}
    usual.update(deterministic=True, callbacks=[noting])
    sgd = tf.keras.optimizers.SGD(0.01)
    history = train_classifier(tf, model, data or ArrayData(tf, steps=20), sgd, **{**usual, **options})
    return model, history, said, noting


def solved_by_keras_data(tf, loss, callback, x, y, batch_size=8, **given):
    """A call of `fit` on data of Keras, of which the head is solved before one epoch."""
    tf.keras.utils.set_random_seed(1)
    trainer = Trainer(residual(tf), scheme="full", head="solve")
    trainer.compile("sgd", loss)
    trainer.fit(x, y, batch_size=batch_size, epochs=1, callbacks=[callback], verbose=0, **given)


def crossentropy(tf, **options):
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)


FURTHER = (pytest.param(name, marks=pytest.mark.long) for name in ("freeze-below", "traditional-tl"))


@pytest.mark.parametrize("scheme", ["elastic", "full", *FURTHER])
def test_every_scheme_starts_from_the_solved_head(tf, scheme):
    _, history, said, noting = run_of(tf, scheme=scheme)
    (record,) = noting.records
    assert record["images"] == 80 and record["seconds"] > 0
    assert record["loss"] < np.log(3) / 2  # the classes differ in brightness
    assert sum("head solved in" in line for line in said) == 1
    assert record["val_accuracy"] > 0.8  # as `Evaluation` found before the first step
    assert history.elastic["steps"] == 80


def test_nothing_moves_a_head_that_is_trained_alone(tf):
    """With SGD(0.1), whose rate no schedule sets, and batch normalisation; a second call solves again.

    A smaller last minibatch is no part of the images that is missing.
    """
    x, y = bright_images(46)
    model, at_head, said = residual(tf), [], listen()

    class Weights(TrainerCallback):
        def on_head(self, record):
            at_head.append([variable.numpy() for variable in model.variables])

    trainer = compiled_trainer(tf, model, "sgd", scheme="head-alone", head="solve")
    for calls in (1, 2):
        history = trainer.fit(x, y, epochs=3, batch_size=8, verbose=2, callbacks=[Weights()])
        assert len(at_head) == calls and len(history.epoch) == history.elastic["steps"] == 1
        assert sum(line.startswith("head solved in") for line in said) == calls
        assert history.history["accuracy"][0] > 0.6 and np.isfinite(history.history["loss"][0])
        for solved, now in zip(at_head[-1], model.variables):
            np.testing.assert_array_equal(solved, now.numpy())


@pytest.mark.parametrize("network", [residual, augmented])
def test_one_pass_gives_features_and_cache(tf, network):
    """Also of images that are changed at random, whose states Keras 3 counts among the weights."""
    data = ArrayData(tf, steps=20)
    _, history, _, _ = run_of(tf, network=network, scheme="freeze-below", data=data, interval=4)
    assert history.elastic["cached_share"] == 1.0
    # One pass of 20; what builds the model, times full steps, and what tf.data reads ahead.
    assert data.asked < 20 + 20


def leaky(tf):
    """A network with an activation that selects between two values, as dropout does, before the dropout."""
    layers, inputs = tf.keras.layers, tf.keras.Input((8, 8, 3))
    x = layers.Flatten()(layers.Conv2D(4, 3, strides=2)(inputs))
    x = layers.Dropout(0.2)(layers.Lambda(lambda t: tf.where(t > 0, t, 0.3 * t))(x))
    return tf.keras.Model(inputs, layers.Dense(3, name="head")(x))


@pytest.mark.parametrize("network", [residual, leaky])
def test_the_cached_features_give_the_head_that_a_pass_of_its_own_gives(tf, network):
    kernels = []
    for cache in (CacheSettings(dtype="float32"), "off"):
        _, _, _, noting = run_of(tf, network=network, scheme="traditional-tl", activation_cache=cache)
        kernels.append(noting.kernels[0])
    np.testing.assert_allclose(*kernels, rtol=0.05, atol=1e-3)


@pytest.mark.parametrize(
    "seconds, times, all_images, trains",
    [(0.1, 100, False, False), (6.0, 100, False, False), (60.0, 1000, True, False), (60.0, 100, True, True)],
    ids=["none", "a part", "the head", "layers"],
)
def test_the_time_gives_as_much_as_fits_and_no_error(tf, monkeypatch, seconds, times, all_images, trains):
    """Each look at the clock takes a tenth of a second; steps take so many `times` the invented profile's."""
    age_s, model, solve = SetClock(tick_s=0.1), residual(tf), HeadPass._solve

    def solved_slowly(head):
        age_s.now += 52.0 * (times == 1000)  # longer than was expected
        return solve(head)

    monkeypatch.setattr(HeadPass, "_solve", solved_slowly)
    monkeypatch.setattr("elastictrainer.training.planner.GRAPH_STEPS", 0.1)
    profile = with_reuse(invented_profile(model))
    deadline = Deadline(seconds, age_s=age_s)
    options = {"deterministic": False, "scheme": "freeze-below", "deadline": deadline, "epochs": 2}
    _, history, said, noting = run_of(tf, profile=profile.for_batch(4, 4 * times), **options)
    (record,) = noting.records
    assert (record["images"] == 80) == all_images and record["images"] >= 4
    assert (history.elastic["steps"] > 1) == trains and len(history.history["loss"]) >= 1
    assert any("the time allows" in line and "minibatches" in line for line in said) == (not all_images)
    if times == 1000:
        assert sum("the solved head stays" in line for line in said) == 1
        assert not history.selections and not history.elastic["cached_share"]


def test_time_that_a_head_alone_leaves_is_used_for_layers(tf):
    """An image was expected to take ten seconds."""
    age_s = SetClock(tick_s=0.1)
    deadline = Deadline(60.0, age_s=age_s, images=1, image_s=10.0)
    options = {"deterministic": False, "deadline": deadline, "scheme": LastLayers(), "profile": None}
    model, history, said, noting = run_of(tf, **options)
    assert history.history["selected"][-1] == LastLayers().mask(model).sum() > 2, "not the head's two"
    assert len(noting.records) == 1 and noting.records[0]["images"] == 80
    assert sum("the head alone" in line for line in said) == 1 == sum("time left" in line for line in said)
    assert history.elastic["steps"] > 20 and history.elastic["cached_share"] == 1.0
    assert 40 < age_s.now < 61


def test_the_head_of_more_images_stays_where_a_run_is_given_too_little_more_time(tf, tmp_path):
    """Each look at the clock takes a tenth of a second; the second run has time for some of the images."""
    kernels, records, folder = [], [], RunFolder.create(tmp_path / "run")
    for resume, more_s in ((False, 0.0), (True, 3.0)):
        deadline = Deadline(60.0, more_s=more_s, age_s=SetClock(tick_s=0.1))
        saving = Checkpointing(folder, resume=resume)
        noting = Noting()
        options = {"deterministic": False, "deadline": deadline, "scheme": "head-alone", "profile": None}
        model, _, said, _ = run_of(tf, **options, callbacks=[noting, saving])
        kernels.append(model.layers[-1].get_weights()[0])
        records += noting.records
    assert [record["images"] for record in records] == [80, 80]
    assert records[0]["loss"] == records[1]["loss"] and np.array_equal(*kernels)
    assert any("head of 80 images stays: there is time for" in line for line in said)


@pytest.mark.usefixtures("sigint")
def test_an_interruption_while_the_head_is_tested_saves_nothing_and_the_run_begins_again(tf, tmp_path):
    class AskedToEnd(ArrayData):
        def test(self):
            os.kill(os.getpid(), signal.SIGINT)
            yield from super().test()

    run = RunFolder.create(tmp_path / "run")
    with pytest.raises(Interrupted, match="No step was made yet"):
        run_of(tf, data=AskedToEnd(tf, steps=20), run=run)
    whole, expected, _, _ = run_of(tf)
    model, history, _, noting = run_of(tf, run=run, resume=True)
    for one, other in zip(weights_of(whole), weights_of(model)):
        np.testing.assert_array_equal(one, other)
    assert len(noting.records) == 1 and run.metrics()[0]["epoch"] == 0
    assert history.elastic["steps"] == expected.elastic["steps"]


def test_a_run_folder_has_a_usable_model_and_its_numbers_before_the_first_step(tf, tmp_path):
    run, found = RunFolder.create(tmp_path / "run"), []

    class AtFirstStep(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if not found:
                found.append([run.model_path.exists(), json.loads(run.metrics_path.read_text())])

    run_of(tf, run=run, callbacks=[AtFirstStep()])
    exists, line = found[0]
    assert exists and line["epoch"] == line["step"] == 0 and line["images"] == 80
    assert line["test_accuracy"] > 0.8 and line["train_seconds"] > 0
    assert [record["epoch"] for record in run.metrics()] == [0, 1, 2, 3, 4]


def test_cached_steps_use_the_solved_head_also_where_its_kernel_does_not_train(tf):
    def bias_alone(profile, importance, budget_ms):
        return np.arange(len(profile)) == len(profile) - 1

    _, history, said, noting = run_of(tf, epochs=2, scheme=Elastic("update", bias_alone))
    assert history.elastic["cached_share"] > 0
    assert sum("cache again" in line for line in said) == 1
    (record,) = noting.records
    assert history.history["loss"][0] < record["loss"] + 0.2


@pytest.mark.parametrize("form", ["dataset", "one-hot"])
def test_data_of_keras_is_read_for_the_head(tf, form):
    (x, y), noting = bright_images(48), Noting()
    if form == "dataset":
        data = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
        solved_by_keras_data(tf, crossentropy(tf), noting, data, None, None)
    else:
        loss = tf.keras.losses.CategoricalCrossentropy(from_logits=True)
        solved_by_keras_data(tf, loss, noting, x, np.eye(3, dtype="float32")[y])
    assert noting.records[0]["images"] == 48 and noting.records[0]["loss"] < 0.6


def test_sample_and_class_weights_and_smoothed_labels_count(tf):
    x, y = bright_images(60)

    def kernel(loss, **given):
        noting = Noting()
        solved_by_keras_data(tf, loss, noting, x, y, 4, **given)
        return noting.kernels[0]

    usual = kernel(crossentropy(tf))
    assert np.abs(kernel(SmoothedCrossentropy(0.3))).mean() < 0.8 * np.abs(usual).mean()
    heavy = {"sample_weight": np.where(y == 0, 5.0, 0.5).astype("float32")}
    by_sample = kernel(crossentropy(tf), **heavy)
    by_class = kernel(SmoothedCrossentropy(class_weights=[5.0, 0.5, 0.5]))
    np.testing.assert_allclose(by_sample, by_class, rtol=0.02, atol=1e-3)
    assert np.abs(by_sample - usual).max() > 0.05


def test_what_makes_a_head_unsolvable_is_said_before_anything_trains(tf):
    def fit(loss, data=None):
        model = residual(tf)
        before = model.get_weights()
        trainer = Trainer(model, scheme="full", head="solve")
        trainer.compile("sgd", loss)
        x, y = np.zeros((8, 8, 8, 3), "float32"), np.zeros((8, 3) if loss == "mse" else 8, int)
        try:
            trainer.fit(*(data or (x, y)), steps_per_epoch=2 if data else None, verbose=0)
        finally:
            assert all((a == b).all() for a, b in zip(before, model.get_weights()))

    with pytest.raises(UsageError, match="from_logits=True"):
        fit(tf.keras.losses.SparseCategoricalCrossentropy())
    with pytest.raises(UsageError, match="the loss ignores class 1"):
        fit(crossentropy(tf, ignore_class=1))
    with pytest.raises(UsageError, match="loss mse "):
        fit("mse")
    generator = ((np.zeros((4, 8, 8, 3), "float32"), np.zeros(4, int)) for _ in iter(int, 1))
    with pytest.raises(UsageError, match="read once"):
        fit(crossentropy(tf), (generator,))


def test_full_steps_come_first_only_where_the_head_is_not_solved(tf):
    starts = {
        head: run_of(tf, head=head, scheme="elastic")[1].selections[0]["step"] for head in ("solve", "keep")
    }
    assert starts == {"solve": 0, "keep": 5}


def test_without_being_asked_for_the_head_stays(tf):
    _, _, said, noting = run_of(tf, head="keep", scheme="full", epochs=1)
    assert not noting.records and not any("head" in line for line in said)


@pytest.mark.parametrize("cache", ["auto", pytest.param("off", marks=pytest.mark.slow)])
def test_columns_that_are_held_stay(tf, cache):
    from elastictrainer.models.solved_head import hold_columns

    def held(tf):
        model = residual(tf)
        kernel, *bias = model.layers[-1].get_weights()
        model.layers[-1].set_weights([np.full_like(kernel, 0.25), *bias])
        hold_columns(model, 2)
        return model

    _, _, _, noting = run_of(tf, network=held, activation_cache=cache, epochs=1)
    (kernel,) = noting.kernels
    assert (kernel[:, :2] == 0.25).all() and (kernel[:, 2] != 0.25).all()


@pytest.mark.parametrize("part", ["inputs", "labels", "sample weights"])
def test_a_head_is_not_solved_on_values_that_are_not_finite(tf, part):
    x, y = bright_images(48)
    parts = {"inputs": x, "labels": y.astype(np.float32), "sample weights": np.ones(48, np.float32)}
    parts[part][17] = np.nan
    trainer = compiled_trainer(tf, residual(tf), "sgd", scheme="head-alone", head="solve")
    with pytest.raises(DataError, match=f"the {part} of minibatch 3 hold NaN"):
        x, y, weights = parts.values()
        trainer.fit(x, y, sample_weight=weights, batch_size=8, shuffle=False, verbose=0)
