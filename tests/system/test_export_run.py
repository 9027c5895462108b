"""A run's exports from et-train and et-export: the model card, and the accuracy of the 8-bit model."""

import numpy as np
import pytest

from builders import tflite, write_digits


@pytest.mark.slow
def test_a_run_is_exported_with_its_card_and_int8_keeps_the_accuracy(tf, tmp_path, monkeypatch, capsys):
    from elastictrainer.cli import export, train
    from elastictrainer.models import predictor

    monkeypatch.chdir(tmp_path)
    images, labels = write_digits("digits", 6)
    options = "--model demo --dataset digits --batch-size 16 --learning-rate 0.003 --scheme full --epochs 1"
    assert train.main([*options.split(), "--output", "run", "--export", "tflite,keras"]) == 0
    formats = ["--format", "tflite-int8", "--format", "tflite-full-int8"]
    assert export.main(["run", *formats, "--output", "out"]) == 0
    assert "written: out/model-full-int8.tflite" in capsys.readouterr().out
    pixels = images.astype(np.float32)

    def right(answers):
        return (answers.argmax(axis=1) == labels).mean()

    exact = right(tf.keras.models.load_model("run/model.keras").predict(pixels, verbose=0))
    assert right(tflite(tf, "run/export/model.tflite", pixels)) == pytest.approx(exact)
    # Of 8-bit numbers a few answers near a tie change: three images in a hundred.
    assert abs(right(tflite(tf, "out/model-int8.tflite", pixels)) - exact) <= 0.03
    assert abs(right(predictor.load("out/model-full-int8.tflite")(pixels)) - exact) <= 0.03
    said = (tmp_path / "out" / "README.md").read_text()
    for words in ("# demo for digits", "model-int8.tflite", "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"):
        assert words in said
    assert f"{100 * exact:.1f} % with these weights" in said
    assert "`model-full-int8.tflite` | integers only" in said
    (tmp_path / "digits").rename(tmp_path / "elsewhere")
    capsys.readouterr()
    assert export.main(["run", *formats, "--output", "again"]) == 2
    assert "digits" in capsys.readouterr().err and not (tmp_path / "again").exists()
