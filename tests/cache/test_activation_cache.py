import shutil
from collections import namedtuple

import numpy as np
import pytest

from elastictrainer.cache import activation_cache
from elastictrainer.cache.activation_cache import ActivationCache
from elastictrainer.cache.forward_pass import ForwardPass
from elastictrainer.cache.settings import CacheSettings
from elastictrainer.cache.storage import CacheError, NotCacheable, order
from networks import assign, augmented, everything, residual, trained_step, updating_statistics, values

BATCH, STEPS = 4, 5
ENDS = range(BATCH, BATCH * STEPS + 1, BATCH)  # of its minibatches
EXACT = CacheSettings(dtype="float32", seed=7)


def data(tf, scale=1.0):
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, (STEPS, BATCH))
    images = scale * (random.normal(size=(STEPS, BATCH, 8, 8, 3)) + labels[..., None, None, None])
    return [(tf.constant(x, tf.float32), tf.constant(y)) for x, y in zip(images, labels)]


def step_of(tf, layers, network=residual, **options):
    tf.keras.utils.set_random_seed(1)
    return trained_step(tf, network(tf), layers, **options)


def cache_of(tf, step, minibatches, settings=EXACT, features_of=None, written=False):
    """A cache; `features_of`: the kernel of a layer; `written`: it holds the minibatches."""
    spec = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), minibatches[0])
    forward = ForwardPass(step.objective, step.optimizer, minibatches[0])
    features = None if features_of is None else forward.features(features_of)
    options = {"settings": settings, "forward": forward, "features": features}
    cache = ActivationCache(step, minibatches[0], spec, BATCH * STEPS, **options)
    for minibatch in minibatches if written else ():
        cache.write(minibatch)
    return cache


def trained(cache, *epochs):
    """The losses of cached steps in these epochs."""
    return [float(cache.train(cache.read(epoch, k))) for epoch in epochs for k in range(STEPS)]


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
    settings = EXACT if place == "memory" else CacheSettings("auto", "float32", 0, tmp_path, EXACT.seed)
    step = step_of(tf, layers)
    minibatches, variables = data(tf), everything(step)
    before = values(variables)
    cache = cache_of(tf, step, minibatches, settings, written=True)
    losses = trained(cache, 1, 2)
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
    step = step_of(tf, ["c4", "head"])
    minibatches, variables = data(tf), everything(step)
    before = values(variables)
    cache = cache_of(tf, step, minibatches, CacheSettings(dtype=dtype, seed=EXACT.seed), written=True)
    assert {column.dtype for column in cache.storage.columns[:-1]} == {dtype}
    losses = trained(cache, 1)
    assign(variables, before)
    again = [float(step(*minibatch)) for minibatch in shuffled(minibatches, 1)]
    assert losses == again


def test_steps_on_a_float16_cache_train_nearly_the_same(tf):
    step = step_of(tf, ["c4", "head"])
    minibatches, variables = data(tf), everything(step)
    before, weights = values(variables), []
    for dtype in ("float32", "float16"):
        assign(variables, before)
        trained(cache_of(tf, step, minibatches, CacheSettings(dtype=dtype), written=True), 1)
        weights.append(np.concatenate([v.ravel() for v in values(step.variables)]))
    exact, rounded = weights
    assert 0 < np.abs(exact - rounded).max() < 1e-2 * np.abs(exact).max()


def test_numbers_too_large_for_float16_are_stored_as_float32_within_the_memory(tf, tmp_path, monkeypatch):
    """In float32 it has twice as many bytes, and both are there while rows are converted.

    A profile's measurement reads and writes in turn: the cache may be widened after reading began.
    """
    step, minibatches, wide = step_of(tf, ["head"], learning_rate=1e-12), data(tf), tmp_path / "wide"
    minibatches[1] = (minibatches[1][0] * 1e6, minibatches[1][1])
    narrow = cache_of(tf, step, minibatches, CacheSettings()).storage.bytes
    for memory, folder in ((4 * narrow, None), (2 * narrow, wide), (0, wide)):
        cache = cache_of(tf, step, minibatches, CacheSettings(memory=memory, folder=wide))
        cache.write(minibatches[0])
        cache.read(0, 0)
        assert cache.storage.columns[0].dtype == "float16"
        for minibatch in minibatches[1:]:
            cache.write(minibatch)
        assert cache.storage.folder == folder and cache.storage.columns[0].dtype == "float32"
        assert all(part.dtype != np.float16 for part in cache.read(0, 1))
        assert np.isfinite(trained(cache, 1)).all()
        cache.close()
    cache = cache_of(tf, step, minibatches, CacheSettings(memory=narrow, folder=wide))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(0, 0, 0))
    with pytest.raises(CacheError, match="fits neither"):
        cache.write(minibatches[1])
    cache.close()


def test_a_cached_example_keeps_its_augmented_copy(tf):
    """An example keeps its draw from the cache in every epoch; another pass draws again."""
    step, minibatches = step_of(tf, ["c2"], augmented, learning_rate=0.0), data(tf)
    cache = cache_of(tf, step, minibatches, written=True)
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

    step = step_of(tf, ["c4", "head"])
    minibatches, head = data(tf), SolvableHead(step.objective.model)
    cache = cache_of(tf, step, minibatches, features_of=head.kernel)
    for minibatch in minibatches:
        found = cache.write(minibatch).numpy()
        np.testing.assert_allclose(found, head.features(minibatch[0]).numpy(), rtol=1e-5, atol=1e-6)


def test_the_features_of_a_head_in_float32_come_before_a_dropout_in_bfloat16(tf, mixed_precision):
    from elastictrainer.models import zoo
    from elastictrainer.models.solved_head import SolvableHead

    size = zoo.default_image_size("demo")
    model = zoo.create("demo", 3, image_size=size, weights="none", head_init="glorot", augment="none")
    step, head = trained_step(tf, model, ["head"]), SolvableHead(model)
    x = tf.random.stateless_uniform((BATCH, *model.input_shape[1:]), (1, 2), 0, 255)
    cache = cache_of(tf, step, [(x, tf.range(BATCH) % 3)] * STEPS, features_of=head.kernel)
    found, expected = cache.write((x, tf.range(BATCH) % 3)).numpy(), head.features(x).numpy()
    assert (expected != 0).mean() > 0.5
    np.testing.assert_allclose(found, expected, rtol=0.05, atol=0.05 * np.abs(expected).max())


def test_a_selection_that_freezes_nothing_is_not_cacheable(tf):
    with pytest.raises(NotCacheable, match="take as long"):
        cache_of(tf, trained_step(tf, updating_statistics(tf), ["c1"]), data(tf))


Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize("ms_per_mb", [1e6, np.inf])
def test_nothing_is_cached_that_takes_as_long_to_read(tf, monkeypatch, ms_per_mb):
    monkeypatch.setattr(activation_cache, "TYPICAL_MS_PER_MB", ms_per_mb)
    with pytest.raises(NotCacheable, match="take as long"):
        cache_of(tf, step_of(tf, ["head"]), data(tf))


def test_a_cache_that_there_is_no_room_for_is_refused_before_it_is_written(tf, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(0, 0, 1000))
    with pytest.raises(NotCacheable, match="0.0 GB fits neither"):
        cache_of(tf, step_of(tf, ["head"]), data(tf), CacheSettings(memory=0, folder=tmp_path))
