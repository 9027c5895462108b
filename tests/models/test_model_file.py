"""A model file is read as data: what could run code is refused, and does not run."""

import json
import shutil
import zipfile

import numpy as np
import pytest

from builders import small_network
from elastictrainer import UsageError
from elastictrainer.models import model_file, zoo


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
    model = model_file.read(saved)
    assert model.output_shape == (None, 4)
    x = tf.random.normal((2, 8, 8, 3))
    np.testing.assert_array_equal(model(x), tf.keras.models.load_model(saved)(x))


@pytest.mark.parametrize(
    "name",
    ["demo", *(pytest.param(name, marks=pytest.mark.long) for name in ("mobilenetv2", "vit"))],
)
def test_the_zoo_needs_no_trust(tf, tmp_path, name):
    if name == "vit":
        pytest.importorskip("vit_keras")
    size = {"demo": 16, "vit": 32}.get(name, 32)
    model = zoo.create(name, 3, size, "none", rotation=0.1, flip=True)
    model.compile("adam", "mse", metrics=["accuracy"])
    model.save(tmp_path / "m.keras")
    assert model_file.read(tmp_path / "m.keras").output_shape == (None, 3)


def test_functions_of_kerass_own_are_data(tf, tmp_path):
    inputs = tf.keras.Input((4,))
    features = tf.keras.layers.Dense(4, activation=tf.keras.activations.swish)(inputs)
    features = tf.keras.layers.Activation("relu")(features)
    tf.keras.Model(inputs, tf.keras.layers.Dense(2, activation=tf.nn.relu)(features)).save(
        tmp_path / "m.keras"
    )
    assert model_file.read(tmp_path / "m.keras").output_shape == (None, 2)


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
        model_file.read(changed(saved, change))
    assert named in str(error.value) and "changed.keras" in str(error.value)


def test_a_function_that_a_lambda_layer_names_is_not_called(saved, tmp_path):
    """An archive ran a command so in Keras' safe mode: a function's name, and a constant input."""
    witness = tmp_path / "witness"

    def change(model):
        layers = model["config"]["layers"]
        constant = {"class_name": "__tensor__", "config": {"dtype": "string", "value": f"touch {witness}"}}
        layers.append(
            {
                "module": "keras.layers",
                "class_name": "Lambda",
                "config": {"name": "x", "function": function("os", "system"), "arguments": {}},
                "name": "x",
                "inbound_nodes": [[constant, {}]],
            }
        )
        return model

    with pytest.raises(UsageError, match="--trust-model"):
        model_file.read(changed(saved, change))
    assert not witness.exists()


def test_a_lambda_layer_is_loaded_where_it_is_trusted(tf, tmp_path):
    inputs = tf.keras.Input((4,))
    tf.keras.Model(inputs, tf.keras.layers.Lambda(lambda x: 2 * x, output_shape=(4,))(inputs)).save(
        tmp_path / "m.keras"
    )
    with pytest.raises(UsageError, match="Lambda.*--trust-model"):
        model_file.read(tmp_path / "m.keras")
    model = model_file.read(tmp_path / "m.keras", trust=True)
    assert model(tf.ones((1, 4))).numpy().tolist() == [[2, 2, 2, 2]]


def test_what_is_no_archive_is_refused_whatever_its_name(tf, tmp_path):
    model = small_network(tf, 4)
    model.save(tmp_path / "old.h5")
    shutil.copy(tmp_path / "old.h5", tmp_path / "old.keras")
    tf.saved_model.save(model, str(tmp_path / "folder.keras"))
    for trust in (False, True):
        with pytest.raises(UsageError, match="old.keras "):
            model_file.read(tmp_path / "old.keras", trust)
        with pytest.raises(UsageError, match="no model file .*folder.keras"):
            model_file.read(tmp_path / "folder.keras", trust)


def test_a_missing_damaged_or_swollen_file_is_named(saved, tmp_path):
    with pytest.raises(UsageError, match="no model file .*none.keras"):
        model_file.read(tmp_path / "none.keras")
    (tmp_path / "damaged.keras").write_bytes(b"PK")
    with pytest.raises(UsageError, match="damaged.keras "):
        model_file.read(tmp_path / "damaged.keras")
    cut = saved.read_bytes()
    (tmp_path / "cut.keras").write_bytes(cut[: len(cut) // 2] + cut[-200:])
    with pytest.raises(UsageError, match="cut.keras"):
        model_file.read(tmp_path / "cut.keras")
    with zipfile.ZipFile(tmp_path / "deep.keras", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", "[" * 100_000)
    with pytest.raises(UsageError, match="Keras cannot load .*deep.keras"):
        model_file.read(tmp_path / "deep.keras")
    with zipfile.ZipFile(tmp_path / "swollen.keras", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", " " * 100_000_000)
    with pytest.raises(UsageError, match="100,000,000 bytes"):
        model_file.read(tmp_path / "swollen.keras")
