"""et-train on class folders without a split."""

import shutil

import pytest

from elastictrainer.cli import train


@pytest.fixture
def folder(image_folder, tmp_path):
    """CLASS/IMAGE without a split: 11 dark images, 16 light ones."""
    for label in ("dark", "light"):
        (tmp_path / "all" / label).mkdir(parents=True)
        for split in ("train", "test"):
            for image in sorted((image_folder / split / label).iterdir()):
                if label == "light" or image.stem in "0123456":
                    shutil.copy(image, tmp_path / "all" / label / f"{split}{image.name}")
    return tmp_path / "all"


def test_et_train_takes_class_folders_and_reports_their_imbalance(tf, folder, tmp_path, capsys):
    for extra in range(10):
        shutil.copy(folder / "light" / "train0.png", folder / "light" / f"again{extra}.png")
    status = train.main(
        [
            *"--model demo --dataset".split(),
            str(folder),
            *"--validation-split 0.25 --scheme traditional-tl --epochs 1 --output".split(),
            str(tmp_path / "run"),
        ]
    )
    printed = capsys.readouterr().out
    assert status == 0 and "8 (dark) to 20 (light)" in printed
