"""The commands of the pages, one after the other, in a clean folder, on photographs and real weights.

Their times are cut, and what they name is made small: three or four classes. What starts a fleet, sets up a
machine, or measures for hours is not among them.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# What a page's reader has before its first command.
BEFORE = {
    "usage.md": (
        "et-train --model mobilenetv2 --dataset path/to/images --time 60s --output runs/NAME",
        "et-export runs/NAME --format tflite --output exported",
        "cp exported/model.tflite model.tflite",
        "et-train --model demo --dataset demo --scheme elastic --epochs 4 --output demo-output/elastic",
        r"printf 'model: demo\ndataset: demo\naugment: standard\n' > augmented.yaml",
    )
}

pytestmark = [pytest.mark.long, pytest.mark.realdata]


def commands(page):
    lines = list(BEFORE.get(page, ()))
    path = ROOT / page if page == "README.md" else ROOT / "docs" / page
    for language, block in BLOCK.findall(path.read_text()):
        if language == "sh":
            lines += [line for line in block.replace("\\\n", " ").splitlines() if line.startswith("et-")]
    assert any(line.startswith("et-") for line in lines)
    return [re.sub(r"--time \S+", "--time 60s", line) for line in lines]


def copy_classes(source, target, classes, images):
    for name in classes:
        (target / name).mkdir(parents=True)
        for file in sorted((source / name).iterdir())[:images]:
            shutil.copy(file, target / name)


@pytest.fixture
def reader(flowers12, cub100, mobilenet_weights, tmp_path):
    """A folder with all that the pages call the reader's own, and what runs a command there."""
    flowers = sorted(path.name for path in (flowers12 / "train").iterdir())
    birds = sorted(path.name for path in (cub100 / "train").iterdir())
    copy_classes(flowers12 / "train", tmp_path / "photos", flowers[:4], 25)
    copy_classes(flowers12 / "test", tmp_path / "more" / "photos", flowers[:1], 3)
    for k, name in enumerate(("birds", "gulls", "owls")):
        copy_classes(cub100 / "train", tmp_path / name, birds[3 * k : 3 * k + 3], 25)
    for name, source, classes in (("images", flowers12, flowers[:3]), ("cub100", cub100, birds[:3])):
        for part, folder in {"train": "train", "val": "test", "test": "test"}.items():
            copy_classes(source / folder, tmp_path / "path" / "to" / name / part, classes, 20)
    (tmp_path / "new").mkdir()
    photo = next((flowers12 / "test" / flowers[0]).iterdir())
    shutil.copy(photo, tmp_path / "new" / "photo.jpg")
    shutil.copy(photo, tmp_path / "photo.jpg")
    (block,) = (
        text
        for _, text in BLOCK.findall((ROOT / "docs" / "keras.md").read_text())
        if "class ByLargest" in text
    )
    (tmp_path / "my_schemes.py").write_text(f"import numpy as np\nimport tensorflow as tf\n{block}")
    # What Keras would download lies where it keeps its downloads.
    weights = tmp_path / "home" / ".keras" / "models" / mobilenet_weights.name
    weights.parent.mkdir(parents=True)
    shutil.copy(mobilenet_weights, weights)
    programs = Path(sys.executable).parent
    environment = {
        **os.environ,
        "HOME": str(tmp_path / "home"),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(tmp_path))),
    }

    def run(line):
        return subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return run


@pytest.mark.parametrize(
    "page",
    ["README.md", "tutorial.md", "usage.md", "continual.md", "devices.md", "keras.md", "results.md"],
)
def test_the_commands_of_a_page_run(page, reader):
    for line in commands(page):
        done = reader(line)
        assert done.returncode == 0, f"{line}\n{done.stdout}"
