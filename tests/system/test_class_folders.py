"""et-train on class folders without a split."""

import shutil

from elastictrainer.cli import train


def test_et_train_takes_class_folders_and_reports_their_imbalance(tf, class_folders, tmp_path, capsys):
    for extra in range(10):
        shutil.copy(class_folders / "light" / "train0.png", class_folders / "light" / f"again{extra}.png")
    status = train.main(
        [
            *"--model usermodels:good --image-size 16 --dataset".split(),
            str(class_folders),
            *"--validation-split 0.25 --scheme traditional-tl --epochs 1 --output".split(),
            str(tmp_path / "run"),
        ]
    )
    printed = capsys.readouterr().out
    assert status == 0 and "8 (dark) to 20 (light)" in printed
