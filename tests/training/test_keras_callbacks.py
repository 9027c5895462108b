"""Each of Keras' own callbacks trains through, or is refused before the first step."""

import numpy as np
import pytest

from elastictrainer import Trainer, UsageError
from elastictrainer.steps.keras_compat.version import KERAS_3
from elastictrainer.training import keras_callbacks

# From a folder to the callback.
TRAIN = {
    "BackupAndRestore": lambda kinds, folder: kinds.BackupAndRestore(str(folder / "backup")),
    "CSVLogger": lambda kinds, folder: kinds.CSVLogger(str(folder / "log.csv")),
    "EarlyStopping": lambda kinds, folder: kinds.EarlyStopping("loss", restore_best_weights=True),
    "History": lambda kinds, folder: kinds.History(),
    "LambdaCallback": lambda kinds, folder: kinds.LambdaCallback(on_epoch_end=lambda epoch, logs: None),
    "ModelCheckpoint": lambda kinds, folder: kinds.ModelCheckpoint(
        str(folder / "best.keras"), "val_loss", save_best_only=True
    ),
    "ProgbarLogger": lambda kinds, folder: kinds.ProgbarLogger(),
    "TensorBoard": lambda kinds, folder: kinds.TensorBoard(
        str(folder / "events"), histogram_freq=1, update_freq=2
    ),
    "TerminateOnNaN": lambda kinds, folder: kinds.TerminateOnNaN(),
    "SidecarEvaluatorModelExport": lambda kinds, folder: kinds.SidecarEvaluatorModelExport(
        str(folder / "export"), str(folder / "checkpoints"), monitor="val_loss"
    ),
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


def fit(tf, callback, rate):
    """Train for two epochs of four steps."""
    tf.keras.utils.set_random_seed(0)
    model = tf.keras.Sequential(
        [tf.keras.Input((4,)), tf.keras.layers.Dense(8, "relu"), tf.keras.layers.Dense(3)]
    )
    trainer = Trainer(model, scheme="full")
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile(tf.keras.optimizers.SGD(rate), loss, metrics=["accuracy"])
    x, y = np.random.default_rng(0).normal(size=(32, 4)), np.arange(32) % 3
    data = {"x": x, "y": y, "validation_data": (x, y), "batch_size": 8}
    return trainer.fit(**data, epochs=2, verbose=0, callbacks=[callback])


def decaying(tf):
    return tf.keras.optimizers.schedules.CosineDecay(0.01, 8)


def test_all_callbacks_of_keras_are_tried(tf):
    kinds = vars(tf.keras.callbacks).items()
    there = {name for name, kind in kinds if isinstance(kind, type)}
    assert there - {*TRAIN, *RATES, *OTHERS} == set()
    assert {*TRAIN, *RATES, *OTHERS} - there <= set(OF_ONE_STACK)


@pytest.mark.parametrize("name", TRAIN)
def test_it_trains(tf, tmp_path, name):
    if not hasattr(tf.keras.callbacks, name):
        pytest.skip("of the other stack")
    history = fit(tf, TRAIN[name](tf.keras.callbacks, tmp_path), decaying(tf))
    assert len(history.history["loss"]) == 2 and history.elastic["steps"] == 8


@pytest.mark.parametrize("name", RATES)
def test_what_sets_the_rate_is_refused_where_a_schedule_does(tf, name):
    make = RATES[name]
    with pytest.raises(UsageError, match=f"{name} .*--schedule constant"):
        fit(tf, make(tf.keras.callbacks), decaying(tf))
    rates = fit(tf, make(tf.keras.callbacks), 0.01).history["learning_rate" if KERAS_3 else "lr"]
    assert float(rates[-1]) == pytest.approx(0.001 if name == "LearningRateScheduler" else 0.01)


@pytest.mark.skipif(not KERAS_3, reason="of Keras 3")
def test_averaged_weights_are_refused(tf):
    with pytest.raises(UsageError, match="SwapEMAWeights .*use_ema"):
        fit(tf, tf.keras.callbacks.SwapEMAWeights(), 0.01)


def test_a_backup_is_refused_beside_checkpoints_and_within_an_epoch(tf, tmp_path):
    kind, optimizer = tf.keras.callbacks.BackupAndRestore, tf.keras.optimizers.SGD(0.01)
    backup = kind(str(tmp_path / "a"))
    keras_callbacks.require_supported([backup], optimizer, checkpointed=False)
    with pytest.raises(UsageError, match="BackupAndRestore .*Checkpointing"):
        keras_callbacks.require_supported([backup], optimizer, checkpointed=True)
    within = kind(str(tmp_path / "b"), save_freq=10)
    with pytest.raises(UsageError, match="within an epoch"):
        keras_callbacks.require_supported([within], optimizer, checkpointed=False)


def test_a_class_and_a_function_are_called(tf):
    made = keras_callbacks.create("usercallbacks:Notes,usercallbacks:stops_after_an_epoch")
    assert [type(callback).__name__ for callback in made] == ["Notes", "LambdaCallback"]
    assert keras_callbacks.create(None) == []


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
        keras_callbacks.create(f"usercallbacks:Notes,{place}")
