"""A library user's run: a model and data of one's own, and what callbacks passed to `Trainer.fit` add."""

import itertools
import json
import os
import signal

import numpy as np
import pytest

from elastictrainer import Profile, Trainer
from elastictrainer.errors import Interrupted
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.steps import optimizers
from elastictrainer.training.callback import TrainerCallback
from elastictrainer.training.checkpointing import Checkpointing
from elastictrainer.training.metering import EnergyMetering
from elastictrainer.training.run_record import RunRecord

STEPS, EPOCHS, BATCH = 40, 3, 8
CLOCKED = {"step_ms_median", "ratio", "train_seconds", "train_seconds_total"}


class Battery:
    """A joule a reading."""

    name = "battery"

    def __init__(self):
        self._readings = itertools.count()

    def joules(self):
        return float(next(self._readings))


def minibatches(tf):
    """The task to learn: the sum of four numbers. Any epoch can be read again, from any minibatch on."""

    def draw(number):
        x = tf.random.stateless_normal((BATCH, 4), tf.stack([7, number]))
        return x, tf.reduce_sum(x, axis=1, keepdims=True)

    def stream(epoch, first):
        return tf.data.Dataset.range(epoch * STEPS + first, tf.int64.max).map(draw)

    return stream


def train(tf, run, resume=False, stop_at=None):
    """A regression with selections; `stop_at`: the step of this call after which Ctrl-C is pressed."""
    tf.keras.utils.set_random_seed(1)
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [tf.keras.Input((4,)), layers.Dense(16, activation="relu"), layers.Dropout(0.1), layers.Dense(1)]
    )
    profile = Profile.from_chain(["a", "b", "c", "d"], 1.0, [1.0] * 4, [1.0] * 4)
    trainer = Trainer(model, rho=0.8, profile=profile, interval=1, importance_batches=2, deterministic=True)
    trainer.compile(tf.keras.optimizers.Adam(0.01), "mse")
    steps = itertools.count(1)

    def press(batch, logs):
        if next(steps) == stop_at:
            os.kill(os.getpid(), signal.SIGINT)

    history = trainer.fit(
        minibatches(tf),
        steps_per_epoch=STEPS,
        epochs=EPOCHS,
        callbacks=[
            tf.keras.callbacks.LambdaCallback(on_train_batch_end=press),
            RunRecord(run, owner="me"),
            EnergyMetering(Battery(), interval_s=1e6),
            Checkpointing(run, resume=resume),
        ],
        verbose=0,
    )
    return history, [*model.variables, *optimizers.variables_of(model.optimizer)]


def without_times(records):
    return [{k: v for k, v in record.items() if k not in CLOCKED} for record in records]


@pytest.mark.usefixtures("sigint")
def test_a_regression_is_resumed_recorded_and_metered(tf, tmp_path, capsys):
    run, whole = RunFolder(tmp_path / "run"), RunFolder.create(tmp_path / "whole")
    _, expected = train(tf, whole)
    capsys.readouterr()
    run.path.mkdir()
    with pytest.raises(Interrupted, match="Saved after step 54"):
        train(tf, run, stop_at=54)
    with pytest.raises(Interrupted, match="Saved after step 80"):
        train(tf, run, resume=True, stop_at=26)
    assert not run.summary_path.exists()
    history, values = train(tf, run, resume=True)
    for value, other in zip(values, expected):
        np.testing.assert_array_equal(value.numpy(), other.numpy())
    assert without_times(run.metrics()) == without_times(whole.metrics())
    assert run.selections() == whole.selections() == history.selections

    assert history.elastic == json.loads(run.summary_path.read_text())
    results = history.elastic
    assert (results["steps"], results["epochs"], results["owner"]) == (STEPS * EPOCHS, EPOCHS, "me")
    assert 0 < results["rho_predicted"] <= 1 and results["rho_achieved"] > 0
    assert "accuracy" not in results
    assert results["energy_source"] == "battery" and results["energy_joules"] > 0
    assert len(results["training_intervals"]) == EPOCHS + 2, "each interruption divides an epoch's"
    losses = [line["train_loss"] for line in run.metrics()]
    assert losses == sorted(losses, reverse=True)
    assert all(line["train_accuracy"] is line["test_loss"] is None for line in run.metrics())
    reloaded = tf.keras.models.load_model(run.model_path)
    x = np.ones((2, 4), np.float32)
    np.testing.assert_allclose(reloaded(x), history.model(x), rtol=1e-6)
    said = capsys.readouterr().out
    assert said.count("epoch 3/3  loss") == 1 and "accuracy" not in said


def test_a_callback_of_ones_own_sees_the_run(tf):
    class Mine(TrainerCallback):
        seen, end = [], None

        def on_steps_begin(self):
            self.seen.append("begin")

        def on_steps_end(self):
            self.seen.append("end")

        def on_selection(self, record):
            self.seen.append(("selection", record["step"]))

        def on_epoch_end(self, epoch, logs=None):
            self.seen.append(("step", self.run_state.progress.step))

        def on_epoch_done(self):
            self.seen.append(("done", self.run_state.progress.epoch))

        def conclude(self):
            return {"mine": 1}

        def on_fit_end(self, summary):
            self.end = summary

    mine = Mine()
    profile = Profile.from_chain(["a", "b"], 1.0, [1.0] * 2, [1.0] * 2)
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
    trainer = Trainer(model, rho=0.9, profile=profile, importance_batches=2, deterministic=True)
    trainer.compile("sgd", "mse")
    history = trainer.fit(
        minibatches(tf), steps_per_epoch=STEPS, initial_epoch=2, epochs=3, callbacks=mine, verbose=0
    )
    first = history.selections[0]["step"]
    assert mine.seen == ["begin", ("selection", first), "end", ("step", STEPS), ("done", 1)]
    assert mine.end is history.elastic and history.elastic["mine"] == 1 and history.epoch == [2]
