"""Pictures and their data as files, and how runs look and what they are called in them."""

import csv
import itertools

import matplotlib.colors
import numpy as np
import pytest

from elastictrainer.plotting import drawing
from elastictrainer.plotting.curves import curves
from elastictrainer.selection.schemes import SCHEMES
from run_builders import make_run


def test_a_picture_is_written_in_every_format_and_its_data_as_a_table(runs, tmp_path):
    drawn = curves(runs)
    for suffix, start in {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}.items():
        drawing.save(drawn, tmp_path / f"x.{suffix}")
        assert (tmp_path / f"x.{suffix}").read_bytes().startswith(start)
    assert not list(tmp_path.glob(".*"))
    drawing.save_data(drawn, tmp_path / "x.csv")
    with open(tmp_path / "x.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 9 and rows[0]["label"] == "full" and float(rows[2]["accuracy"]) == pytest.approx(84)


def test_a_run_is_called_by_what_was_asked_of_it(tmp_path):
    runs = [make_run(tmp_path / "a", "full"), make_run(tmp_path / "b", "elastic-grad-magnitude")]
    assert drawing.labels(runs) == ["full", "elastic-grad-magnitude, rho 0.5"]
    for run in runs:
        run.write_config({**run.config(), "time": "10m"})
    assert drawing.labels(runs) == ["full, time 10m", "elastic-grad-magnitude, time 10m"]
    runs.append(make_run(tmp_path / "c", "full"))
    runs.append(make_run(tmp_path / "d", "full"))
    assert drawing.labels(runs)[2:] == ["full (c)", "full (d)"]


def test_a_title_names_model_and_data(tmp_path):
    runs = [make_run(tmp_path / name) for name in "ab"]
    for run, model in zip(runs, ("nets/birds.keras", "vit")):
        run.write_config({**run.config(), "model": model, "dataset": "tfds/oxford/1.0.0"})
    assert drawing.subject(runs[:1]) == "birds on oxford"
    assert drawing.subject(runs) == "2 models or data sets"


@pytest.mark.parametrize("longest, unit", [(600, "s"), (601, "min"), (7200, "min"), (7201, "h")])
def test_the_unit_of_times(longest, unit):
    assert drawing.time_unit(longest)[0] == unit


def test_a_long_name_keeps_its_beginning_and_its_end():
    assert drawing.cut_to("American_Three_toed_Woodpecker_male", 28) == "American..ed_Woodpecker_male"
    assert drawing.cut_to("wren", 28) == "wren"


# Of linear RGB; Machado, Oliveira and Fernandes 2009, severity 1.
VISION = {
    "normal": np.eye(3),
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


def lab(colour, vision):
    """The colour in CIELAB as seen with `vision`: distances are differences seen, and 2 the least."""
    srgb = np.array(matplotlib.colors.to_rgb(colour))
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(VISION[vision]) @ linear, 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = np.cbrt(np.array(to_xyz) @ seen / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_every_scheme_has_a_look_of_its_own():
    assert set(drawing.SCHEMES) == set(SCHEMES)
    assert len({marker for _, marker in drawing.SCHEMES.values()}) == len(SCHEMES)


@pytest.mark.parametrize("vision", VISION)
def test_readers_of_every_vision_can_tell_the_schemes_apart(vision):
    colours = [colour for colour, _ in drawing.SCHEMES.values()]
    for one, other in itertools.combinations([*colours, *drawing.OWN_COLOURS], 2):
        assert np.linalg.norm(lab(one, vision) - lab(other, vision)) > 15, (one, other)


def test_runs_of_one_scheme_are_lines_of_their_own(tmp_path):
    runs = [make_run(tmp_path / "full", "full")] + [make_run(tmp_path / str(rho)) for rho in (0.7, 0.35, 0.5)]
    full, *looks = drawing.styles(runs)
    assert full == drawing.of_scheme("full")
    assert {(look.colour, look.marker) for look in looks} == {drawing.SCHEMES["elastic"]}
    assert len({look.line for look in looks}) == 3
