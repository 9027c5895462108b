"""The demo network's shapes, and its weights in a file."""

import numpy as np
import pytest

from elastictrainer.models import demo_network


def test_features_are_a_quarter_of_the_height_and_width(tf):
    model = demo_network.backbone((32, 24, 3))
    assert model.output_shape == (None, 8, 6, 96)
    assert len([v for v in model.trainable_weights if len(v.shape) == 4]) == 17


def test_the_weights_of_the_package_fit(tf):
    model = demo_network.backbone((16, 16, 3), str(demo_network.WEIGHTS))
    again = demo_network.backbone((16, 16, 3), str(demo_network.WEIGHTS))
    for a, b in zip(model.get_weights(), again.get_weights()):
        assert np.isfinite(a).all()
        np.testing.assert_array_equal(a, b)


def test_saved_weights_are_read_back_in_half_precision(tf, tmp_path):
    first, second = demo_network.backbone((16, 16, 3)), demo_network.backbone((16, 16, 3))
    path = str(tmp_path / "w.npz")
    np.savez_compressed(path, *[w.astype(np.float16) for w in first.get_weights()])
    demo_network.load_weights(second, path)
    for a, b in zip(first.get_weights(), second.get_weights()):
        assert b.dtype == np.float32
        np.testing.assert_array_equal(a.astype(np.float16), b.astype(np.float16))


@pytest.mark.parametrize("change", [lambda a: a[:-1], lambda a: [a[0][..., :-1], *a[1:]]])
def test_weights_of_another_network_are_refused(tf, tmp_path, change):
    model = demo_network.backbone((16, 16, 3))
    np.savez(tmp_path / "w.npz", *change(model.get_weights()))
    with pytest.raises(ValueError, match="do not fit"):
        demo_network.load_weights(model, str(tmp_path / "w.npz"))
