"""Input that cannot work: one clear message, the right exit status, no traceback, nothing lost."""

import json
import os
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from builders import make_images

pytest.importorskip("tensorflow")

SMALL = "--model demo --image-size 16 --weights none --dataset images"
PROFILED = f"{SMALL} --profile profile.json"
MODEL = "et-train --dataset images --image-size 16 --scheme full --epochs 1 --model"


def call(capsys, command):
    """The exit status of a command in this process, and what it said."""
    import importlib

    name, *arguments = shlex.split(command)
    main = importlib.import_module(f"elastictrainer.cli.{name[3:]}").main
    try:
        status = main(arguments)
    except SystemExit as stopped:  # argparse's own
        status = stopped.code
    captured = capsys.readouterr()
    return status, captured.out + captured.err


@pytest.fixture(scope="module")
def workshop(tf, tmp_path_factory):
    """A folder with images, a profile of the demo network, and a finished run of full training."""
    folder = tmp_path_factory.mktemp("workshop")
    make_images(folder / "images", train=8)
    before = os.getcwd()
    os.chdir(folder)
    try:
        from elastictrainer.cli import profile, train

        assert profile.main(f"{PROFILED} --steps 2 --warmup-steps 1 --calibration-seconds 0".split()) == 0
        assert train.main(f"{PROFILED} --scheme full --epochs 1 --output run".split()) == 0
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def here(workshop, monkeypatch):
    monkeypatch.chdir(workshop)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    before = {p: p.read_bytes() for p in workshop.rglob("*") if p.is_file()}
    yield workshop
    for path, content in before.items():
        assert path.read_bytes() == content, f"{path} was changed"


def file(name, content, command):
    """A command with a file of that content, FILE in it being its path."""

    def prepare(folder):
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return command.replace("FILE", str(folder / name))

    return prepare


def config(text):
    """et-train with a config file of that content."""
    return file("c.yaml", text, f"et-train {PROFILED} --config FILE")


def profile(change):
    """et-train with a profile that `change` spoils: it changes the JSON of a good one, or returns text."""

    def prepare(folder):
        value = json.loads(Path("profile.json").read_text())
        content = change(value)
        (folder / "p.json").write_text(json.dumps(value) if content is None else content)
        return f"et-train {SMALL} --profile {folder}/p.json"

    return prepare


def images(damage):
    """et-train on images that `damage` was done to."""

    def prepare(folder):
        make_images(folder / "images", train=8)
        damage(folder / "images")
        return f"et-train {PROFILED} --scheme full --epochs 1 --dataset {folder}/images"

    return prepare


def below_the_cached_floor(folder):
    """A ratio that not even a cached step of one tensor reaches."""
    from elastictrainer import Profile

    floor = Profile.load("profile.json").with_cache.rho_min
    return f"et-train {PROFILED} --rho {floor / 2:.4f}"


def lambda_model(folder):
    import tensorflow as tf

    layers = tf.keras.layers
    inner = [tf.keras.Input((16, 16, 3)), layers.Flatten(), layers.Lambda(lambda x: x[:, :2])]
    tf.keras.Sequential(inner).save(folder / "unsafe.keras")
    return f"{MODEL} {folder}/unsafe.keras"


def first(folder):
    return folder / "train" / "dark" / "0.jpg"


def fifo(folder):
    first(folder).unlink()
    os.mkfifo(first(folder))


def cut(folder):
    noise = np.random.default_rng(0).integers(0, 255, (60, 60, 3), np.uint8)
    Image.fromarray(noise).save(first(folder))
    first(folder).write_bytes(first(folder).read_bytes()[:-1500])


def half(value):
    text = json.dumps(value)
    return text[: len(text) // 2]


def put(value, *path):
    *way, last, new = path
    for key in way:
        value = value[key]
    value[last] = new


def unfinished(folder):
    shutil.copytree("run", folder / "half")
    (folder / "half" / "summary.json").unlink()
    return f"et-plot table {folder}/half"


def torn(folder):
    shutil.copytree("run", folder / "torn")
    (folder / "torn" / "metrics.jsonl").write_text('{"epoch": 1\n')
    return f"et-plot curves {folder}/torn"


BAD = {
    # names
    "model": (f"{MODEL} resnet05", "'resnet50'"),
    "scheme": (f"et-train {SMALL} --scheme elasitc", "'elastic'"),
    "data set": (f"et-train {SMALL} --dataset stanford_dog", "'stanford_dogs'"),
    "option": ("et-train --intervall 3", "unknown argument '--intervall'"),
    "positional": ("et-train resnet50", "unknown argument 'resnet50'"),
    "plot": ("et-plot curvs run", "invalid choice: 'curvs'"),
    "no value": ("et-train --rho", "expected one argument"),
    # ranges
    "rho 1.5": (f"et-train {PROFILED} --rho 1.5", "--rho 1.5 "),
    "rho nan": (f"et-train {PROFILED} --rho nan", "--rho nan "),
    "rho below the floor": (f"et-train {PROFILED} --activation-cache off --rho 0.02", "Valid: 0."),
    "rho below the floor of cached steps": (below_the_cached_floor, "Valid: 0."),
    "classes 3": (f"et-train {PROFILED} --classes 3", "--classes 3: images has 2"),
    "seed of 400 digits": (f"et-train {PROFILED} --seed {'9' * 400}", "--seed 9999"),
    "rotation": (f"et-train {PROFILED} --rotation 0.9", "--rotation 0.9 "),
    "cache nowhere": (
        f"et-train {PROFILED} --activation-cache-dir profile.json",
        "--activation-cache-dir 'profile.json'",
    ),
    "patience without validation": (f"et-train {PROFILED} --early-stopping 2", "--validation-split 0.1"),
    "patience with a test part alone": (
        f"et-train {PROFILED} --dataset images/train --validation-split 0.2 --early-stopping 2",
        "--test-split 0.2 with --validation-split 0.1",
    ),
    "classes of a registered data set": (
        f"et-profile {SMALL} --dataset stanford_dogs --classes 100",
        "--classes 100: stanford_dogs has 120",
    ),
    # config files
    "no config": ("et-train --config no.yaml", "no.yaml: No such file"),
    "config is a folder": ("et-train --config images", "images: Is a directory"),
    "config key": (config("epohcs: 3"), "unknown key 'epohcs'"),
    "config code": (
        config("model: !!python/object/apply:os.system ['touch hacked']"),
        "model must be a single value",
    ),
    "config bool": (config("epochs: true"), "--epochs must be a whole number"),
    "config bomb": (
        config("data_dir: [&a [x, x], &b [*a, *a], &c [*b, *b], &d [*c, *c, *c, *c]]"),
        "data_dir must be a single value",
    ),
    # profiles
    "no profile": (f"et-train {SMALL} --profile no.json", "profile no.json"),
    "profile is a folder": (f"et-train {SMALL} --profile images", "profile images"),
    "profile empty": (profile(lambda v: ""), "p.json: damaged"),
    "profile cut": (profile(half), "p.json: damaged"),
    "profile foreign": (profile(lambda v: '{"rho": 0.5}'), "not an ElasticTrainer profile"),
    "profile infinite": (
        profile(lambda v: json.dumps(v).replace('"t_update": ', '"t_update": 1e999, "was": ', 1)),
        "infinite",
    ),
    "profile of a batch": (f"et-train {PROFILED} --batch-size 8", "batch_size: profile 16, here 8"),
    "profile of a shape": (
        f"et-train {PROFILED} --image-size 24",
        "input_shape: profile [16, 16, 3], here [24, 24, 3]",
    ),
    "profile of an optimizer": (
        f"et-train {PROFILED} --optimizer adam",
        "optimizer: profile adamw, here adam",
    ),
    "profile of a model": (
        f"{MODEL} usermodels:good --profile profile.json",
        "model: profile demo, here usermodels:good",
    ),
    "profile of a device": (
        profile(lambda v: put(v, "metadata", "device", "Abacus 9")),
        "device: profile Abacus 9, here",
    ),
    # images
    "no split": (images(lambda f: shutil.rmtree(f / "test")), "has no test part: --test-split 0.2"),
    "no training part": (images(lambda f: shutil.rmtree(f / "train")), "no folder 'train'"),
    "one class": (
        images(lambda f: [shutil.rmtree(f / s / "dark") for s in ("train", "test")]),
        "has 1 class(es)",
    ),
    "class missing": (images(lambda f: shutil.rmtree(f / "test" / "dark")), "test lacks dark"),
    "class not trained": (images(lambda f: shutil.rmtree(f / "train" / "dark")), "train lacks dark"),
    "class empty": (
        images(lambda f: [file.unlink() for file in (f / "test" / "dark").iterdir()]),
        "dark holds no image",
    ),
    "image empty": (images(lambda f: first(f).write_bytes(b"")), "0.jpg (empty)"),
    "image is text": (images(lambda f: first(f).write_text("not an image")), "0.jpg (not an image)"),
    "image is huge": (
        images(lambda f: Image.new("L", (20_000, 20_000)).save(first(f), "png")),
        "400000000 pixels",
    ),
    "image is a pipe": (images(fifo), "0.jpg (not a regular file)"),
    "image cut": (images(cut), "--skip-damaged"),
    # weights and models
    "weights of one's own model": (
        f"et-train {SMALL} --model usermodels:good",
        "--weights: not for usermodels:good",
    ),
    "a size too small": (f"et-train {SMALL} --model densenet121", "at least 32x32"),
    "weights are no archive": (
        file("w.npz", b"PK", f"et-train {SMALL} --weights FILE"),
        "weights of demo",
    ),
    "weights of another": (
        f"et-train {SMALL} --model mobilenetv2 --image-size 32 --weights profile.json",
        "weights of mobilenetv2",
    ),
    "no model file": (f"{MODEL} no.keras", "no model file no.keras"),
    "model file damaged": (file("m.keras", b"PK\x03\x04", f"{MODEL} FILE"), "m.keras is "),
    "model file with code": (lambda_model, "Lambda"),
    "no module": (f"{MODEL} nowhere:make", "cannot import nowhere"),
    "no function": (f"{MODEL} usermodels:nothing", "usermodels has no 'nothing'"),
    "function raises": (f"{MODEL} usermodels:raises", "ZeroDivisionError: the user's own mistake"),
    "function needs more": (f"{MODEL} usermodels:needs_more", "'something'"),
    "no Keras model": (f"{MODEL} usermodels:no_model", "not a Keras model"),
    "not built": (f"{MODEL} usermodels:not_built", "is not built"),
    "softmax": (f"{MODEL} usermodels:softmax", "ends in a softmax"),
    "softmax by function": (f"{MODEL} usermodels:softmax_by_function", "ends in a softmax"),
    "softmax inside": (f"{MODEL} usermodels:softmax_inside", "ends in a softmax"),
    "sigmoid by function": (f"{MODEL} usermodels:sigmoid_by_function", "ends in a sigmoid"),
    "too wide": (f"{MODEL} usermodels:too_wide", "of shape (None, 3); the data has 2 classes: (None, 2)"),
    "two outputs": (f"{MODEL} usermodels:two_outputs", "outputs of shape"),
    "a map of outputs": (f"{MODEL} usermodels:a_map", "outputs of shape (None, 16, 16, 2)"),
    "size of one's own model": (f"{MODEL} usermodels:of_a_fixed_size", "--image-size 16"),
    "nothing to train": (f"{MODEL} usermodels:all_frozen", "no trainable tensor"),
    "nothing to profile": (
        "et-profile --dataset images --image-size 16 --model usermodels:all_frozen",
        "no trainable tensor",
    ),
    "an earlier run that is none": ("et-train --init-from nowhere", "there is no finished run"),
    "what comes with an earlier run": (
        "et-train --init-from run --dataset images --model vgg16 --rotation 0",
        "leave out --model, --rotation",
    ),
    "export": (f"et-train {PROFILED} --export tflight", "'tflight'"),
    "export of nothing": ("et-export images", "no run folder"),
    "export of an unfinished run": (
        lambda folder: unfinished(folder).replace("et-plot table", "et-export"),
        "et-train --resume",
    ),
    # run folders
    "run exists": (f"et-train {PROFILED} --output run", "run exists. Choose another --output"),
    "no run folder": (f"et-train {PROFILED} --output images --overwrite", "images is not a run folder"),
    "output is a file": (f"et-train {PROFILED} --output profile.json", "cannot write to profile.json"),
    "output too long": (f"et-train {PROFILED} --output {'x' * 300}", "File name too long"),
    "profile into a folder": (f"et-profile {SMALL} --profile images", "profile images"),
    "profile nowhere": (f"et-profile {SMALL} --profile /proc/p.json", "profile /proc/p.json"),
    "output cannot be": (f"et-train {PROFILED} --output /proc/run", "cannot write to /proc/run"),
    "resume nothing": ("et-train --resume nowhere", "nowhere is no run"),
    "resume what is no run": ("et-train --resume images", "nothing to resume"),
    "resume and more": ("et-train --resume run --rho 0.6", "leave out --rho"),
    "plot nothing": ("et-plot curves images", "no run folder"),
    "plot format": ("et-plot curves run --output x.doc", "x.doc; valid endings: .png .pdf .svg"),
    "plot two": ("et-plot selection run run", "PATH, not 2"),
    "plot no selection": ("et-plot selection run", "no selection"),
    "plot quantity": ("et-plot curves run --y time", "unknown --y 'time'"),
    "no time": (f"et-train {SMALL} --time soon", "'soon'"),
    "time for a run by epochs": ("et-train --resume run --time 5m", "run was not started with --time"),
    "until": (f"et-train {SMALL} --until 18:00", "--time 2h"),
    "plot unfinished": (unfinished, "et-train --resume"),
    "plot torn": (torn, "metrics.jsonl is damaged"),
    "plot a folder as timings": ("et-plot timings images", "profile images"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_told(here, tmp_path, capsys, case):
    command, message = BAD[case]
    command = command(tmp_path) if callable(command) else command
    if command.startswith("et-train") and not {"--output", "--resume"} & set(command.split()):
        command += f" --output {tmp_path}/out"
    found, said = call(capsys, command)
    assert message in said
    assert found == 2
    assert "Traceback" not in said and len(said.splitlines()) < 40
    assert not (tmp_path / "out").exists()
    assert not Path("hacked").exists()


def test_debug_shows_the_traceback(here, capsys):
    assert "Traceback" in call(capsys, f"et-train {SMALL} --scheme none --output x --debug")[1]


def test_a_run_goes_on_where_the_earlier_run_was(here, tmp_path, capsys):
    options = "--dataset images --scheme full --epochs 1 --learning-rate 1e-6"
    assert call(capsys, f"et-train --init-from run {options} --output {tmp_path}/out")[0] == 0
    before, after = (
        json.loads((run / "summary.json").read_text()) for run in (Path("run"), tmp_path / "out")
    )
    assert before["accuracy"] > 0.6 and after["accuracy"] >= before["accuracy"] - 0.1
    assert "image_size: 16" in (tmp_path / "out" / "config.yaml").read_text()  # comes with the model


def odd_images(folder):
    """Unusual, but images."""
    random = np.random.default_rng(0)
    make_images(folder, train=8)
    dark = folder / "train" / "dark"
    Image.new("RGB", (1, 1)).save(dark / "one_pixel.png")
    Image.new("RGB", (20_000, 2)).save(dark / "long.png")
    Image.new("CMYK", (20, 20)).save(dark / "cmyk.jpg")
    Image.new("L", (20, 20)).save(dark / "grey.jpg")
    Image.fromarray(random.integers(0, 65535, (20, 20)).astype(np.uint16)).save(dark / "sixteen_bit.png")
    Image.new("P", (20, 20)).save(dark / "palette.png")
    Image.new("RGBA", (20, 20)).save(dark / "transparent.png")
    Image.new("LA", (20, 20)).save(dark / "grey_transparent.png")
    Image.new("1", (20, 20)).save(dark / "black_and_white.png")
    Image.new("L", (20, 20)).save(dark / "grey.bmp")
    Image.new("RGB", (20, 20)).save(dark / "upper.JPG", "jpeg")
    Image.new("RGB", (20, 20)).save(dark / "a png inside.jpg", "png")
    Image.new("RGB", (20, 20)).save(dark / "ünï%code.bmp")
    frames = [Image.new("P", (20, 20), k) for k in range(3)]
    frames[0].save(dark / "moving.gif", save_all=True, append_images=frames[1:])
    (dark / "notes.txt").write_text("no image, and does not claim to be one")
    return 14


def test_odd_images_are_trained_on(here, tmp_path, capsys):
    count = odd_images(tmp_path / "odd")
    options = f"--scheme full --epochs 1 --batch-size {16 + count} --dataset {tmp_path}/odd"
    status, said = call(capsys, f"et-train {SMALL} {options} --output {tmp_path}/out")
    assert status == 0 and f"{16 + count} training" in said


def test_class_folders_without_parts_are_trained_on_and_their_imbalance_reported(here, tmp_path, capsys):
    make_images(tmp_path / "images", train=8)
    for k in range(12):
        shutil.copy(first(tmp_path / "images"), tmp_path / "images" / "train" / "dark" / f"again{k}.jpg")
    options = f"--dataset {tmp_path}/images/train --validation-split 0.25 --scheme traditional-tl --epochs 1"
    status, said = call(capsys, f"et-train {SMALL} {options} --output {tmp_path}/out")
    assert status == 0 and "6 (light) to 15 (dark)" in said


@pytest.mark.parametrize("name, tensors", [("one_tensor", 1), ("unconnected", 7), ("frozen_below", 4)])
def test_unusual_models_are_trained(here, tmp_path, capsys, name, tensors):
    options = "--scheme elastic --rho 1 --importance-batches 1 --calibration-seconds 0"
    status, said = call(capsys, f"{MODEL} usermodels:{name} {options} --output {tmp_path}/out")
    assert status == 0 and f"{tensors} trainable tensors" in said
    if name == "unconnected":
        assert "cannot be trained: idle/unused" in said


def test_frozen_layers_stay_frozen(here, tf, tmp_path, capsys):
    sys.modules.pop("usermodels", None)
    import usermodels

    tf.keras.utils.set_random_seed(0)
    untrained = usermodels.frozen_below((16, 16, 3), 2).get_layer("first").get_weights()
    assert call(capsys, f"{MODEL} usermodels:frozen_below --seed 0 --output {tmp_path}/out")[0] == 0
    trained = tf.keras.models.load_model(tmp_path / "out" / "model.keras").get_layer("first").get_weights()
    for a, b in zip(untrained, trained):
        np.testing.assert_array_equal(a, b)
