from types import SimpleNamespace

import numpy as np
import pytest

from elastictrainer.cache.storable import is_storable, minibatch_mb, row_bytes, stored_dtype


def tensor(tf, shape, dtype="float32"):
    return SimpleNamespace(shape=tf.TensorShape(shape), dtype=tf.as_dtype(dtype))


def test_what_has_a_row_for_each_example_is_storable(tf):
    for shape in ((4, 3), (None, 3), (4,)):
        assert is_storable(tensor(tf, shape), 4)
    for shape in ((), (5, 3), (4, None), None):
        assert not is_storable(tensor(tf, shape), 4)
    assert is_storable(tensor(tf, (4, 3), "bool"), 4) and not is_storable(tensor(tf, (4, 3), "string"), 4)


@pytest.mark.parametrize(
    "dtype, floats, stored",
    [
        ("float32", "float16", "float16"),
        ("float64", "float16", "float16"),
        ("float64", "float32", "float64"),
        ("float16", "float32", "float16"),
        ("bfloat16", "float32", "float32"),
        ("int64", "float16", "int64"),
    ],
)
def test_wide_numbers_are_stored_as_asked(tf, dtype, floats, stored):
    assert stored_dtype(tf.as_dtype(dtype), floats) == stored


def test_sizes_of_rows_and_minibatches(tf):
    features = tensor(tf, (4, 8, 2))
    assert (row_bytes(features, "float16"), row_bytes(features, "float32")) == (32, 64)
    assert minibatch_mb(features, 4) == pytest.approx(4 * 64e-6)
    assert minibatch_mb(features, 5) == np.inf
