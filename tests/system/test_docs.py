"""README and docs/: links lead somewhere, commands parse, examples run."""

import argparse
import re
import shlex
from pathlib import Path

import pytest

import elastictrainer
from elastictrainer.experiment.options import parse
from elastictrainer.experiment.settings import ProfileSettings, TrainSettings
from elastictrainer.fleet.settings import FleetSettings

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)]+)\)", page.read_text())
    for link in links:
        target, _, anchor = link.partition("#")
        if re.match(r"https?://", target):
            continue
        file = page.parent / target if target else page
        assert file.exists(), link
        if anchor:
            titles = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles], (
                link
            )


def test_the_api_page_lists_what_the_package_exports():
    listed = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(f"{home}.{name}" for name, home in elastictrainer._HOME.items())


def test_every_page_is_in_the_site():
    nav = (ROOT / "mkdocs.yml").read_text().split("\nnav:")[1]
    assert sorted(re.findall(r"(\S+\.md)$", nav, re.MULTILINE)) == sorted(
        [*(page.name for page in PAGES), "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
    )


def commands():
    for page in PAGES:
        for block in blocks(page, "sh"):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                while words and re.match(r"^[A-Z_]+=", words[0]):
                    words = words[1:]
                if words and words[0] not in ("sudo", "source", "pip", "git", "python3", "python3.11"):
                    yield pytest.param(words, id=f"{page.name}: {line}")


@pytest.mark.parametrize("words", commands())
def test_commands_are_spelled_right(words):
    if words[0] in ("et-profile", "et-train"):
        settings = ProfileSettings if words[0] == "et-profile" else TrainSettings
        parser = argparse.ArgumentParser(allow_abbrev=False)
        parser.add_argument("--resume")
        parse(settings, words[1:], parser)
    elif words[0] in ("bash", "python"):
        assert (ROOT / words[1]).is_file()
    elif words[0] == "flwr":
        given = shlex.split(words[words.index("--run-config") + 1])
        pairs = (pair.split("=") for pair in given)
        FleetSettings.from_config({key: int(value) if value.isdigit() else value for key, value in pairs})
    else:
        ours = ("et-plot", "et-export", "et-evaluate", "et-predict")
        assert words[0] in (*ours, "flower-superlink", "flower-supernode")


def small_backbone(tf):
    """Return a function that takes what the page gives to MobileNetV2: its network has three layers."""

    def create(weights, include_top, pooling, input_shape):
        assert (weights, include_top, pooling) == (None, False, "avg")
        layers = [tf.keras.layers.Conv2D(32 * k, 3, strides=2, activation="relu") for k in (1, 2, 4)]
        return tf.keras.Sequential(
            [tf.keras.Input(input_shape), *layers, tf.keras.layers.GlobalAveragePooling2D()]
        )

    return create


@pytest.mark.slow
def test_examples_run(tf, rough_profiles, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # The page's network takes half a minute to trace; test_keras_applications.py trains one of its kind.
    monkeypatch.setattr(tf.keras.applications, "MobileNetV2", small_backbone(tf))
    tf.keras.utils.set_random_seed(0)
    place = {}
    for code in blocks(ROOT / "docs" / "keras.md", "python"):
        exec(compile(code, "keras.md", "exec"), place)  # the page is one program
    assert (tmp_path / "profile.json").exists() and "ms own gradient" in capsys.readouterr().out
    assert place["run"].summary()["epochs"] >= 1 and place["run"].model_path.exists()
    layer = tf.keras.layers.Dense(2, input_shape=(3,))
    assert place["OddTensors"]().mask(tf.keras.Sequential([layer])).tolist() == [False, True]
    assert place["ByLargestGradient"]().importance_metric == "largest-gradient"
