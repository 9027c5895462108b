"""A classifier says the same, whatever the format of its file; what can run code is read only if trusted."""

from pathlib import Path

import numpy as np
import pytest

from elastictrainer import UsageError
from elastictrainer.models import predictor
from elastictrainer.models.export import export
from run_builders import make_run

NAMES = ["auk", "bee-eater", "crane", "great tit"]


@pytest.fixture(scope="module")
def pixels():
    return np.random.default_rng(0).uniform(0, 255, (5, 16, 16, 3)).astype(np.float32)


def make_model(tf, path, classes):
    """Save a network with augmentation."""
    layers = tf.keras.layers
    inputs = tf.keras.Input((16, 16, 3))
    augmented = layers.RandomRotation(0.1)(layers.RandomFlip()(inputs))
    features = layers.Conv2D(8, 3, activation="relu")(layers.Rescaling(1 / 255)(augmented))
    logits = layers.Dense(classes)(layers.Dropout(0.2)(layers.GlobalMaxPooling2D()(features)))
    tf.keras.Model(inputs, logits).save(path)


@pytest.fixture(scope="module")
def folder(tf, tmp_path_factory):
    """A run of a small network, with best weights, other last ones, and the exports of the best."""
    folder = tmp_path_factory.mktemp("predictor")
    run = make_run(folder / "run")
    run.write_environment({**run.environment(), "class_names": NAMES})
    for path in (run.model_path, run.best_path):
        make_model(tf, path, 4)
    for format, name in (("keras", "d.keras"), ("saved_model", "s"), ("tflite", "m.tflite")):
        export(tf.keras.models.load_model(run.best_path), NAMES, format, folder / name)
    return folder


def said(folder, name, pixels, **options):
    classifier = predictor.load(folder / name, **options)
    found = classifier(pixels)
    assert found.shape == (len(pixels), 4) and found.dtype == np.float32
    assert list(classifier.names(4)) == NAMES and classifier.image_size == (16, 16)
    return found


@pytest.mark.parametrize("name", ["run/best.keras", "d.keras", "m.tflite"])
def test_all_formats_say_what_the_run_says(folder, pixels, name):
    expected = said(folder, "run", pixels)
    assert expected.std(axis=0).max() > 1e-3, "the images differ"
    np.testing.assert_allclose(said(folder, name, pixels), expected, atol=1e-4)
    one = said(folder, name, pixels[:1])  # another number of images
    np.testing.assert_allclose(one, expected[:1], atol=1e-4)


def test_weights_are_chosen(folder, pixels):
    best, last = (said(folder, "run", pixels, weights=which) for which in ("best", "last"))
    np.testing.assert_array_equal(best, said(folder, "run", pixels))
    np.testing.assert_allclose(last, said(folder, "run/model.keras", pixels), atol=1e-6)
    assert abs(best - last).max() > 1e-3


def test_a_run_without_best_weights_has_its_last_ones(tf, tmp_path):
    run = make_run(tmp_path / "run")
    with pytest.raises(UsageError, match="no model.keras"):
        predictor.load(run.path)
    make_model(tf, run.model_path, 2)
    assert predictor.load(run.path).source == run.model_path
    with pytest.raises(UsageError, match="no validation part.*--weights best"):
        predictor.load(run.path, weights="best")


def test_classes_without_names_have_numbers(tf, tmp_path):
    make_model(tf, tmp_path / "m.keras", 3)
    classifier = predictor.load(tmp_path / "m.keras")
    assert classifier.class_names is None and classifier.names(3) == ["0", "1", "2"]


@pytest.mark.parametrize("inside", [False, True])
def test_a_softmax_at_the_end_is_not_put_on_twice(tf, tmp_path, pixels, inside):
    layers = tf.keras.layers
    stack = [layers.Rescaling(1 / 255), layers.GlobalAveragePooling2D()]
    head = layers.Dense(3, activation="softmax")
    if inside:
        head = tf.keras.Sequential([layers.Dense(3), layers.Softmax()])
    model = tf.keras.Sequential([tf.keras.Input((16, 16, 3)), *stack, head])
    model.save(tmp_path / "m.keras")
    np.testing.assert_allclose(predictor.load(tmp_path / "m.keras")(pixels), model(pixels), atol=1e-6)


def test_what_gives_no_probabilities_is_refused():
    for value, message in ((1.0, "m.keras does not give probabilities"), (np.nan, "m.keras gives NaN")):
        made = predictor.Predictor("m.keras", lambda x, v=value: np.full((len(x), 3), v), (None, 4, 4, 3))
        with pytest.raises(UsageError, match=message):
            made(np.zeros((2, 4, 4, 3), np.float32))


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("none.keras", None, "there is no model file"),
        ("none", None, "none does not exist"),
        ("photo.jpg", b"x", "photo.jpg "),
        ("cut.tflite", b"\x1c\0\0\0TFL3\x14\0", "cut.tflite: .*damaged"),
        ("text.tflite", b"text", "text.tflite: no TFLite"),
        ("none.tflite", None, "none.tflite: No such file"),
        ("text.keras", b"text", "no Keras archive"),
    ],
)
def test_what_is_no_model_is_told(tf, tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=message):
        predictor.load(tmp_path / name)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9, 0.99])
def test_a_cut_tflite_file_ends_in_a_word(folder, tmp_path, share):
    """TFLite's interpreter would read beyond its end; a cut in the last tenth loses the class names alone."""
    content = (folder / "m.tflite").read_bytes()
    (tmp_path / "m.tflite").write_bytes(content[: int(share * len(content))])
    with pytest.raises(UsageError, match="m.tflite"):
        predictor.load(tmp_path / "m.tflite")


def test_weights_of_what_is_no_run_are_refused(folder):
    with pytest.raises(UsageError, match="--weights best"):
        predictor.load(folder / "m.tflite", weights="best")


def test_a_saved_model_is_refused_with_what_to_pass(folder):
    with pytest.raises(UsageError, match="is a SavedModel.*run folder.*et-export"):
        predictor.load(folder / "s", trust=True)


def test_class_names_are_written_as_those_of_data_are():
    made = predictor.Predictor(Path("m.tflite"), lambda images: images, (None, 4, 4, 3), ["cafe\u0301"])
    assert made.class_names == ["caf\u00e9"]


def test_ops_of_tensorflows_in_a_tflite_file_need_trust(tf, tmp_path):
    """They could read or write any file."""

    @tf.function(input_signature=[tf.TensorSpec((1, 4, 4, 3), tf.float32)])
    def read(images):
        content = tf.io.read_file(tf.strings.as_string(images[0, 0, 0, 0]))
        return images + tf.cast(tf.strings.length(content), tf.float32)

    module = tf.Module()
    module.read = read
    converter = tf.lite.TFLiteConverter.from_concrete_functions([read.get_concrete_function()], module)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
    (tmp_path / "m.tflite").write_bytes(converter.convert())
    with pytest.raises(UsageError, match="has the op Flex.*--trust-model"):
        predictor.load(tmp_path / "m.tflite")


def test_code_in_a_keras_file_needs_trust(tf, tmp_path, pixels):
    inputs = tf.keras.Input((16, 16, 3))
    outputs = tf.keras.layers.Dense(2)(tf.keras.layers.GlobalAveragePooling2D()(inputs))
    model = tf.keras.Model(inputs, tf.keras.layers.Lambda(lambda x: 2 * x)(outputs))
    model.save(tmp_path / "m.keras")
    with pytest.raises(UsageError, match="Lambda.*--trust-model"):
        predictor.load(tmp_path / "m.keras")
    assert predictor.load(tmp_path / "m.keras", trust=True)(pixels).shape == (5, 2)


@pytest.mark.parametrize("outputs, activation", [(1, None), (1, "sigmoid"), (3, "sigmoid")])
def test_outputs_that_are_no_shares_of_one_whole_are_refused(tf, tmp_path, outputs, activation):
    head = tf.keras.layers.Dense(outputs, activation=activation)
    model = tf.keras.Sequential([tf.keras.Input((16, 16, 3)), tf.keras.layers.GlobalAveragePooling2D(), head])
    model.save(tmp_path / "m.keras")
    with pytest.raises(UsageError, match="m.keras .*sigmoid"):
        predictor.load(tmp_path / "m.keras")
