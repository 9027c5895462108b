"""Pictures and their data as files, and what runs are called in them."""

import csv
import re

import pytest

from elastictrainer import UsageError
from elastictrainer.plotting import drawing, training
from run_builders import make_run


@pytest.mark.parametrize("suffix, start", [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_every_format(runs, tmp_path, suffix, start):
    drawing.save(training.curves(runs), tmp_path / f"x.{suffix}")
    assert (tmp_path / f"x.{suffix}").read_bytes().startswith(start)
    assert sorted(p.name for p in tmp_path.glob(".*")) == []


def test_the_data_drawn_is_written(runs, tmp_path):
    drawing.save_data(training.curves(runs), tmp_path / "x.csv")
    with open(tmp_path / "x.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6 and rows[0]["label"] == "full" and float(rows[2]["accuracy"]) == pytest.approx(84)


def test_another_ending_is_refused(tmp_path):
    figure = drawing.Drawing(drawing.pyplot.figure(), [])
    with pytest.raises(UsageError, match=re.escape("x.doc; valid endings: .png .pdf .svg")):
        drawing.save(figure, tmp_path / "x.doc")
    assert not list(tmp_path.iterdir())


def test_a_run_is_called_by_its_scheme_and_rho(tmp_path):
    assert drawing.label(make_run(tmp_path / "a", "full")) == "full"
    assert (
        drawing.label(make_run(tmp_path / "b", "elastic-grad-magnitude")) == "elastic-grad-magnitude, rho 0.5"
    )


@pytest.mark.parametrize("count, expected", [(3, ["c0", "c1", "c2"]), (25, [f"c{3 * k}" for k in range(9)])])
def test_at_most_twelve_layer_names_are_on_the_axis(count, expected):
    _, axes = drawing.pyplot.subplots()
    drawing.layer_ticks(axes, [drawing.layer_of(f"c{k}/kernel") for k in range(count)])
    assert [text.get_text() for text in axes.get_xticklabels()] == expected
