"""The user's models: made by a function, read from a file as data, taken over from an earlier run."""

import contextlib
import io
import json
import re
import shutil
import sys
import zipfile

import numpy as np
import pytest

import processes
from builders import small_network
from elastictrainer import UsageError
from elastictrainer.models import user_models, zoo
from elastictrainer.runs.run_folder import RunFolder


def test_a_function_gets_the_arguments_that_it_takes(tf):
    model = user_models.from_function("usermodels:good", 4, (16, 24, 3))
    assert model.input_shape == (None, 16, 24, 3) and model.output_shape == (None, 4)
    assert user_models.from_function("usermodels:no_model", 4, (16, 24, 3)) == 42  # it takes no arguments


def test_probabilities_by_activation_are_refused_and_logits_are_not(tf):
    for activation in ("softmax", "sigmoid", None):
        layer = tf.keras.layers.Dense(2, activation=activation)
        model = tf.keras.Sequential([tf.keras.Input((3,)), layer])
        with pytest.raises(UsageError, match=activation) if activation else contextlib.nullcontext():
            user_models.require_logits("mine", model, 2)


@pytest.fixture
def saved(tf, tmp_path):
    path = tmp_path / "m.keras"
    small_network(tf, 4).save(path)
    return path


def changed(path, change):
    """`path` after `change`, which takes its configuration and returns a new one."""
    beside = path.with_name("changed.keras")
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(beside, "w") as other:
        for name in archive.namelist():
            content = archive.read(name)
            if name == "config.json":
                content = json.dumps(change(json.loads(content))).encode()
            other.writestr(name, content)
    return beside


def with_layer(class_name, module=None, /, **config):
    """A change that adds a layer."""

    def change(model):
        layer = {"module": module, "class_name": class_name, "config": {"name": "added", **config}}
        model["config"]["layers"].append({**layer, "name": "added", "inbound_nodes": []})
        return model

    return change


def calls(module, name):
    """A change that adds a layer whose activation is such a function."""
    return with_layer("Activation", "keras.layers", activation=function(module, name))


def function(module, name):
    return {"module": module, "class_name": "function", "config": name, "registered_name": "function"}


def test_a_plain_file_is_loaded(tf, saved):
    model = user_models.read(saved)
    assert model.output_shape == (None, 4)
    x = tf.random.normal((2, 8, 8, 3))
    np.testing.assert_array_equal(model(x), tf.keras.models.load_model(saved)(x))


@pytest.mark.parametrize(
    "name", ["demo", *(pytest.param(name, marks=pytest.mark.long) for name in ("mobilenetv2", "vit"))]
)
def test_the_zoo_needs_no_trust(tf, tmp_path, name):
    if name == "vit":
        pytest.importorskip("vit_keras")
    size = {"demo": 16, "vit": 32}.get(name, 32)
    model = zoo.create(name, 3, size, "none", rotation=0.1, flip=True)
    model.compile("adam", "mse", metrics=["accuracy"])
    model.save(tmp_path / "m.keras")
    assert user_models.read(tmp_path / "m.keras").output_shape == (None, 3)


def test_functions_of_kerass_own_are_data(tf, tmp_path):
    layers = tf.keras.layers
    parts = [
        layers.Dense(4, tf.keras.activations.swish),
        layers.Activation("relu"),
        layers.Dense(2, tf.nn.relu),
    ]
    tf.keras.Sequential([tf.keras.Input((4,)), *parts]).save(tmp_path / "m.keras")
    assert user_models.read(tmp_path / "m.keras").output_shape == (None, 2)


@pytest.mark.parametrize(
    "change, named",
    [
        (with_layer("Lambda", "keras.layers", function=function("os", "system")), "kind Lambda"),
        (with_layer("Lambda", function={"class_name": "__lambda__", "config": {}}), "kind Lambda"),
        (with_layer("TFSMLayer", "keras.layers", filepath="/somewhere"), "kind TFSMLayer"),
        (with_layer("TorchModuleWrapper", "keras.layers", module="gASV"), "kind TorchModuleWrapper"),
        (calls("os", "system"), "os:system"),
        (calls("builtins", "eval"), "builtins:eval"),
        (calls("keras.utils", "get_file"), "get_file"),
        (calls("keras.models", "load_model"), "load_model"),
        (with_layer("Popen", "subprocess", args="true"), "class subprocess.Popen"),
        (with_layer("Dense", "kerasx.layers", units=1), "class kerasx.layers.Dense"),
        (with_layer("SharedObjectSavingScope", "keras.src.saving.object_registration"), "keras.src.saving"),
        (with_layer("Thing", ["os"]), "class"),
        (with_layer("StringLookup", "keras.layers", vocabulary="/etc/passwd"), "/etc/passwd"),
    ],
)
def test_what_could_run_code_or_read_files_needs_trust(saved, change, named):
    with pytest.raises(UsageError, match="--trust-model") as error:
        user_models.read(changed(saved, change))
    assert named in str(error.value) and "changed.keras" in str(error.value)


def test_a_function_that_a_lambda_layer_names_is_not_called(saved, tmp_path):
    """An archive ran a command so in Keras' safe mode: a function's name, and a constant input."""
    witness = tmp_path / "witness"

    def change(model):
        layers = model["config"]["layers"]
        constant = {"class_name": "__tensor__", "config": {"dtype": "string", "value": f"touch {witness}"}}
        config = {"name": "x", "function": function("os", "system"), "arguments": {}}
        layer = {"module": "keras.layers", "class_name": "Lambda", "config": config, "name": "x"}
        layers.append({**layer, "inbound_nodes": [[constant, {}]]})
        return model

    with pytest.raises(UsageError, match="--trust-model"):
        user_models.read(changed(saved, change))
    assert not witness.exists()


def test_what_is_no_archive_is_refused_whatever_its_name(tf, tmp_path):
    model = small_network(tf, 4)
    model.save(tmp_path / "old.h5")
    shutil.copy(tmp_path / "old.h5", tmp_path / "old.keras")
    tf.saved_model.save(model, str(tmp_path / "folder.keras"))
    for trust in (False, True):
        with pytest.raises(UsageError, match="old.keras "):
            user_models.read(tmp_path / "old.keras", trust)
        with pytest.raises(UsageError, match="no model file .*folder.keras"):
            user_models.read(tmp_path / "folder.keras", trust)


def archive_of(config):
    """An archive whose configuration is such a text."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", config)
    return content.getvalue()


@pytest.mark.parametrize(
    "content, said",
    [
        (None, "no model file .*bad.keras"),
        (lambda whole: b"PK", "bad.keras "),
        (lambda whole: whole[: len(whole) // 2] + whole[-200:], "bad.keras"),
        (lambda whole: archive_of("[" * 100_000), "Keras cannot load .*bad.keras"),
        (lambda whole: archive_of(" " * 100_000_000), "100,000,000 bytes"),
    ],
    ids=["missing", "damaged", "cut", "deep", "swollen"],
)
def test_what_is_no_whole_file_is_named(saved, tmp_path, content, said):
    if content is not None:
        (tmp_path / "bad.keras").write_bytes(content(saved.read_bytes()))
    with pytest.raises(UsageError, match=said):
        user_models.read(tmp_path / "bad.keras")


def test_a_file_of_another_keras_is_named_as_such(tmp_path):
    content = archive_of('{"class_name": "NoSuchClass", "config": {}}')
    (tmp_path / "other.keras").write_bytes(content)
    with pytest.raises(UsageError) as alone:
        user_models.read(tmp_path / "other.keras")
    assert "NoSuchClass" in str(alone.value) and "Full object config" not in str(alone.value)
    with zipfile.ZipFile(tmp_path / "other.keras", "a") as archive:
        archive.writestr("metadata.json", '{"keras_version": "9.1.0"}')
    with pytest.raises(
        UsageError, match="other.keras: Keras 9.1.0 has saved it, .*Python with Keras 9.*tflite"
    ):
        user_models.read(tmp_path / "other.keras")


@pytest.mark.parametrize("name", ["scaled", "registered"])
def test_layers_of_another_module_are_loaded_where_they_are_trusted(tf, tmp_path, name):
    model = user_models.from_function(f"userlayers:{name}", 3, (32, 32, 3))
    assert user_models.loading_problem(model) == ""
    model.save(tmp_path / "m.keras")
    with pytest.raises(UsageError, match="class userlayers.*--trust-model"):
        user_models.read(tmp_path / "m.keras")
    assert processes.answer_of(tmp_path / "m.keras", (1, 32, 32, 3)) == (1, 3)
    x = tf.random.normal((2, 32, 32, 3))
    np.testing.assert_allclose(user_models.read(tmp_path / "m.keras", trust=True)(x), model(x), atol=1e-6)


@pytest.mark.parametrize(
    "name, said",
    [
        ("forgetful", "Forgetful|forgotten"),
        ("by_function", "halved.*make it a layer"),
        ("of_a_local_class", "Local"),
    ],
)
def test_a_model_that_no_other_process_can_load_is_told_before_it_trains(tf, name, said):
    problem = user_models.loading_problem(user_models.from_function(f"userlayers:{name}", 3, (32, 32, 3)))
    assert re.search(said, problem)


def test_a_model_that_cannot_be_saved_is_refused(tf):
    with pytest.raises(UsageError, match="cannot be saved: .*no configuration"):
        user_models.loading_problem(user_models.from_function("userlayers:unsaved", 3, (32, 32, 3)))


def test_a_module_that_is_not_found_is_named(tf, tmp_path, monkeypatch):
    user_models.from_function("userlayers:scaled", 3, (32, 32, 3)).save(tmp_path / "m.keras")
    monkeypatch.setitem(sys.modules, "userlayers", None)
    with pytest.raises(UsageError, match="m.keras needs the class userlayers.Scale.*PYTHONPATH"):
        user_models.read(tmp_path / "m.keras", trust=True)


CLASSES = ["black", "grey", "white"]


@pytest.fixture(scope="module")
def run(tf, tmp_path_factory):
    """A finished run whose model has learned something about three classes: its head is random, not zero."""
    run = RunFolder(tmp_path_factory.mktemp("earlier"))
    zoo.create("demo", 3, image_size=24, weights="none", head_init="glorot").save(run.model_path)
    run.write_environment({"class_names": CLASSES})
    return run


@pytest.fixture(scope="module")
def pixels():
    return np.random.default_rng(0).uniform(0, 255, (3, 24, 24, 3)).astype(np.float32)


def test_the_same_classes_keep_the_whole_model(tf, run, pixels):
    expected = tf.keras.models.load_model(run.model_path)(pixels, training=False)
    np.testing.assert_array_equal(user_models.model_of(run, CLASSES)(pixels, training=False), expected)


def test_shared_classes_keep_their_weights_in_any_order_and_new_ones_start_from_zero(tf, run, pixels):
    old = tf.keras.models.load_model(run.model_path)
    old_logits = old(pixels, training=False).numpy()
    turned = user_models.model_of(run, CLASSES[::-1])(pixels, training=False)
    np.testing.assert_allclose(turned, old_logits[:, ::-1], rtol=1e-5)
    model = user_models.model_of(run, ["green", "white", "black"])
    logits = model(pixels, training=False).numpy()
    np.testing.assert_allclose(logits[:, 1:], old_logits[:, [2, 0]], rtol=1e-5)
    assert np.any(old_logits) and not np.any(logits[:, 0])
    assert len(model.trainable_weights) == len(old.trainable_weights)


def test_the_head_of_a_sequential_model_is_replaced_too_and_may_lack_a_bias(tf, tmp_path):
    run = RunFolder(tmp_path)
    network = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(2, use_bias=False)])
    network.save(run.model_path)
    run.write_environment({"class_names": ["a", "b"]})
    x = np.ones((1, 4), np.float32)
    logits = user_models.model_of(run, ["c", "b"])(x).numpy()
    assert logits[0, 0] == 0 and logits[0, 1] == pytest.approx(network(x).numpy()[0, 1])


def test_a_run_without_a_model_is_refused(tmp_path):
    with pytest.raises(UsageError, match="has no model.keras"):
        user_models.model_of(RunFolder(tmp_path), CLASSES)


def test_a_model_that_does_not_end_in_a_dense_layer_cannot_have_other_classes(tf, tmp_path):
    layers = tf.keras.layers
    run = RunFolder(tmp_path)
    parts = [tf.keras.Input((4, 4, 3)), layers.Conv2D(3, 1), layers.GlobalAveragePooling2D()]
    tf.keras.Sequential(parts).save(run.model_path)
    run.write_environment({"class_names": ["a", "b", "c"]})
    assert user_models.model_of(run, ["a", "b", "c"]).output_shape == (None, 3)
    with pytest.raises(UsageError, match="dense layer"):
        user_models.model_of(run, ["a", "b"])
