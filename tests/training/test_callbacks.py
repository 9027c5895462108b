"""Callbacks of Keras, the user's and ours in a run."""

import itertools
import json
import os
import signal
from types import SimpleNamespace

import numpy as np
import pytest

from elastictrainer import Profile, Trainer, UsageError
from elastictrainer.errors import Interrupted
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.steps import optimizers
from elastictrainer.steps.keras_compat.version import KERAS_3
from elastictrainer.steps.rates import RateSchedule
from elastictrainer.training.callbacks import (
    RisingLoss,
    TrainerCallback,
    named_callbacks,
    require_supported_callbacks,
)
from elastictrainer.training.checkpoints import Checkpointing
from elastictrainer.training.energy import EnergyMetering
from elastictrainer.training.record import RunRecord
from log_lines import listen

STEPS, EPOCHS, BATCH = 40, 3, 8
CLOCKED = {"step_ms_median", "ratio", "train_seconds", "train_seconds_total"}


class Battery:
    """A joule a reading."""

    name = "battery"

    def joules(self):
        return 1.0


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

    pressing = tf.keras.callbacks.LambdaCallback(on_train_batch_end=press)
    metering, saver = EnergyMetering(Battery(), interval_s=1e6), Checkpointing(run, resume=resume)
    options = {"callbacks": [pressing, RunRecord(run, owner="me"), metering, saver], "verbose": 0}
    history = trainer.fit(minibatches(tf), steps_per_epoch=STEPS, epochs=EPOCHS, **options)
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

    results = history.elastic
    assert results == json.loads(run.summary_path.read_text()) and "accuracy" not in results
    assert (results["steps"], results["epochs"], results["owner"]) == (STEPS * EPOCHS, EPOCHS, "me")
    assert 0 < results["rho_predicted"] <= 1 and results["rho_achieved"] > 0
    assert results["energy_source"] == "battery" and results["energy_joules"] > 0
    assert len(results["training_intervals"]) == EPOCHS + 2, "each interruption divides an epoch's"
    losses = [line["train_loss"] for line in run.metrics()]
    assert losses == sorted(losses, reverse=True)
    assert all(line["train_accuracy"] is line["test_loss"] is None for line in run.metrics())
    said = capsys.readouterr().out
    assert said.count("epoch 3/3  loss") == 1 and "accuracy" not in said


def test_a_callback_of_ones_own_sees_the_run(tf):
    seen, mine = [], TrainerCallback()
    mine.on_steps_begin = lambda: seen.append("begin")
    mine.on_steps_end = lambda: seen.append("end")
    mine.on_selection = lambda record: seen.append(("selection", record["step"]))
    mine.on_epoch_end = lambda epoch, logs=None: seen.append(("step", mine.run_state.progress.step))
    mine.on_epoch_done = lambda: seen.append(("done", mine.run_state.progress.epoch))
    mine.conclude = lambda: {"mine": 1}
    mine.on_fit_end = seen.append
    profile = Profile.from_chain(["a", "b"], 1.0, [1.0] * 2, [1.0] * 2)
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
    trainer = Trainer(model, rho=0.9, profile=profile, importance_batches=2, deterministic=True)
    trainer.compile("sgd", "mse")
    options = {"steps_per_epoch": STEPS, "initial_epoch": 2, "epochs": 3, "verbose": 0}
    history = trainer.fit(minibatches(tf), callbacks=mine, **options)
    selection = ("selection", history.selections[0]["step"])
    assert seen == ["begin", selection, "end", ("step", STEPS), ("done", 1), history.elastic]
    assert history.elastic["mine"] == 1 and history.epoch == [2]


# From a folder to the callback's arguments.
TRAIN = {
    "BackupAndRestore": lambda folder: {"backup_dir": str(folder / "backup")},
    "CSVLogger": lambda folder: {"filename": str(folder / "log.csv")},
    "EarlyStopping": lambda folder: {"monitor": "loss", "restore_best_weights": True},
    "History": lambda folder: {},
    "LambdaCallback": lambda folder: {"on_epoch_end": lambda epoch, logs: None},
    "ModelCheckpoint": lambda folder: {"filepath": str(folder / "best.keras"), "save_best_only": True},
    "ProgbarLogger": lambda folder: {},
    "TensorBoard": lambda folder: {"log_dir": str(folder / "events"), "histogram_freq": 1, "update_freq": 2},
    "TerminateOnNaN": lambda folder: {},
    "SidecarEvaluatorModelExport": lambda folder: {
        "export_filepath": str(folder / "export"),
        "checkpoint_filepath": str(folder / "checkpoints"),
        "monitor": "val_loss",
    },
}
RATES = {
    "LearningRateScheduler": lambda kinds: kinds.LearningRateScheduler(lambda epoch: 0.001),
    "ReduceLROnPlateau": lambda kinds: kinds.ReduceLROnPlateau("loss", patience=1, min_delta=9.0),
}
OTHERS = {
    "SwapEMAWeights": "refused",
    "BaseLogger": "fails in Model.fit as well",
    "RemoteMonitor": "needs a server",
    "OrbaxCheckpoint": "needs a package",
    "Callback": "no callback of its own",
    "CallbackList": "refused in place of a list",
}
OF_ONE_STACK = ["BaseLogger", "SidecarEvaluatorModelExport", "SwapEMAWeights", "OrbaxCheckpoint"]


def fit(tf, callbacks, rate):
    """Train for two epochs of four steps."""
    tf.keras.utils.set_random_seed(0)
    layers = [tf.keras.Input((4,)), tf.keras.layers.Dense(8, "relu"), tf.keras.layers.Dense(3)]
    model = tf.keras.Sequential(layers)
    trainer = Trainer(model, scheme="full")
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile(tf.keras.optimizers.SGD(rate), loss, metrics=["accuracy"])
    x, y = np.random.default_rng(0).normal(size=(32, 4)), np.arange(32) % 3
    data = {"x": x, "y": y, "validation_data": (x, y), "batch_size": 8}
    return trainer.fit(**data, epochs=2, verbose=0, callbacks=callbacks)


def decaying(tf):
    return tf.keras.optimizers.schedules.CosineDecay(0.01, 8)


def test_all_callbacks_of_keras_are_tried(tf):
    kinds = vars(tf.keras.callbacks).items()
    there = {name for name, kind in kinds if isinstance(kind, type)}
    assert there - {*TRAIN, *RATES, *OTHERS} == set()
    assert {*TRAIN, *RATES, *OTHERS} - there <= set(OF_ONE_STACK)


def test_they_train_together(tf, tmp_path):
    kinds = tf.keras.callbacks
    there = [(getattr(kinds, name, None), given) for name, given in TRAIN.items()]
    callbacks = [kind(**given(tmp_path)) for kind, given in there if kind]
    history = fit(tf, callbacks, decaying(tf))
    assert len(callbacks) >= 8
    assert len(history.history["loss"]) == 2 and history.elastic["steps"] == 8


@pytest.mark.parametrize("name", RATES)
def test_what_sets_the_rate_is_refused_where_a_schedule_does(tf, name):
    make = RATES[name]
    with pytest.raises(UsageError, match=f"{name} .*--schedule constant"):
        fit(tf, [make(tf.keras.callbacks)], decaying(tf))
    rates = fit(tf, [make(tf.keras.callbacks)], 0.01).history["learning_rate" if KERAS_3 else "lr"]
    assert float(rates[-1]) == pytest.approx(0.001 if name == "LearningRateScheduler" else 0.01)


def test_what_cannot_work_is_refused(tf, tmp_path):
    """A backup in addition to checkpoints, or within an epoch; averaged weights."""
    kinds, optimizer = tf.keras.callbacks, tf.keras.optimizers.SGD(0.01)
    backup = kinds.BackupAndRestore(str(tmp_path / "a"))
    require_supported_callbacks([backup], optimizer, checkpointed=False)
    refused = [(backup, True, "BackupAndRestore .*Checkpointing")]
    refused.append((kinds.BackupAndRestore(str(tmp_path / "b"), save_freq=10), False, "within an epoch"))
    if KERAS_3:
        refused.append((kinds.SwapEMAWeights(), False, "SwapEMAWeights .*use_ema"))
    for callback, checkpointed, message in refused:
        with pytest.raises(UsageError, match=message):
            require_supported_callbacks([callback], optimizer, checkpointed)


def test_a_class_and_a_function_are_called(tf):
    made = named_callbacks("usercallbacks:Notes,usercallbacks:stops_after_an_epoch")
    assert [type(callback).__name__ for callback in made] == ["Notes", "LambdaCallback"]
    assert named_callbacks(None) == []


@pytest.mark.parametrize(
    "place, message",
    [
        ("usercallbacks:Nots", "usercallbacks has no 'Nots'"),
        ("no.such.module:Notes", "cannot import no.such.module"),
        ("usercallbacks:needs_more", "needs_more failed: TypeError: .*'project' .*without arguments"),
        ("usercallbacks:none_at_all", "not a Keras callback"),
    ],
)
def test_what_is_no_callback_is_told(tf, place, message):
    with pytest.raises(UsageError, match=message):
        named_callbacks(f"usercallbacks:Notes,{place}")


def watching(tf, **state):
    """A watch over the training of a classifier of 100 classes, and the lines that it says."""
    lines, made = listen(), RisingLoss(100)
    model = SimpleNamespace(optimizer=tf.keras.optimizers.SGD(0.001))
    made.run_state = SimpleNamespace(model=model, **state)
    return made, lines


@pytest.mark.parametrize(
    "losses, start_loss, told",
    [
        ([4.6] * 400, 0.5, 1),
        ([0.5, 6.0, 0.5, 0.5] * 100, 0.5, 0),
        ([2.0] * 200 + [0.3] * 200, 0.5, 0),
        ([4.6] * 400, None, 0),
    ],
    ids=["risen", "a single minibatch", "recovered", "no solved head"],
)
def test_a_loss_far_above_its_start_is_said_once_with_half_the_rate(tf, losses, start_loss, told):
    progress = SimpleNamespace(start_loss=start_loss)
    watch, lines = watching(tf, progress=progress, rates=RateSchedule(4e-4))
    for batch, loss in enumerate(losses):
        watch.run_state.loss = loss
        watch.on_train_batch_end(batch)
    assert len(lines) == told
    assert all("risen from 0.50 to" in line and "learning rate of 0.0002" in line for line in lines)


@pytest.mark.parametrize(
    ("head", "epochs", "error", "line"),
    [
        (0.92, [0.91, 0.82, 0.7], 0.0, "fallen from 92.0 to 82.0 %"),
        (0.92, [None, 0.9, 0.95], 0.0, ""),
        (None, [0.5], 0.0, ""),
        (0.92, [0.86], 0.02, ""),  # samples: 92 may be 90, and 86 may be 88
        (0.92, [0.84], 0.02, "fallen from 92.0 to 84.0 %"),
    ],
)
def test_an_accuracy_far_below_the_heads_is_said_once(tf, head, epochs, error, line):
    watch, lines = watching(tf, rates=None, evaluated={"accuracy_error": error})
    watch.on_head({} if head is None else {"val_accuracy": head})
    for epoch, accuracy in enumerate(epochs):
        watch.on_epoch_end(epoch, {} if accuracy is None else {"val_accuracy": accuracy})
    assert len(lines) == bool(line) and line in "".join(lines)
    assert not line or "learning rate of 0.0005" in lines[0]


def test_a_resumed_run_knows_the_heads_accuracy_and_what_was_said(tf):
    first, _ = watching(tf, rates=None, evaluated={})
    first.on_head({"val_accuracy": 0.92})
    for count in (1, 0):
        resumed, lines = watching(tf, rates=None, evaluated={})
        resumed.restore(json.loads(json.dumps(first.state())))
        resumed.on_epoch_end(0, {"val_accuracy": 0.7})
        assert sum("fallen from 92.0 to 70.0 %" in line for line in lines) == count
        first = resumed


def test_two_checkpointings_are_refused(tf, tmp_path):
    model = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,))])
    trainer = Trainer(model, scheme="full")
    trainer.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    savers = [Checkpointing(RunFolder.create(tmp_path / name)) for name in "ab"]
    with pytest.raises(UsageError, match="more than one Checkpointing"):
        trainer.fit(tf.zeros((4, 3)), tf.zeros(4, tf.int64), callbacks=savers, verbose=0)
