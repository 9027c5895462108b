"""Preprocessing as a probe of it finds it, whatever it is called."""

import numpy as np
import pytest

from elastictrainer.models.preprocessing import Preprocessing, infer_preprocessing


def test_what_is_probed_is_found():
    assert infer_preprocessing(lambda x: x) == Preprocessing()
    assert infer_preprocessing(lambda x: x / 127.5 - 1) == Preprocessing(
        scale=(1 / 127.5,) * 3, offset=(-1.0,) * 3
    )
    found = infer_preprocessing(lambda x: x[..., ::-1] - [103.939, 116.779, 123.68])
    assert found == Preprocessing((2, 1, 0), (1.0, 1.0, 1.0), (-103.939, -116.779, -123.68))


def test_an_argument_that_is_written_over_does_no_harm():
    def in_place(x):
        x *= [1.0, 2.0, 4.0]
        x -= [3.0, 0.0, 1.0]
        return x

    assert infer_preprocessing(in_place) == Preprocessing(scale=(1.0, 2.0, 4.0), offset=(-3.0, -0.0, -1.0))


@pytest.mark.parametrize(
    "function",
    [np.sqrt, lambda x: x - x.mean(axis=-1, keepdims=True), lambda x: np.minimum(x, 200)],
    ids=["curved", "mixed", "clipped"],
)
def test_more_than_that_is_refused(function):
    with pytest.raises(ValueError, match="reorder, scale and shift"):
        infer_preprocessing(function)


def test_nothing_to_do_adds_no_layer(tf):
    pixels = tf.keras.Input((4, 4, 3))
    assert Preprocessing()(pixels) is pixels
