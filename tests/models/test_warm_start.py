"""--init-from: an earlier run's model on new data, with the same classes or others."""

import json

import numpy as np
import pytest

from elastictrainer import UsageError
from elastictrainer.cli import train
from elastictrainer.models.warm_start import model_of
from elastictrainer.runs.run_folder import RunFolder


@pytest.fixture(scope="module")
def earlier(tf, tmp_path_factory):
    """A run that knows three classes of brightness."""
    from PIL import Image

    home = tmp_path_factory.mktemp("earlier")
    for split, count in {"train": 16, "test": 4}.items():
        for label, grey in {"black": 10, "grey": 120, "white": 240}.items():
            folder = home / "images" / split / label
            folder.mkdir(parents=True)
            for k in range(count):
                Image.new("RGB", (32, 32), (grey + k % 8,) * 3).save(folder / f"{k}.png")
    arguments = [
        "--model",
        "demo",
        "--dataset",
        str(home / "images"),
        "--scheme",
        "traditional-tl",
        "--epochs",
        "6",
        "--learning-rate",
        "0.01",
        "--image-size",
        "24",
        "--output",
        str(home / "run"),
    ]
    assert train.main(arguments) == 0
    return home


def test_the_same_classes_keep_the_whole_model(tf, earlier):
    run = RunFolder(earlier / "run")
    model = model_of(run, ["black", "grey", "white"])
    x = np.random.default_rng(0).uniform(0, 255, (3, 24, 24, 3))
    np.testing.assert_array_equal(model(x), tf.keras.models.load_model(run.model_path)(x))


def test_shared_classes_keep_their_weights_and_new_ones_start_from_zero(tf, earlier):
    run = RunFolder(earlier / "run")
    model = model_of(run, ["green", "white", "black"])
    old = tf.keras.models.load_model(run.model_path)
    x = np.random.default_rng(0).uniform(0, 255, (3, 24, 24, 3))
    np.testing.assert_allclose(model(x).numpy()[:, 1:], old(x).numpy()[:, [2, 0]], rtol=1e-5)
    assert not model(x).numpy()[:, 0].any() and len(model.trainable_weights) == len(old.trainable_weights)


def test_et_train_goes_on_where_the_earlier_run_was(earlier, tmp_path, capsys):
    arguments = [
        "--init-from",
        str(earlier / "run"),
        "--dataset",
        str(earlier / "images"),
        "--scheme",
        "full",
        "--epochs",
        "1",
        "--learning-rate",
        "1e-6",
        "--output",
        str(tmp_path / "run"),
    ]
    assert train.main(arguments) == 0
    before, after = (
        json.loads((folder / "summary.json").read_text()) for folder in (earlier / "run", tmp_path / "run")
    )
    assert before["accuracy_last"] > 0.6 and after["accuracy_last"] >= before["accuracy_last"] - 0.1
    assert "image_size: 24" in (tmp_path / "run" / "config.yaml").read_text()  # comes with the model


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--init-from", "nowhere"], "there is no finished run"),
        (["--init-from", "RUN", "--model", "vgg16", "--rotation", "0"], "leave out --model, --rotation"),
    ],
)
def test_bad_requests_are_told(earlier, tmp_path, capsys, arguments, message):
    arguments = [str(earlier / "run") if a == "RUN" else a for a in arguments]
    assert (
        train.main([*arguments, "--dataset", str(earlier / "images"), "--output", str(tmp_path / "run")]) == 2
    )
    assert message in capsys.readouterr().err


def test_a_model_without_a_dense_end_cannot_have_other_classes(tf, tmp_path):
    layers = tf.keras.layers
    inputs = tf.keras.Input((4, 4, 3))
    folder = tmp_path / "run"
    folder.mkdir()
    run = RunFolder(folder)
    tf.keras.Model(inputs, layers.GlobalAveragePooling2D()(layers.Conv2D(3, 1)(inputs))).save(run.model_path)
    run.write_environment({"class_names": ["a", "b", "c"]})
    assert model_of(run, ["a", "b", "c"]).output_shape == (None, 3)
    with pytest.raises(UsageError, match="dense layer"):
        model_of(run, ["a", "b"])
