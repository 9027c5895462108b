"""Input that cannot work: one clear message, the right exit status, no traceback, nothing lost."""

import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from builders import invented_profile, make_images
from cache_builders import with_reuse

pytest.importorskip("tensorflow")

SMALL = "--model demo --image-size 16 --weights none --dataset images"
TRAIN, PROFILE = f"et-train {SMALL}", f"et-profile {SMALL}"
RUN = f"{TRAIN} --profile profile.json"
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
    """A folder with images, an invented profile of the demo network, and a finished run of a small one."""
    from elastictrainer.cli import train
    from elastictrainer.experiment import assembly
    from elastictrainer.experiment.settings import TrainSettings
    from elastictrainer.runs import environment

    folder = tmp_path_factory.mktemp("workshop")
    make_images(folder / "images", train=8)
    settings = TrainSettings(model="demo", image_size=16, weights="none", dataset="images")
    model = assembly.make_model(settings, 2)
    profile = with_reuse(invented_profile(model))
    profile.shapes = tuple(tuple(v.shape) for v in model.trainable_weights)
    here = {"device": environment.device(), "threads": environment.threads()}
    profile.metadata = {**assembly.profile_metadata(settings, model, (16, 16, 3), 2), **here}
    profile.save(folder / "profile.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert train.main(f"{MODEL} usermodels:good --output run".split()[1:]) == 0
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


def profile(change):
    """et-train with a profile that `change` spoils: it changes the JSON of a good one, or returns text."""

    def prepare(folder):
        value = json.loads(Path("profile.json").read_text())
        content = change(value)
        (folder / "p.json").write_text(json.dumps(value) if content is None else content)
        return f"{TRAIN} --profile {folder}/p.json"

    return prepare


def images(damage):
    """et-train on images that `damage` was done to."""

    def prepare(folder):
        make_images(folder / "images", train=8)
        damage(folder / "images")
        return f"{RUN} --scheme full --epochs 1 --dataset {folder}/images"

    return prepare


def below_the_cached_floor(folder):
    """A ratio that not even a cached step of one tensor reaches."""
    from elastictrainer import Profile

    floor = Profile.load("profile.json").with_cache.rho_min
    return f"{RUN} --rho {floor / 2:.4f}"


def lambda_model(folder):
    import tensorflow as tf

    layers = tf.keras.layers
    inner = [tf.keras.Input((16, 16, 3)), layers.Flatten(), layers.Lambda(lambda x: x[:, :2])]
    tf.keras.Sequential(inner).save(folder / "unsafe.keras")
    return f"{MODEL} {folder}/unsafe.keras"


def first(folder):
    return folder / "train" / "dark" / "0.jpg"


def cut(folder):
    noise = np.random.default_rng(0).integers(0, 255, (60, 60, 3), np.uint8)
    Image.fromarray(noise).save(first(folder))
    first(folder).write_bytes(first(folder).read_bytes()[:-1500])


def unfinished(folder):
    shutil.copytree("run", folder / "half")
    (folder / "half" / "summary.json").unlink()
    return f"et-plot table {folder}/half"


BAD = {
    # names
    "model": (f"{MODEL} resnet05", "'resnet50'"),
    "option": ("et-train --intervall 3", "unknown argument '--intervall'"),
    "plot": ("et-plot curvs run", "invalid choice: 'curvs'"),
    "no value": ("et-train --rho", "expected one argument"),
    # ranges
    "rho below the floor": (f"{RUN} --activation-cache off --rho 0.02", "Valid: 0."),
    "rho below the floor of cached steps": (below_the_cached_floor, "Valid: 0."),
    "classes 3": (f"{RUN} --classes 3", "--classes 3: images has 2"),
    "rotation": (f"{RUN} --rotation 0.9", "--rotation 0.9 "),
    "cache nowhere": (f"{RUN} --activation-cache-dir profile.json", "--activation-cache-dir 'profile.json'"),
    "patience without validation": (f"{RUN} --early-stopping 2", "--validation-split 0.1"),
    "patience with a test part alone": (
        f"{RUN} --dataset images/train --validation-split 0.2 --early-stopping 2",
        "--test-split 0.2 with --validation-split 0.1",
    ),
    "classes of a registered data set": (
        f"{PROFILE} --dataset stanford_dogs --classes 100",
        "--classes 100: stanford_dogs has 120",
    ),
    # config files
    "config is a folder": ("et-train --config images", "images: Is a directory"),
    "config code": (
        file("c.yaml", "model: !!python/object/apply:os.system ['touch hacked']", f"{RUN} --config FILE"),
        "model must be a single value",
    ),
    "config bomb": (
        file("c.yaml", "data_dir: [&a [x, x], &b [*a, *a], &c [*b, *b], [*c, *c]]", f"{RUN} --config FILE"),
        "data_dir must be a single value",
    ),
    # profiles
    "profile cut": (profile(lambda v: json.dumps(v)[:500]), "p.json: damaged"),
    "profile infinite": (
        profile(lambda v: json.dumps(v).replace('"t_update": ', '"t_update": 1e999, "was": ', 1)),
        "infinite",
    ),
    "profile of a batch": (f"{RUN} --batch-size 8", "batch_size: profile 16, here 8"),
    "profile of a shape": (f"{RUN} --image-size 24", "input_shape: profile [16, 16, 3], here [24, 24, 3]"),
    "profile of an optimizer": (f"{RUN} --optimizer adam", "optimizer: profile adamw, here adam"),
    "profile of a model": (
        f"{MODEL} usermodels:good --profile profile.json",
        "model: profile demo, here usermodels:good",
    ),
    "profile of a device": (
        profile(lambda v: v["metadata"].update(device="Abacus 9")),
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
    "image cut": (images(cut), "--skip-damaged"),
    # weights and models
    "weights of one's own model": (f"{TRAIN} --model usermodels:good", "--weights: not for usermodels:good"),
    "a size too small": (f"{TRAIN} --model densenet121", "at least 32x32"),
    "weights are no archive": (file("w.npz", b"PK", f"{TRAIN} --weights FILE"), "weights of demo"),
    "model file with code": (lambda_model, "Lambda"),
    "no module": (f"{MODEL} nowhere:make", "cannot import nowhere"),
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
    "an earlier run that is none": ("et-train --init-from nowhere", "there is no finished run"),
    "what comes with an earlier run": (
        "et-train --init-from run --dataset images --model vgg16 --rotation 0",
        "leave out --model, --rotation",
    ),
    # run folders
    "run exists": (f"{RUN} --output run", "run exists. Choose another --output"),
    "output is something else": (f"{RUN} --output images", "images exists. Choose another --output."),
    "output is a file": (f"{RUN} --output profile.json", "cannot write to profile.json"),
    "profile into a folder": (f"{PROFILE} --profile images", "profile images"),
    "profile nowhere": (f"{PROFILE} --profile /proc/p.json", "profile /proc/p.json"),
    "output cannot be": (f"{RUN} --output /proc/run", "cannot write to /proc/run"),
    "resume nothing": ("et-train --resume nowhere", "nowhere is no run"),
    "resume what is no run": ("et-train --resume images", "nothing to resume"),
    "resume and more": ("et-train --resume run --rho 0.6", "leave out --rho"),
    "time for a run by epochs": ("et-train --resume run --time 5m", "run was not started with --time"),
    "plot unfinished": (unfinished, "et-train --resume"),
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
    assert "Traceback" in call(capsys, f"{TRAIN} --scheme none --output x --debug")[1]


def test_a_run_goes_on_where_the_earlier_run_was(here, tmp_path, capsys):
    options = "--dataset images --scheme full --epochs 1 --learning-rate 1e-6"
    assert call(capsys, f"et-train --init-from run {options} --output {tmp_path}/out")[0] == 0
    before, after = (
        json.loads((run / "summary.json").read_text()) for run in (Path("run"), tmp_path / "out")
    )
    assert before["accuracy"] > 0.6 and after["accuracy"] >= before["accuracy"] - 0.1
    assert "image_size: 16" in (tmp_path / "out" / "config.yaml").read_text()  # comes with the model


def test_odd_images_are_trained_on(here, tmp_path, capsys):
    make_images(tmp_path / "odd", train=8)
    dark = tmp_path / "odd" / "train" / "dark"
    Image.new("RGB", (1, 1)).save(dark / "one_pixel.png")
    Image.new("RGB", (20_000, 2)).save(dark / "long.png")
    Image.new("RGB", (20, 20)).save(dark / "a png inside.jpg", "png")
    Image.new("RGB", (20, 20)).save(dark / "ünï%code.bmp")
    (dark / "notes.txt").write_text("no image, and does not claim to be one")
    options = f"--batch-size 20 --dataset {tmp_path}/odd --output {tmp_path}/out"
    status, said = call(capsys, f"{MODEL} usermodels:good {options}")
    assert status == 0 and "20 training" in said


def test_class_folders_without_parts_are_trained_on_and_their_imbalance_reported(here, tmp_path, capsys):
    make_images(tmp_path / "images", train=8)
    for k in range(12):
        shutil.copy(first(tmp_path / "images"), tmp_path / "images" / "train" / "dark" / f"again{k}.jpg")
    options = f"--dataset {tmp_path}/images/train --validation-split 0.25 --output {tmp_path}/out"
    status, said = call(capsys, f"{MODEL} usermodels:good {options}")
    assert status == 0 and "6 (light) to 15 (dark)" in said


FURTHER = [pytest.param(*case, marks=pytest.mark.slow) for case in (("unconnected", 7), ("frozen_below", 4))]


@pytest.mark.parametrize("name, tensors", [("one_tensor", 1), *FURTHER])
def test_unusual_models_are_trained(here, rough_profiles, tmp_path, capsys, name, tensors):
    options = "--scheme elastic --rho 1 --importance-batches 1 --calibration-seconds 0"
    status, said = call(capsys, f"{MODEL} usermodels:{name} {options} --output {tmp_path}/out")
    assert status == 0 and f"{tensors} trainable tensors" in said
    if name == "unconnected":
        assert "cannot be trained: idle/unused" in said
