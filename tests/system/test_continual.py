"""docs/continual.md: its commands, in their order, on small data."""

import json
import re
import shlex
from pathlib import Path

import pytest
from PIL import Image

from elastictrainer.cli import evaluate, train

pytestmark = pytest.mark.slow
PAGE = Path(__file__).resolve().parents[2] / "docs" / "continual.md"
COLOURS = {
    "birds": {"black": (10, 10, 10), "grey": (120, 120, 120)},
    "gulls": {"red": (240, 10, 10), "grey": (150, 150, 150)},
    "owls": {"blue": (10, 10, 240), "green": (10, 240, 10)},
}
RUNS = ("first", "second", "third")
QUICK = ["--epochs", "1", "--learning-rate", "0.01", "--scheme", "traditional-tl"]


def draw(home):
    """Make the folders that the page names: images of one colour each, a little lighter one by one."""
    for name, classes in COLOURS.items():
        for label, colour in classes.items():
            folder = home / name / label
            folder.mkdir(parents=True)
            for k in range(15):  # three of them are for the test
                lighter = tuple(value + k for value in colour)
                Image.new("RGB", (24, 24), lighter).save(folder / f"{k}.png")


@pytest.fixture(scope="module")
def home(tf, tmp_path_factory):
    """A folder in which the page's commands were run."""
    home = tmp_path_factory.mktemp("page")
    draw(home)
    block = re.search(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL).group(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        for command, *words in map(shlex.split, block.splitlines()):
            if command == "et-train":
                model = [] if "--init-from" in words else ["--model", "usermodels:good", "--image-size", "24"]
                assert train.main([*words, *model, *QUICK]) == 0
            else:
                assert command == "et-evaluate" and evaluate.main(words) == 0
    return home


def of(run, name):
    return json.loads((run / name).read_text())


def test_each_run_keeps_the_classes_before_it_and_images_of_them(home):
    names = [of(home / "runs" / name, "environment.json")["class_names"] for name in RUNS]
    assert names == [["black", "grey"], ["black", "grey", "red"], ["black", "grey", "red", "blue", "green"]]
    kept = home / "runs" / "third" / "kept"
    files = {name: sorted(file.name[:3] for file in (kept / name).iterdir()) for name in names[2]}
    assert files == {**dict.fromkeys(names[1], ["old"] * 5), **dict.fromkeys(["blue", "green"], ["new"] * 5)}
    with Image.open(kept / "grey" / "old-00000.png") as image:
        assert image.size == (24, 24)


def test_old_and_new_accuracy_are_told_apart(home):
    first, last = (of(home / "runs" / name, "summary.json") for name in ("first", "third"))
    assert "accuracy_old" not in first
    counts = {"old": 12, "new": 6}
    correct = sum(count * last[f"accuracy_{which}"] for which, count in counts.items())
    assert correct == pytest.approx(18 * last["accuracy"])
    evaluated = of(home / "runs" / "third" / "evaluation", "summary.json")
    assert evaluated["images"] == 18
    assert [evaluated[f"accuracy_{which}"] for which in counts] == [
        pytest.approx(last[f"accuracy_{which}"]) for which in counts
    ]
