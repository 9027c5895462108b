"""et-plot: what it writes for each picture, and the options that it refuses."""

import csv
import json

import pytest

from elastictrainer.cli import plot
from run_builders import make_profile, make_run


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with runs of full and of elastic training, and a profile."""
    make_run(tmp_path / "full", "full", 200.0, 0.84)
    make_run(tmp_path / "elastic")
    make_profile().save(tmp_path / "p.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "arguments, columns",
    [
        ("curves full elastic --x epochs --y loss", {"label", "epochs", "loss"}),
        ("selection elastic", {"epoch", "tensor", "selected"}),
        ("timings p.json", {"tensor", "t_dw_ms", "t_dy_ms", "t_forward_ms"}),
    ],
)
def test_a_picture_and_its_data_are_written(here, capsys, arguments, columns):
    what = arguments.split()[0]
    assert plot.main([*arguments.split(), "--csv", "data.csv"]) == 0
    assert (here / f"{what}.png").read_bytes().startswith(b"\x89PNG")
    with open("data.csv", newline="") as file:
        assert columns <= set(next(csv.reader(file)))
    assert capsys.readouterr().out.splitlines() == [f"plot: {what}.png", "data: data.csv"]
    assert plot.main([*arguments.split(), "--output", "b.svg"]) == 0
    assert "<svg" in (here / "b.svg").read_text(), "the ending names the format"


def test_the_table_is_printed_and_its_summaries_and_a_report_are_written(here, capsys):
    assert plot.main(["table", "full", "elastic", "--output", "t.json"]) == 0
    assert "rho got" in capsys.readouterr().out
    assert [summary["scheme"] for summary in json.loads((here / "t.json").read_text())] == ["full", "elastic"]
    assert plot.main(["report", "full", "elastic"]) == 0
    assert "Selected tensors" in (here / "report.html").read_text()
    assert capsys.readouterr().out == "report: report.html\n"


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("selection elastic --x time", "--x goes with curves"),
        ("selection elastic --y loss", "--y goes with curves"),
        ("table full --csv t.csv", "--csv goes with pictures"),
        ("table full --output t.csv", "t.csv: the figures of a table are written as .json"),
        ("selection full elastic", "PATH, not 2"),
        ("selection full", "no selection"),
        ("curves nowhere", "nowhere is no run"),
        ("timings full", "cannot read the profile"),
        ("curves full --output b.doc", "valid endings: .png .pdf .svg"),
    ],
)
def test_what_cannot_be_drawn_is_status_2_and_writes_nothing(here, capsys, arguments, message):
    before = sorted(here.iterdir())
    assert plot.main(arguments.split()) == 2
    assert message in capsys.readouterr().err
    assert sorted(here.iterdir()) == before


def test_images_are_drawn_as_the_network_gets_them(tf, image_folder, here, capsys):
    (here / "c.yaml").write_text(f"model: demo\ndataset: {image_folder}\nflip: true\n")
    assert plot.main(["data", "c.yaml", "--output", "d.png", "--csv", "d.csv"]) == 0
    with open("d.csv", newline="") as file:
        assert [row["class"] for row in csv.DictReader(file)].count("dark") == 6
