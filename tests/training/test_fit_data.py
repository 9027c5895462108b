"""The data of a run, and whether each epoch of it has the same examples."""

import numpy as np
import pytest

from elastictrainer import CacheSettings, Trainer
from elastictrainer.training.fit_data import effective_cache
from log_lines import listen

COUNT, BATCH, EPOCHS = 48, 4, 7
LABELS = np.arange(COUNT, dtype="float32")


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).normal(size=(COUNT, 64)).astype("float32")


@pytest.fixture(scope="module")
def data(tf, images):
    return tf.data.Dataset.from_tensor_slices((images, LABELS))


def compiled(tf):
    """A network, compiled with what tells the mean label of an epoch, and how many labels a minibatch has."""
    tf.keras.utils.set_random_seed(1)
    layers = tf.keras.layers
    model = tf.keras.Sequential([tf.keras.Input((64,)), layers.Dense(8, activation="tanh"), layers.Dense(1)])

    def loss(y, outputs):
        return tf.reduce_mean((outputs - tf.reshape(y, (-1, 1)) / COUNT) ** 2, axis=-1)

    def label(y, outputs):
        return tf.reshape(y, (-1,))

    def distinct(y, outputs):
        return tf.cast(tf.size(tf.unique(tf.reshape(y, (-1,)) // (COUNT // BATCH))[0]), tf.float32)

    model.compile(tf.keras.optimizers.SGD(1e-3), loss, metrics=[label, distinct], jit_compile=False)
    return model


def trained(tf, *given, activation_cache="auto", model=None, epochs=EPOCHS, **options):
    """A run on such data, of an interval and a half; returns its history and what it said."""
    said = listen()
    settings = CacheSettings(activation_cache, "float32")
    trainer = Trainer(model or compiled(tf), scheme="traditional-tl", interval=4, activation_cache=settings)
    history = trainer.fit(*given, epochs=epochs, verbose=0, **options)
    return history, said


def sequence(tf, images, labels_of_epoch=lambda epoch: LABELS, **options):
    """Minibatches by their number, whose labels a new epoch may change; with the options of its workers."""

    class Minibatches(tf.keras.utils.Sequence):
        epoch = 0

        def __len__(self):
            return COUNT // BATCH

        def __getitem__(self, k):
            rows = slice(k * BATCH, (k + 1) * BATCH)
            return images[rows], labels_of_epoch(self.epoch)[rows]

        def on_epoch_end(self):
            self.epoch += 1

    try:
        return Minibatches(**options), {}
    except TypeError:  # Keras 2 has these as options of `fit`
        return Minibatches(), options


def test_what_is_read_ahead_does_not_come_again(tf, images):
    data, options = sequence(tf, images, workers=2, use_multiprocessing=False, max_queue_size=10)
    # Few epochs: at the end of each, the threads of Keras 2 wait five seconds for more.
    history, said = trained(tf, data, epochs=2, **options)
    assert history.history["label"] == pytest.approx([LABELS.mean()] * 2)
    (line,) = [line for line in said if line.startswith("not cached")]
    assert "Minibatches" in line and "Trainer.fit" in line


def test_the_data_is_told_of_the_end_of_the_last_epoch_too(tf, images):
    data, options = sequence(tf, images)
    assert not options
    for call in (1, 2):
        trained(tf, data, epochs=3)
        assert data.epoch == 3 * call


def test_labels_that_change_in_every_epoch_are_trained_on(tf, images):
    data, _ = sequence(tf, images, lambda epoch: np.full(COUNT, epoch % 3, "float32"))
    labels = trained(tf, data)[0].history["label"]
    assert labels == pytest.approx([epoch % 3 for epoch in range(len(labels))]) and len(labels) > 3


def test_examples_that_are_drawn_in_every_epoch_are_cached_only_at_the_users_word(tf, data):
    drawn = data.shuffle(COUNT).take(COUNT // 2).batch(BATCH)
    history, said = trained(tf, drawn)
    assert len(set(history.history["label"])) == EPOCHS
    assert any("Take after a shuffle " in line for line in said)
    history, _ = trained(tf, drawn, activation_cache="always")
    assert [len(set(np.round(history.history["label"][k : k + 4], 3))) for k in (0, 4)] == [1, 1]


def forms_of_composed(tf, images):
    """Minibatches that have one label of each quarter, in every form of data."""
    order = np.arange(COUNT).reshape(BATCH, -1).T.ravel()
    x, y = images[order], LABELS[order]
    slices = tf.data.Dataset.from_tensor_slices((x, y))
    batches = slices.batch(BATCH, drop_remainder=True)
    in_minibatches = tf.data.Dataset.from_tensor_slices((x.reshape(-1, BATCH, 64), y.reshape(-1, BATCH)))

    def stream(epoch, first):
        return batches.skip(first).concatenate(batches.repeat())

    return {
        "arrays": ((x, y), {"batch_size": BATCH, "shuffle": False}),
        "dataset": ((batches,), {}),
        "shuffled minibatches": ((batches.shuffle(COUNT).prefetch(2),), {}),
        "already batched": ((in_minibatches,), {}),
        "function": ((stream,), {"steps_per_epoch": COUNT // BATCH}),
    }


@pytest.mark.parametrize("form", ["arrays", "dataset", "shuffled minibatches", "already batched", "function"])
def test_minibatches_that_were_composed_stay_together(tf, images, form):
    given, options = forms_of_composed(tf, images)[form]
    history, _ = trained(tf, *given, **options)
    assert history.elastic["cached_share"] == 1.0
    assert history.history["distinct"] == pytest.approx([BATCH] * EPOCHS)
    assert history.history["label"] == pytest.approx([LABELS.mean()] * EPOCHS)


@pytest.mark.parametrize("form", ["arrays", "dataset", "function"])
def test_shuffled_data_is_shuffled_when_it_is_read_from_the_cache(tf, images, data, form):
    shuffled = data.shuffle(COUNT).batch(BATCH)
    of_stream = {"steps_per_epoch": COUNT // BATCH, "shuffle": True}
    given, options = {
        "arrays": ((images, LABELS), {"batch_size": BATCH}),
        "dataset": ((shuffled,), {}),
        "function": ((lambda epoch, first: shuffled.repeat(),), of_stream),
    }[form]
    history, _ = trained(tf, *given, **options)
    assert history.elastic["cached_share"] == 1.0
    assert len(set(np.round(history.history["distinct"][:4], 5))) > 1
    assert history.history["label"] == pytest.approx([LABELS.mean()] * EPOCHS)


@pytest.mark.parametrize("form", ["minibatches of several sizes", "with its number of steps"])
def test_a_dataset_has_each_example_once_in_every_epoch(tf, data, form):
    """Keras keeps an iterator over epochs where it is told their steps."""
    if form == "with its number of steps":
        history, _ = trained(tf, data.batch(BATCH).prefetch(4), steps_per_epoch=COUNT // BATCH)
    else:  # 4 4 4 4 2, 4 4 4 4 4 4 4 2
        history, _ = trained(tf, data.take(18).batch(BATCH).concatenate(data.skip(18).batch(BATCH)))
    assert history.elastic["cached_share"] == 1.0
    assert history.history["label"] == pytest.approx([LABELS.mean()] * EPOCHS)


@pytest.fixture(scope="module")
def pipelines(tf, data):
    """Of each a data set, and how it is cached: in "mixed" minibatches, "kept" ones; else why not."""
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([0], [1]), -1)
    scale, drawing = tf.Variable(1.0), tf.random.Generator.from_seed(1)
    shuffled = data.shuffle(COUNT)
    counted = tf.data.experimental.assert_cardinality(COUNT // BATCH)
    signature = (tf.TensorSpec((4,)), tf.TensorSpec(()))

    def noisy(x, y):
        return x + tf.random.uniform([64]), y

    def in_python(x, y):
        return x, tf.ensure_shape(tf.numpy_function(lambda label: label, [y], tf.float32), ())

    def perhaps_noisy(x, y):
        return tf.cond(y > 3, lambda: noisy(x, y), lambda: (x, y))

    new_pairs = tf.data.Dataset.zip((shuffled, data)).map(lambda a, b: (a[0], b[1]))
    by_generator = tf.data.Dataset.from_generator(lambda: iter([]), output_signature=signature)
    sampled = tf.data.Dataset.sample_from_datasets([data, data])
    return {
        "in order": (data.batch(4), "kept"),
        "a rest dropped": (data.batch(5, drop_remainder=True), "kept"),
        "shuffled": (shuffled.batch(4).prefetch(1), "mixed"),
        "shuffled, no rest": (shuffled.batch(4, drop_remainder=True), "mixed"),
        "shuffled once": (data.shuffle(9, reshuffle_each_iteration=False).take(40).batch(4), "kept"),
        "shuffled twice": (data.batch(1).shuffle(9).unbatch().batch(4).apply(counted), "kept"),
        "shuffled and cached": (shuffled.take(40).cache().batch(4), "kept"),
        "drawn and cached": (data.map(noisy).cache().shuffle(COUNT).batch(4), "mixed"),
        "taken from a shuffled one, all": (shuffled.take(COUNT).batch(4), "kept"),
        "a table": (shuffled.map(lambda x, y: (x, table[tf.cast(y, tf.int32)])).batch(4), "mixed"),
        "mapped minibatches": (shuffled.batch(4).map(lambda x, y: (2 * x, y)), "mixed"),
        "repeated": (shuffled.repeat(2).batch(4), "kept"),
        "no such step": (data.batch(4).apply(lambda d: d.snapshot("unused")), "SnapshotDataset"),
        "skipped": (shuffled.skip(8).batch(4), "Skip after a shuffle"),
        "shared out": (shuffled.shard(2, 0).batch(4), "Shard after a shuffle"),
        "a shuffled rest dropped": (shuffled.batch(5, drop_remainder=True), "Batch after a shuffle"),
        "minibatches left out": (shuffled.batch(4).take(2), "Take after a shuffle"),
        "new pairs": (new_pairs.batch(4), "Zip after a shuffle"),
        "sampled": (sampled.batch(8).apply(counted), "DirectedInterleaveDataset"),
        "drawn": (data.map(noisy).batch(4), "Map of the tf.data.Dataset runs RandomUniform"),
        "drawn if": (data.map(perhaps_noisy).batch(4), "runs RandomUniform"),
        "by drawing": (data.map(lambda x, y: (x, drawing.uniform([]))).batch(4), "runs RngReadAndSkip"),
        "of a variable": (data.map(lambda x, y: (x * scale, y)).batch(4), "runs ReadVariableOp"),
        "of Python": (data.map(in_python).batch(4), "runs PyFunc"),
        "of a Python generator": (by_generator.batch(4).apply(counted), "runs GeneratorDataset"),
        "of unknown length": (data.filter(lambda x, y: y > 3).batch(4), "assert_cardinality"),
        "endless": (data.batch(4).repeat(), "not known"),
    }


def test_only_a_pipeline_that_gives_the_same_examples_is_cached(pipelines):
    part = {"x": pipelines["in order"][0], "steps_per_epoch": 6}
    assert "steps_per_epoch=6 is not all" in effective_cache(CacheSettings(), part)[1]
    for name, (given, expected) in pipelines.items():
        settings, reason = effective_cache(CacheSettings(), {"x": given})
        if expected in ("mixed", "kept"):
            seed = 0 if expected == "mixed" else None
            assert (reason, settings.mode, settings.seed) == ("", "auto", seed), name
        else:
            assert settings.mode == "off" and expected in reason, name
            always, _ = effective_cache(CacheSettings("always"), {"x": given})
            assert (always.mode == "always") == ('activation_cache="always"' in reason), name


def test_a_folder_of_images_as_keras_reads_it_is_cached(tf, image_folder):
    options = {"image_size": (8, 8), "validation_split": 0.25, "subset": "training", "seed": 1}
    read = tf.keras.utils.image_dataset_from_directory(image_folder / "train", batch_size=4, **options)
    settings, reason = effective_cache(CacheSettings(), {"x": read})
    assert (reason, settings.seed) == ("", 0)


@pytest.mark.parametrize(
    "given, why",
    [
        ({"shuffle": "batch"}, ""),
        ({"steps_per_epoch": 3}, "an epoch need not be all the data"),
        ({"x": iter([])}, "a generator"),
    ],
    ids=["whole minibatches", "part", "generator"],
)
def test_arrays_of_which_an_epoch_is_not_all_in_a_new_order_are_not_mixed(images, given, why):
    settings, reason = effective_cache(CacheSettings(), {"x": images, "y": LABELS, **given})
    assert why in reason and (settings.mode == "off" if why else settings.seed is None)


def test_epochs_that_keras_cuts_short_are_not_cached(tf, images):
    """Each has another part of the data."""
    if not hasattr(getattr(tf.keras, "config", None), "set_max_steps_per_epoch"):
        pytest.skip("not of this Keras")
    tf.keras.config.set_max_steps_per_epoch(3)
    try:
        history, said = trained(tf, images, LABELS, batch_size=BATCH, shuffle=False)
    finally:
        tf.keras.config.set_max_steps_per_epoch(None)
    assert history.history["label"][:4] == pytest.approx([5.5, 17.5, 29.5, 41.5])
    assert any("not cached" in line and "max_steps_per_epoch" in line for line in said)


def test_arrays_that_are_changed_in_place_change_nothing_within_an_interval(tf, images):
    """`Model.fit` takes them as they were, too; a new interval reads them again."""

    def fitted(with_trainer):
        labels = LABELS.copy()
        changing = tf.keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: labels.fill(epoch))
        options = {"batch_size": BATCH, "callbacks": [changing]}
        if with_trainer:
            return trained(tf, images, labels, **options)[0].history["label"][:4]
        return compiled(tf).fit(images, labels, epochs=4, verbose=0, **options).history["label"]

    assert fitted(True) == pytest.approx(fitted(False))


def test_a_cache_in_a_file_is_cached_only_at_the_users_word(tf, data, tmp_path):
    cached = data.shuffle(COUNT).cache(str(tmp_path / "cache")).batch(BATCH).prefetch(2)
    history, said = trained(tf, cached)
    assert history.elastic["cached_share"] == 0.0
    assert any("cache in a file " in line for line in said)
    history, _ = trained(tf, cached, activation_cache="always")  # now it is complete
    assert history.elastic["cached_share"] == 1.0
    assert history.history["label"] == pytest.approx([LABELS.mean()] * EPOCHS)
