"""The sheet of training images, as stored and as augmented."""

import numpy as np
import pytest

from elastictrainer import UsageError


def test_images_as_they_are_and_as_augmented(tf, image_folder, tmp_path):
    from elastictrainer.plotting import drawing, preview

    config = tmp_path / "c.yaml"
    config.write_text(f"model: demo\ndataset: {image_folder}\nimage_size: 32\nrotation: 0.25\nflip: true\n")
    drawn = preview.data(preview.preview_settings(str(config)))
    assert [row["class"] for row in drawn.rows].count("dark") == 6 and len(drawn.rows) == 12
    originals = [row for row in drawn.rows if row["shown"] == "as it is"]
    assert len(originals) == 2
    assert all(abs(row["mean"] - (60 if row["class"] == "dark" else 190)) < 25 for row in drawn.rows)
    squares = [axes.get_images()[0].get_array() for axes in drawn.figure.axes]
    assert any(not np.array_equal(squares[0], other) for other in squares[1:6])
    drawing.save(drawn, tmp_path / "sheet.png")
    assert (tmp_path / "sheet.png").stat().st_size > 5000


def test_without_augmentation_it_shows_more_images_of_each_class_also_of_a_folder_of_classes(
    tf, image_folder
):
    from elastictrainer.plotting import preview

    drawn = preview.data(preview.TrainSettings(model="demo", dataset=str(image_folder / "train")))
    assert {row["class"] for row in drawn.rows} == {"dark", "light"}
    assert {row["shown"] for row in drawn.rows} == {"as it is"}
    squares = [axes.get_images()[0].get_array() for axes in drawn.figure.axes if axes.get_images()]
    assert len(squares) == len(drawn.rows) > 2
    assert len({square.tobytes() for square in squares}) == len(squares)


def test_a_data_set_alone_has_the_default_settings_and_an_unknown_one_is_refused(image_folder):
    from elastictrainer.plotting import preview

    assert preview.preview_settings(str(image_folder)).dataset == str(image_folder)
    with pytest.raises(UsageError, match="unknown data set"):
        preview.data(preview.preview_settings("nowhere"))
