"""The studies' scripts: a network with its own weights, and changes of images."""

import numpy as np
import pytest


@pytest.mark.realdata
def test_squeezenet_has_the_weights_of_its_file(tf, script, squeezenet_weights, monkeypatch):
    import h5py

    monkeypatch.setenv("SQUEEZENET_WEIGHTS", str(squeezenet_weights))
    model = script("squeezenet").classifier((224, 224, 3), 12)
    assert model.output_shape == (None, 12) and len(model.trainable_variables) == 2 * 25 + 2
    with h5py.File(squeezenet_weights) as file:
        expected = file["fire5/expand3x3/fire5/expand3x3_3/kernel:0"][()]
    np.testing.assert_array_equal(model.get_layer("fire5_expand3x3").get_weights()[0], expected)
    assert model(tf.zeros((1, 224, 224, 3))).numpy().tolist() == [[0.0] * 12], "a head of zeros"


def test_classes_are_halved_and_looks_change(script, tmp_path):
    from PIL import Image

    continual = script("continual")
    for part in ("train", "test"):
        for name in "abcd":
            (tmp_path / "all" / part / name).mkdir(parents=True)
            Image.new("RGB", (2, 2), (200,) * 3).save(tmp_path / "all" / part / name / "1.png")
    continual.link(tmp_path / "all", tmp_path)
    continual.change_looks(tmp_path)
    halves = {
        half: sorted(p.name for p in (tmp_path / half / "test").iterdir()) for half in ("first", "second")
    }
    assert halves == {"first": ["a", "b"], "second": ["c", "d"]}
    changed = sorted((tmp_path / "looks").glob("*/*/*"))
    assert len(changed) == 4 and Image.open(changed[0]).getpixel((0, 0)) == (120, 90, 72)
