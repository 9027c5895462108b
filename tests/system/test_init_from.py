"""et-train --init-from: a run goes on from an earlier run's model."""

import json

import pytest

from elastictrainer.cli import train


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
        *"--model usermodels:good --dataset".split(),
        str(home / "images"),
        *"--scheme traditional-tl --epochs 6 --learning-rate 0.01 --image-size 24 --output".split(),
        str(home / "run"),
    ]
    assert train.main(arguments) == 0
    return home


def test_et_train_goes_on_where_the_earlier_run_was(earlier, tmp_path, capsys):
    arguments = [
        "--init-from",
        str(earlier / "run"),
        "--dataset",
        str(earlier / "images"),
        *"--scheme full --epochs 1 --learning-rate 1e-6 --output".split(),
        str(tmp_path / "run"),
    ]
    assert train.main(arguments) == 0
    before, after = (
        json.loads((folder / "summary.json").read_text()) for folder in (earlier / "run", tmp_path / "run")
    )
    assert before["accuracy"] > 0.6 and after["accuracy"] >= before["accuracy"] - 0.1
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
