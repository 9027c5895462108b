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


@pytest.mark.parametrize("variant, size, millions", [("lite1", 240, 5.42), ("lite2", 260, 6.09)])
def test_efficientnet_lite_has_the_published_size_and_the_arrays_of_its_file(
    tf, script, tmp_path, monkeypatch, variant, size, millions
):
    module, path = script("efficientnet_lite"), tmp_path / "lite.npz"
    monkeypatch.setenv("EFFICIENTNET_LITE_WEIGHTS", str(path))
    np.savez(path)
    with monkeypatch.context() as patched:
        patched.setattr(module, "_load", lambda model, arrays: None)
        model = getattr(module, variant)((size, size, 3), 1000)
    assert 1e-6 * sum(np.prod(v.shape) for v in model.trainable_variables) == pytest.approx(
        millions, abs=5e-3
    )
    random, arrays = np.random.default_rng(0), {}
    for layer in model.layers:
        shapes = [v.shape for v in layer.weights]
        if isinstance(layer, tf.keras.layers.BatchNormalization):
            for kind, shape in zip(("weight", "bias", "running_mean", "running_var"), shapes):
                arrays[f"_{layer.name}.{kind}"] = random.random(shape)
        elif "conv" in layer.name:
            height, width, before, after = shapes[0]
            depthwise = "depthwise" in layer.name
            channels = (before, after) if depthwise else (after, before)
            arrays[f"_{layer.name}.weight"] = random.random((*channels, height, width))
    np.savez(path, **arrays)
    model = getattr(module, variant)((size, size, 3), 10)
    kernel, wide = (
        model.get_layer(name).get_weights()[0] for name in ("conv_head", "blocks.3._depthwise_conv")
    )
    np.testing.assert_allclose(kernel[0, 0, 5, 7], arrays["_conv_head.weight"][7, 5, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(
        wide[1, 2, 9, 0], arrays["_blocks.3._depthwise_conv.weight"][9, 0, 1, 2], rtol=1e-6
    )
    variance = model.get_layer("blocks.3._bn1").get_weights()[3]
    np.testing.assert_allclose(variance, arrays["_blocks.3._bn1.running_var"], rtol=1e-6)


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
