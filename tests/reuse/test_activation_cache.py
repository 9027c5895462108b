import numpy as np
import pytest

from elastictrainer.reuse.cache_reader import order
from elastictrainer.reuse.cache_storage import NotCacheable
from elastictrainer.reuse.example_mixing import stop_where_examples_mix
from elastictrainer.reuse.settings import ReuseSettings
from networks import assign, augmented, everything, residual, trained_step, updating_statistics, values

BATCH, STEPS = 4, 5
ENDS = range(BATCH, BATCH * STEPS + 1, BATCH)  # of its minibatches
EXACT = ReuseSettings(dtype="float32", seed=7)


def data(tf, scale=1.0):
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, (STEPS, BATCH))
    images = scale * (random.normal(size=(STEPS, BATCH, 8, 8, 3)) + labels[..., None, None, None])
    return [(tf.constant(x, tf.float32), tf.constant(y)) for x, y in zip(images, labels)]


def cache_of(tf, step, minibatches, settings=EXACT, capacity=BATCH * STEPS):
    from elastictrainer.reuse.activation_cache import ActivationCache
    from elastictrainer.reuse.forward_pass import ForwardPass

    spec = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), minibatches[0])
    forward = ForwardPass(step.objective, step.optimizer, minibatches[0])
    return ActivationCache(step, minibatches[0], spec, capacity, settings, forward)


def shuffled(minibatches, epoch):
    """The minibatches that an epoch reads from the cache, made of the images themselves."""
    x, y = (np.concatenate([part.numpy() for part in parts]) for parts in zip(*minibatches))
    return [(x[rows], y[rows]) for rows in order(ENDS, EXACT.seed, epoch)]


@pytest.mark.parametrize(
    "place, layers",
    [
        *((place, ["c4", "head"]) for place in ("memory", "file")),
        ("memory", ["head"]),
        *(pytest.param(*case, marks=pytest.mark.long) for case in (("memory", ["c3"]), ("file", ["head"]))),
    ],
    ids=str,
)
def test_cached_steps_train_as_steps_that_compute_everything(tf, tmp_path, layers, place):
    settings = EXACT if place == "memory" else ReuseSettings("auto", "float32", 0, tmp_path, EXACT.seed)
    tf.keras.utils.set_random_seed(1)
    step = trained_step(tf, residual(tf), layers)
    minibatches, variables = data(tf), everything(step)
    cache = cache_of(tf, step, minibatches, settings)
    before = values(variables)
    for minibatch in minibatches:
        cache.write(minibatch)
    losses = [float(cache.train(cache.read(epoch, k))) for epoch in (1, 2) for k in range(STEPS)]
    after = values(variables)
    cache.close()
    assign(variables, before)
    again = [float(step(*minibatch)) for epoch in (1, 2) for minibatch in shuffled(minibatches, epoch)]
    assert losses == again
    for variable, one, other in zip(variables, after, values(variables)):
        np.testing.assert_array_equal(one, other, err_msg=variable.name)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float16", marks=pytest.mark.long)])
def test_bfloat16_is_cached_exactly(tf, mixed_precision, dtype):
    """float32 holds all of its numbers, and float16 those of usual size."""
    tf.keras.utils.set_random_seed(1)
    step = trained_step(tf, residual(tf), ["c4", "head"])
    minibatches, variables = data(tf), everything(step)
    cache = cache_of(tf, step, minibatches, ReuseSettings(dtype=dtype, seed=EXACT.seed))
    assert {column.dtype for column in cache.storage.columns[:-1]} == {dtype}
    before = values(variables)
    for minibatch in minibatches:
        cache.write(minibatch)
    losses = [float(cache.train(cache.read(1, k))) for k in range(STEPS)]
    assign(variables, before)
    again = [float(step(*minibatch)) for minibatch in shuffled(minibatches, 1)]
    assert losses == again


def test_steps_on_a_float16_cache_train_nearly_the_same(tf):
    tf.keras.utils.set_random_seed(1)
    step = trained_step(tf, residual(tf), ["c4", "head"])
    minibatches, variables = data(tf), everything(step)
    before, weights = values(variables), []
    for dtype in ("float32", "float16"):
        assign(variables, before)
        cache = cache_of(tf, step, minibatches, ReuseSettings(dtype=dtype))
        for minibatch in minibatches:
            cache.write(minibatch)
        for k in range(STEPS):
            cache.train(cache.read(1, k))
        weights.append(np.concatenate([v.ravel() for v in values(step.variables)]))
    exact, rounded = weights
    assert 0 < np.abs(exact - rounded).max() < 1e-2 * np.abs(exact).max()


def test_numbers_too_large_for_float16_are_stored_as_float32(tf):
    tf.keras.utils.set_random_seed(1)
    step = trained_step(tf, residual(tf), ["head"], learning_rate=1e-12)
    minibatches = data(tf)
    minibatches[2] = (minibatches[2][0] * 1e6, minibatches[2][1])
    cache = cache_of(tf, step, minibatches, ReuseSettings())
    assert cache.storage.columns[0].dtype == "float16"
    for minibatch in minibatches:
        cache.write(minibatch)
    assert cache.storage.columns[0].dtype == "float32"
    assert np.isfinite([float(cache.train(cache.read(1, k))) for k in range(STEPS)]).all()


def test_a_cache_that_is_widened_after_reading_began_is_read_in_float32(tf):
    """A profile's measurement reads and writes in turn, and rewinds the cache."""
    tf.keras.utils.set_random_seed(1)
    step, minibatches = trained_step(tf, residual(tf), ["head"], learning_rate=1e-12), data(tf)
    cache = cache_of(tf, step, minibatches, ReuseSettings())
    cache.write(minibatches[0])
    cache.read(0, 0)
    cache.write((minibatches[1][0] * 1e6, minibatches[1][1]))
    assert all(part.dtype != np.float16 for part in cache.read(0, 1))
    cache.close()


def test_a_cached_example_keeps_its_augmented_copy(tf):
    """An example keeps its draw from the cache in every epoch; another pass draws again."""
    tf.keras.utils.set_random_seed(1)
    step = trained_step(tf, augmented(tf), ["c2"], learning_rate=0.0)
    minibatches = data(tf)
    cache = cache_of(tf, step, minibatches)
    for minibatch in minibatches:
        cache.write(minibatch)
    whole = cache.storage.read(np.arange(ENDS[-1]))[0]
    other = cache_of(tf, step, minibatches)
    other.write(minibatches[0])
    assert not np.array_equal(whole[:BATCH], other.storage.read(np.arange(BATCH))[0])
    rows = np.concatenate(order(ENDS, EXACT.seed, 3))
    cached = np.concatenate([cache.read(3, k)[0] for k in range(STEPS)])
    np.testing.assert_array_equal(cached, whole[rows])


def test_write_also_gives_the_features_of_the_head(tf):
    """They are those of inference: dropout, which the training step has, comes after them."""
    from elastictrainer.models.solved_head import SolvableHead

    tf.keras.utils.set_random_seed(1)
    step = trained_step(tf, residual(tf), ["c4", "head"])
    minibatches, head = data(tf), SolvableHead(step.objective.model)
    from elastictrainer.reuse.activation_cache import ActivationCache
    from elastictrainer.reuse.forward_pass import ForwardPass

    forward = ForwardPass(step.objective, step.optimizer, minibatches[0])
    spec = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), minibatches[0])
    name = forward.features(head.kernel)
    cache = ActivationCache(step, minibatches[0], spec, BATCH * STEPS, EXACT, forward, features=name)
    for minibatch in minibatches:
        found = cache.write(minibatch).numpy()
        np.testing.assert_allclose(found, head.features(minibatch[0]).numpy(), rtol=1e-5, atol=1e-6)


def test_a_cache_is_a_file_where_memory_is_short_and_smaller_where_the_disk_is(tf, tmp_path, monkeypatch):
    import shutil
    from collections import namedtuple

    usage = namedtuple("usage", "total used free")
    tf.keras.utils.set_random_seed(1)
    step = trained_step(tf, residual(tf), ["head"])
    minibatches = data(tf)
    filed = cache_of(tf, step, minibatches, ReuseSettings(memory=0, folder=tmp_path))
    assert str(tmp_path) in filed.storage.location
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(0, 0, 10))

    with pytest.raises(NotCacheable, match="GB"):
        cache_of(tf, step, minibatches, ReuseSettings(memory=0, folder=tmp_path))
    (tmp_path / "a file").touch()
    with pytest.raises(NotCacheable, match="File exists"):
        cache_of(tf, step, minibatches, ReuseSettings(memory=0, folder=tmp_path / "a file"))


def mixing_examples(tf):
    """A network that takes the mean over the minibatch from each example."""
    layers = tf.keras.layers

    class OthersToo(layers.Layer):
        def call(self, x):
            return x - tf.reduce_mean(x, axis=0, keepdims=True)

        def compute_output_shape(self, shape):
            return shape

    inputs = tf.keras.Input((8, 8, 3))
    x = layers.Conv2D(4, 3, name="c1")(OthersToo()(inputs))
    x = layers.Flatten()(layers.Conv2D(4, 3, name="c2")(x))
    return tf.keras.Model(inputs, layers.Dense(3, name="head")(x))


def test_activations_that_mix_examples_are_not_cached(tf):

    with pytest.raises(NotCacheable, match="mixes the examples|take as long"):
        cache_of(tf, trained_step(tf, mixing_examples(tf), ["head"]), data(tf))


def test_mixing_of_examples_is_looked_for_once(tf):
    """Examples that are all alike cannot tell; what an earlier selection found out counts."""
    from elastictrainer.reuse.forward_pass import ForwardPass
    from elastictrainer.reuse.split import TracedStep

    step = trained_step(tf, mixing_examples(tf), ["head"])
    (x, y), *_ = data(tf)
    forward = ForwardPass(step.objective, step.optimizer, (x, y))
    alike = tf.repeat(x[:1], BATCH, axis=0), y
    unaware, aware = (TracedStep(step.part(*alike), []) for _ in range(2))
    stop_where_examples_mix(unaware, alike)
    stop_where_examples_mix(aware, alike, forward.examples)
    assert not any(op.type == "Conv2D" for op in frozen(aware))
    assert any(op.type == "Conv2D" for op in frozen(unaware))


def frozen(traced):
    return [traced.ops.operations[k] for k in traced.ops.frozen]


def test_a_selection_that_freezes_nothing_is_not_cacheable(tf):

    with pytest.raises(NotCacheable, match="take as long"):
        cache_of(tf, trained_step(tf, updating_statistics(tf), ["c1"]), data(tf))


def test_ops_that_make_rows_of_another_axis_are_frozen_but_not_stored(tf):
    """Five frames of each example become rows of the minibatch in between, and one row again."""
    from elastictrainer.reuse.split import TracedStep

    layers = tf.keras.layers

    class Rows(layers.Layer):
        def __init__(self, *shape):
            super().__init__()
            self._shape = shape

        def call(self, x):
            return tf.reshape(x, (-1, *self._shape))

    inputs = tf.keras.Input((5, 8, 8, 3))
    frames = layers.Flatten()(layers.Conv2D(4, 3)(Rows(8, 8, 3)(inputs)))
    pooled = layers.GlobalAveragePooling1D()(Rows(5, 6 * 6 * 4)(frames))
    step = trained_step(tf, tf.keras.Model(inputs, layers.Dense(3, name="head")(pooled)), ["head"])
    spec = tf.TensorSpec((None, 5, 8, 8, 3)), tf.TensorSpec((None,), tf.int64)
    random = np.random.default_rng(0)
    minibatch = tf.constant(random.normal(size=(BATCH, 5, 8, 8, 3)), tf.float32), tf.zeros(BATCH, tf.int64)
    traced = TracedStep(step.part(*spec), [])
    stop_where_examples_mix(traced, minibatch)
    convolutions = {k for k in traced.ops.frozen if traced.ops.operations[k].type == "Conv2D"}
    assert convolutions and convolutions <= traced.ops.unstored
    means = {k for k in traced.ops.frozen if traced.ops.operations[k].type == "Mean"}
    assert means and not means & traced.ops.unstored
