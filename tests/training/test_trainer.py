"""Trainer in the conventions of Keras: its data, callbacks, losses and metrics."""

import numpy as np
import pytest

from builders import ArrayData, bright_images, small_network, train_classifier
from elastictrainer import Profile, Trainer, UsageError
from elastictrainer.training.callbacks import TrainerCallback
from log_lines import listen


@pytest.fixture
def keras(tf):
    tf.keras.utils.set_random_seed(0)
    return tf.keras


def image_network(keras):
    layers = keras.layers
    parts = [layers.Conv2D(8, 3, activation="relu"), layers.BatchNormalization(momentum=0.8)]
    parts += [layers.Conv2D(8, 3, activation="relu"), layers.GlobalAveragePooling2D(), layers.Dense(3)]
    return keras.Sequential([layers.Input((8, 8, 3)), *parts])


def logits_loss():
    import tensorflow as tf

    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def elastic(model, loss=None, rho=0.7, optimizer="adam", metrics=None, tensors=6, **options):
    """A trainer with a profile that leaves something to choose: so small networks take mostly overhead."""
    profile = Profile.from_chain([f"t{k}" for k in range(tensors)], 1.0, np.ones(tensors), np.ones(tensors))
    options = {"profile": profile, "deterministic": True, **options}
    trainer = Trainer(model, rho=rho, interval=2, importance_batches=2, **options)
    trainer.compile(optimizer=optimizer, loss=loss or logits_loss(), metrics=metrics)
    return trainer


def test_an_image_model_learns_with_arrays_validation_and_callbacks(tf, keras, tmp_path):
    x, y = bright_images()
    model = image_network(keras)
    trainer = elastic(model, metrics=["accuracy"], optimizer=keras.optimizers.Adam(0.01), tensors=8)
    seen, kinds, best = [], keras.callbacks, str(tmp_path / "best.keras")
    callbacks = [
        kinds.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append((batch, sorted(logs)))),
        kinds.CSVLogger(str(tmp_path / "log.csv")),
        kinds.ModelCheckpoint(best, monitor="val_accuracy", save_best_only=True),
        kinds.LearningRateScheduler(lambda epoch: 0.01 if epoch < 3 else 0.003),
        kinds.TensorBoard(str(tmp_path / "events")),
    ]
    history = trainer.fit(x, y, batch_size=8, epochs=8, validation_split=0.2, callbacks=callbacks, verbose=0)
    assert history.history["val_accuracy"][-1] > 0.9
    assert set(history.history) >= {"loss", "accuracy", "val_loss", "val_accuracy", "ratio", "selected"}
    assert len({"lr", "learning_rate"} & set(history.history)) == 1  # as Keras 2 and 3 call it
    assert len(seen) == 8 * 16 and seen[0] == (0, ["accuracy", "loss"])
    columns = (tmp_path / "log.csv").read_text().split("\n")[0].split(",")
    assert not {"ratio", "selected"} & set(columns), "Keras' columns are not shifted"
    assert keras.models.load_model(tmp_path / "best.keras").evaluate(x, y, verbose=0)[1] > 0.9
    assert [record["step"] for record in history.selections] == [4, 32, 64, 96]
    assert history.elastic["steps"] == 128
    assert 0 < history.elastic["rho_predicted"] <= 1 and history.elastic["rho_achieved"] > 0


def test_without_a_profile_one_is_made_and_measured_times_steer(tf, keras):
    x, y = bright_images()
    model = image_network(keras)
    before = [v.numpy() for v in model.variables]

    def check(line):
        if line.startswith("full step"):  # the profile is made, and no step taken
            for value, variable in zip(before, model.variables):
                np.testing.assert_array_equal(value, variable)

    said = listen(check)
    trainer = elastic(model, rho=0.97, profile=None, deterministic=False)
    history = trainer.fit(x, y, 8, 3, 0)  # in the order of Model.fit
    assert said[0] == "profiling the model" and said[1].startswith("full step")
    assert len(trainer.profile) == len(model.trainable_variables) == 8
    assert trainer.profile.metadata["coverage"] > 0.8
    assert trainer.profile.metadata["calibration_seconds"] < 10, "as long as a short run"
    # The clock ends the run; its last epoch may be over after the one step that finds its graph cold.
    assert all(np.isfinite(history.history["ratio"][:-1])) and history.elastic["seconds"]["importance"] > 0


def test_tensors_at_rest_do_not_move_and_frozen_layers_stay_frozen(tf, keras):
    x, y = bright_images()
    model = image_network(keras)
    model.layers[0].trainable = False
    frozen = [w.copy() for w in model.layers[0].get_weights()]
    trainer = elastic(model)
    weights = {}

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            weights[len(weights)] = [v.numpy() for v in model.trainable_variables]

    history = trainer.fit(x, y, batch_size=8, epochs=1, callbacks=[Watch()], verbose=0)
    for before, after in zip(frozen, model.layers[0].get_weights()):
        np.testing.assert_array_equal(before, after)
    (selection,) = history.selections
    begin = selection["step"]
    assert 0 < len(selection["selected"]) < 6
    for index, (before, after) in enumerate(zip(weights[begin], weights[len(weights) - 1])):
        assert np.array_equal(before, after) == (index not in selection["selected"])


@pytest.mark.parametrize(
    "optimizer, rtol, calls, given",
    [
        ("sgd", 1e-5, [(0, 2)], {"sample_weight": np.linspace(0.5, 2, 60)}),
        ("sgd", 1e-5, [(0, 2)], {"class_weight": {0: 0.0, 1: 1.0, 2: 3.0}}),
        ("adam", 1e-4, [(0, 1), (1, 2), (2, 3)], {"shuffle": False}),
    ],
    ids=["sample weights", "class weights", "a call for each epoch"],
)
def test_full_training_equals_keras_own(tf, keras, optimizer, rtol, calls, given):
    x, y = bright_images(60)

    def train(with_trainer):
        tf.keras.utils.set_random_seed(3)
        model = image_network(keras)
        model.compile(optimizer, logits_loss(), metrics=["accuracy"], weighted_metrics=["accuracy"])
        fit = Trainer(model, scheme="full").fit if with_trainer else model.fit
        options = {"batch_size": 8, "verbose": 0, **given}
        runs = [fit(x, y, initial_epoch=first, epochs=last, **options) for first, last in calls]
        return runs, model.get_weights()

    (ours, values), (theirs, others) = train(True), train(False)
    assert [run.epoch for run in ours] == [run.epoch for run in theirs]
    for name, value in theirs[-1].history.items():
        np.testing.assert_allclose(ours[-1].history[name], value, rtol=rtol, err_msg=name)
    for value, other in zip(values, others):
        np.testing.assert_allclose(value, other, rtol=rtol, atol=1e-6)


@pytest.mark.slow
def test_a_text_classifier_with_an_embedding_and_a_gru(tf, keras):
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 128)
    tokens = random.integers(0, 40, (128, 12)) + 40 * labels[:, None]
    model = keras.Sequential([keras.layers.Embedding(80, 8), keras.layers.GRU(8), keras.layers.Dense(1)])
    data = tf.data.Dataset.from_tensor_slices((tokens, labels)).shuffle(128, seed=0).batch(16)
    loss, metric = keras.losses.BinaryCrossentropy(from_logits=True), keras.metrics.BinaryAccuracy
    trainer = elastic(model, loss, optimizer=keras.optimizers.Adam(0.02), metrics=[metric(threshold=0.0)])
    history = trainer.fit(data, epochs=10, verbose=0)
    assert history.history["binary_accuracy"][-1] > 0.9
    assert history.selections


def test_regression_with_two_outputs_and_a_generator(tf, keras):
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(16, activation="relu")(inputs)
    outputs = {name: keras.layers.Dense(1, name=name)(hidden) for name in ("sum", "product")}
    model = keras.Model(inputs, outputs)

    def minibatches():
        random = np.random.default_rng(0)
        while True:
            x = random.normal(size=(16, 4)).astype(np.float32)
            yield x, {"sum": x.sum(axis=1, keepdims=True), "product": x[:, :1] * x[:, 1:2]}

    trainer = elastic(model, {"sum": "mse", "product": "mae"}, optimizer=keras.optimizers.Adam(0.01))
    history = trainer.fit(minibatches(), steps_per_epoch=40, epochs=3, verbose=0)
    assert history.history["sum_loss"][-1] < 0.3 * history.history["sum_loss"][0]


def test_a_subclassed_model_stops_early_and_the_last_minibatch_may_be_smaller(tf, keras):
    class Perceptron(keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden = keras.layers.Dense(16, activation="relu", kernel_regularizer="l2")
            self.out = keras.layers.Dense(3)

        def call(self, x, training=None):
            return self.out(self.hidden(keras.layers.Flatten()(x)))

    x, y = bright_images()
    trainer = elastic(Perceptron(), tensors=4)
    stop = keras.callbacks.EarlyStopping("loss", patience=0, min_delta=100.0)
    # Ten and two thirds minibatches.
    history = trainer.fit(x, y, batch_size=15, epochs=6, callbacks=[stop], verbose=0)
    assert len(history.history["loss"]) == 2


def test_backup_and_restore_goes_on_where_it_was(tf, keras, tmp_path):
    x, y = bright_images()
    model = image_network(keras)
    trainer = elastic(model, tensors=8)
    backup = keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))

    class Fails(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 2:
                raise RuntimeError("the plug was pulled")

    with pytest.raises(RuntimeError, match="plug"):
        trainer.fit(x, y, batch_size=16, epochs=5, callbacks=[backup, Fails()], verbose=0)
    counter = TrainerCallback()
    history = trainer.fit(x, y, batch_size=16, epochs=5, callbacks=[backup, counter], verbose=0)
    assert history.epoch[0] >= 2 and history.epoch[-1] == 4
    clock, progress = counter.run_state.clock, counter.run_state.progress
    assert clock.epochs * 10 == progress.step, "the learning rate falls to its end in the steps left"


def test_data_that_ends_with_an_epoch_ends_the_run_without_another_one(tf, keras):
    x, y = bright_images(32)
    trainer = elastic(image_network(keras), tensors=8)
    said = listen()
    pairs = ((x[k : k + 8], y[k : k + 8]) for k in range(0, 32, 8))
    history = trainer.fit(pairs, steps_per_epoch=2, epochs=4, verbose=0)
    assert history.epoch == [0, 1] and len(history.history["loss"]) == 2
    assert any("the data has ended after 0 of 2 minibatches" in line for line in said)


X, Y = np.zeros((8, 2)), np.zeros((8, 1))
REFUSED = {
    "not compiled": (lambda keras: {"x": X, "y": Y}, r"compile\(optimizer"),
    "no data": (lambda keras: {"epochs": 1}, "no data.*as x"),
    "class weights for a function": (
        lambda keras: {"x": lambda epoch, first: None, "steps_per_epoch": 2, "class_weight": {0: 1.0}},
        "class_weight .*function",
    ),
    "no list": (
        lambda keras: {"x": X, "y": Y, "callbacks": keras.callbacks.CallbackList()},
        "not a CallbackList",
    ),
}


@pytest.mark.parametrize("given, message", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_fitted_is_refused(keras, given, message):
    trainer = Trainer(keras.Sequential([keras.layers.Dense(1)]), scheme="full")
    if "compile" not in message:
        trainer.compile("sgd", "mse")
    with pytest.raises(UsageError, match=message):
        trainer.fit(**given(keras), verbose=0)


def test_data_of_unknown_length_and_a_speed_that_cannot_be_had_are_refused(tf, keras, rough_profiles):
    x, y = bright_images(16)
    data = tf.data.Dataset.from_generator(
        lambda: iter([(x, y)]), output_signature=(tf.TensorSpec((16, 8, 8, 3)), tf.TensorSpec(16, tf.int64))
    )
    trainer = elastic(image_network(keras), rho=0.01, profile=None)
    with pytest.raises(UsageError, match="steps_per_epoch"):
        trainer.fit(data, verbose=0)
    with pytest.raises(UsageError, match="rho 0.01"):
        trainer.fit(x, y, verbose=0)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"interval": 0, "scheme": "full"}, "interval must be at least 1, not 0"),
        ({"importance_batches": 0}, "importance_batches must be at least 1"),
        ({"rho": 0.0}, "rho must be above 0 and at most 1, not 0"),
        ({"rho": 1.1}, "not 1.1"),
        ({"head": "solved"}, "keep, solve"),
        ({"profile": Profile.from_chain(["a"], 1.0, [1.0], [1.0])}, "1 tensors"),
    ],
)
def test_bad_arguments(tf, options, message):
    with pytest.raises(UsageError, match=message):
        train_classifier(tf, small_network(tf), ArrayData(tf), **options)


def test_after_the_head_the_rest_is_trained_by_a_profile_of_its_own(tf, keras, rough_profiles):
    x, y = bright_images(48)
    model = image_network(keras)
    for layer in model.layers[:-1]:
        layer.trainable = False
    loss = logits_loss()
    trainer = Trainer(model, rho=1.0, interval=1, importance_batches=1)
    trainer.compile("sgd", loss)
    trainer.fit(x, y, batch_size=8, epochs=1, verbose=0)
    assert len(trainer.profile) == 2
    for layer in model.layers:
        layer.trainable = True
    trainer.compile("sgd", loss)
    trainer.fit(x, y, batch_size=8, epochs=1, verbose=0)
    assert len(trainer.profile) == len(model.trainable_variables)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ragged", pytest.param("sparse", marks=pytest.mark.long)])
def test_data_that_is_no_plain_tensor_is_trained_on_without_caching(tf, keras, rough_profiles, kind):
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 64)
    if kind == "ragged":
        rows = [random.integers(1, 40, random.integers(2, 9)) + 40 * label for label in labels]
        data, first = tf.ragged.constant([row.tolist() for row in rows]), keras.layers.Embedding(90, 8)
        try:
            inputs = keras.Input((None,), dtype="int64", ragged=True)
        except TypeError:
            pytest.skip("not of this Keras")
        pooled = keras.layers.GlobalAveragePooling1D()(first(inputs))
    else:
        dense = (random.random((64, 30)) < 0.2) * (1.0 + labels[:, None])
        data = tf.sparse.from_dense(dense.astype(np.float32))
        inputs = keras.Input((30,), sparse=True)
        pooled = keras.layers.Dense(8, activation="relu")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(2)(pooled))
    said = listen()
    trainer = Trainer(model, rho=1.0, interval=1, importance_batches=1)
    trainer.compile("sgd", logits_loss())
    batches = tf.data.Dataset.from_tensor_slices((data, labels)).batch(8, drop_remainder=True)
    history = trainer.fit(batches, epochs=2, verbose=0)
    assert history.elastic["cached_share"] == 0
    assert any("not cached" in line and "ragged" in line for line in said)


CHANGES = [("elastic", "unfreezing"), ("full", "freezing"), ("elastic", "compiling")]
FURTHER = [("full", "unfreezing"), ("elastic", "freezing"), ("full", "compiling")]


@pytest.mark.parametrize(
    "scheme, by", [*CHANGES, *(pytest.param(*case, marks=pytest.mark.slow) for case in FURTHER)]
)
def test_a_change_of_the_model_in_a_callback_is_told_and_two_fits_are_possible(tf, keras, scheme, by):
    x, y = bright_images()
    model = image_network(keras)
    model.layers[0].trainable = by == "freezing"
    loss = logits_loss()

    class Changes(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                model.layers[0].trainable = by != "freezing"
                if by == "compiling":
                    model.compile("adam", loss)

    def trainer():
        tensors = len(model.trainable_variables)
        return elastic(model, loss, tensors=tensors, scheme=scheme, activation_cache="off")

    what = "compiled the model" if by == "compiling" else "froze or unfroze a layer"
    options = {"batch_size": 8, "verbose": 0}
    with pytest.raises(UsageError, match=f"callback {what} .*Trainer.fit"):
        trainer().fit(x, y, epochs=4, callbacks=[Changes()], **options)
    before = model.layers[0].kernel.numpy()
    history = trainer().fit(x, y, initial_epoch=1, epochs=2, **options)  # made and compiled again
    assert history.elastic["steps"] == 20
    assert (model.layers[0].kernel.numpy() == before).all() == (by == "freezing")


@pytest.mark.parametrize("epochs, first", [(3, 3), (3, 5), (0, 0)])
def test_a_training_that_is_over_is_not_begun_as_by_keras(tf, keras, epochs, first):
    x, y = bright_images()
    model, told = image_network(keras), []
    trainer = elastic(model, tensors=8)
    before = model.get_weights()
    note = keras.callbacks.LambdaCallback(on_train_end=lambda logs: told.append("end"))
    given = {"initial_epoch": first, "epochs": epochs, "verbose": 0, "callbacks": [note]}
    assert trainer.fit(x, y, **given).epoch == model.fit(x, y, **given).epoch == []
    assert told == ["end", "end"]
    assert all(map(np.array_equal, before, model.get_weights()))


def test_a_file_of_figures_goes_on_in_the_columns_that_keras_began(tf, keras, tmp_path):
    x, y = bright_images()
    model, log = image_network(keras), tmp_path / "log.csv"
    trainer = elastic(model, tensors=8)
    given = {"validation_data": (x, y), "verbose": 0}
    model.fit(x, y, callbacks=[keras.callbacks.CSVLogger(log)], **given)
    after = trainer.fit(x, y, callbacks=[keras.callbacks.CSVLogger(log, append=True)], **given).history
    first, *rows = (line.split(",") for line in log.read_text().split())
    appended = dict(zip(first, rows[-1]))
    assert len(rows[-1]) == len(first) and {"ratio", "selected"} <= after.keys()
    assert [float(appended[name]) for name in ("loss", "val_loss")] == pytest.approx(
        [after[name][0] for name in ("loss", "val_loss")]
    )
