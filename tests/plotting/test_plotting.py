"""Pictures from run folders: what is drawn is what the files say, in every format."""

import base64
import csv
import re
import shutil
import subprocess

import numpy as np
import pytest

from elastictrainer import TensorTimings, UsageError
from elastictrainer.plotting import drawing, profiles, report, selections, table, training
from elastictrainer.plotting.replicates import replicates
from elastictrainer.runs.run_folder import RunFolder

NAMES = [f"block_{i}/kernel" for i in range(12)]


def profile(validated=True):
    timings = TensorTimings.from_chain(NAMES, 10.0, np.full(12, 1.0), np.full(12, 0.5))
    timings.metadata = {"model": "tiny <b>&", "device": "abacus"}
    if validated:
        timings.validation = [
            {"selected": [11], "predicted_ms": 12.0, "measured_ms": 12.5},
            {"selected": [0, 11], "predicted_ms": 18.0, "measured_ms": 17.0},
        ]
    return timings


def make_run(folder, scheme="elastic", seconds=100.0, accuracy=0.8):
    run = RunFolder(folder)
    folder.mkdir()
    run.write_config({"scheme": scheme, "rho": 0.5, "model": "<script>alert(1)</script>"})
    run.write_environment({"device": "abacus", "versions": {"python": "3"}})
    profile().save(run.profile_path)
    for epoch in (1, 2, 3):
        run.add_metrics(
            {
                "epoch": epoch,
                "train_seconds_total": seconds * epoch / 3,
                "test_accuracy": accuracy * epoch / 3,
                "test_loss": 1 / epoch,
                "flops_total": 1e12 * epoch,
            }
        )
    if scheme == "elastic":
        for epoch, chosen in enumerate(([11], [9, 10, 11])):
            scores = np.linspace(-0.1, 1, 12) * (epoch + 1)
            run.add_selection(
                {"epoch": epoch, "selected": chosen, "importance": scores.tolist(), "predicted_ratio": 0.5}
            )
    run.write_summary(
        {
            "scheme": scheme,
            "rho_requested": 0.5,
            "rho_predicted": 0.5,
            "rho_achieved": 0.51,
            "accuracy_best": accuracy,
            "accuracy_last": accuracy,
            "train_seconds": seconds,
            "importance_seconds": 1.0,
            "selection_seconds": 0.5,
            "trace_seconds": 0.5,
            "peak_rss_bytes": 2e9,
            "flops_total": 3e12,
            "energy_joules": None,
        }
    )
    return run


@pytest.fixture
def runs(tmp_path):
    return [
        make_run(tmp_path / "full", "full", 200.0, 0.84),
        make_run(tmp_path / "a"),
        make_run(tmp_path / "b", seconds=110.0, accuracy=0.82),
    ]


@pytest.mark.parametrize(
    "x, values", [("time", [200 / 3, 400 / 3, 200]), ("epochs", [1, 2, 3]), ("flops", [1, 2, 3])]
)
def test_curves_draw_the_metrics(runs, x, values):
    drawn = training.curves(runs, x, "accuracy")
    lines = drawn.figure.axes[0].get_lines()
    assert [line.get_label() for line in lines] == ["full", "elastic, rho 0.5 (2 runs)"]
    np.testing.assert_allclose(lines[0].get_xdata(), values)
    np.testing.assert_allclose(lines[0].get_ydata(), [28, 56, 84])
    np.testing.assert_allclose(lines[1].get_xdata(), [35, 70, 105] if x == "time" else values)
    np.testing.assert_allclose(lines[1].get_ydata(), [27, 54, 81])
    deviations = [row["standard_deviation"] for row in drawn.rows]
    assert deviations[:3] == [None] * 3 and deviations[3:] == pytest.approx(
        [2**0.5 / 3, 2 * 2**0.5 / 3, 2**0.5]
    )
    assert [row[x] for row in drawn.rows[:3]] == pytest.approx(values)


def test_long_runs_are_drawn_in_hours(tmp_path):
    figure = training.curves([make_run(tmp_path / "long", seconds=36_000.0)]).figure
    assert figure.axes[0].get_xlabel().endswith("(h)")
    assert figure.axes[0].xaxis.get_major_formatter()(7200, 0) == "2"


def test_words_below_and_above_bars_do_not_run_into_one_another(tmp_path):
    drawn = training.bars(
        [make_run(tmp_path / str(k), f"elastic-{k}-weight-magnitude", accuracy=0.86) for k in range(4)]
    )
    drawn.figure.canvas.draw()
    axes = drawn.figure.axes[0]
    below = [words.get_window_extent() for words in axes.get_xticklabels()]
    assert all(left.x1 < right.x0 for left, right in zip(below, below[1:]))
    assert [words.get_text() for words in axes.texts] == ["86.0"] * 4


def test_more_runs_than_colours_are_told_apart(tmp_path):
    drawn = training.curves([make_run(tmp_path / str(k), f"mine{k}") for k in range(9)])
    lines = drawn.figure.axes[0].get_lines()
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 9


def test_bars_average_the_same_runs_and_show_their_spread(runs):
    drawn = training.bars(runs, "accuracy")
    assert drawn.rows == [
        {"label": "full", "runs": 1, "accuracy": pytest.approx(84), "standard_deviation": None},
        {
            "label": "elastic, rho 0.5",
            "runs": 2,
            "accuracy": pytest.approx(81),
            "standard_deviation": pytest.approx(2**0.5),
        },
    ]


def test_what_was_not_measured_is_said_and_no_bar_is_drawn(runs):
    figure = training.bars(runs, "energy").figure
    assert [text.get_text() for text in figure.axes[0].texts] == ["not measured"] * 2
    assert not figure.axes[0].patches


def test_selection_and_importance_are_maps_of_tensors_and_intervals(runs):
    drawn = selections.selection(runs[1])
    cells = drawn.figure.axes[0].images[0].get_array()
    assert cells.shape == (2, 12)
    np.testing.assert_array_equal(
        ~np.ma.getmaskarray(np.ma.masked_invalid(cells)), [[False] * 11 + [True], [False] * 9 + [True] * 3]
    )
    assert sum(row["selected"] for row in drawn.rows) == 4
    drawn = selections.importance(runs[1])
    cells = np.ma.masked_invalid(drawn.figure.axes[0].images[0].get_array())
    assert np.ma.getmaskarray(cells)[:, :3].tolist() == [[True, True, False]] * 2 and cells[0, 11] == 0
    with pytest.raises(UsageError, match="no selection to draw"):
        selections.selection(runs[0])


def test_prediction_draws_ratios_and_needs_a_validation():
    drawn = profiles.prediction([profile()])
    points = drawn.figure.axes[0].get_lines()[0]
    np.testing.assert_allclose(points.get_ydata(), np.array([12, 18]) / profile().full_ms)
    with pytest.raises(UsageError, match="--validate 12"):
        profiles.prediction([profile(validated=False)])


def test_timings_add_up_to_the_step():
    rows = profiles.timings(profile()).rows
    assert [row["tensor"] for row in rows] == NAMES[::-1]
    assert sum(row["t_dy_ms"] + row["t_dw_ms"] for row in rows) == pytest.approx(18)


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


def test_table(runs):
    said = table.text(runs).splitlines()
    assert re.search(r"full +84.00 % +84.00 % +200.0 +1.000", said[1])
    mean = r"elastic, rho 0.5 \(2 runs\) +81.00 ± 1.41 % +81.00 ± 1.41 % +105.0 ± 7.1 +0.525 ± 0.035 +0.510 ± 0.000 +0.500 ± 0.000 +1.9 ± 0.1 %"
    assert re.fullmatch(mean, said[2])
    assert re.search(
        r"elastic, rho 0.5 +80.00 % +80.00 % +100.0 +- +0.510 +0.500 +2.0 %",
        table.text(runs[1:2]).splitlines()[1],
    )


def test_runs_are_repeats_where_only_the_seed_differs(tmp_path):
    runs = []
    for k, (seed, interval, model) in enumerate([(0, 4, "a"), (1, 4, "a"), (0, 2, "a"), (0, 4, "b")]):
        runs.append(make_run(tmp_path / str(k)))
        runs[-1].write_config(
            {"scheme": "elastic", "rho": 0.5, "seed": seed, "interval": interval, "model": model}
        )
    groups = replicates(runs)
    assert list(groups) == [
        f"elastic, rho 0.5, {rest}"
        for rest in ("interval 4, model a", "interval 2, model a", "interval 4, model b")
    ]
    assert list(groups.values()) == [runs[:2], [runs[2]], [runs[3]]]
    assert list(replicates(runs[:2])) == ["elastic, rho 0.5"]


def test_a_ratio_is_to_full_training_of_the_same_model(tmp_path):
    runs = [
        make_run(tmp_path / f"{scheme}-{model}", scheme, seconds)
        for scheme, model, seconds in (("full", "a", 100.0), ("elastic", "b", 90.0), ("full", "b", 300.0))
    ]
    for run in runs:
        run.write_config({**run.config(), "model": run.path.name.split("-")[1]})
    assert [row["ratio"] for row in table.rows(runs)] == [1.0, pytest.approx(0.3), 1.0]


def test_the_report_is_one_page_that_loads_nothing(runs, tmp_path):
    report.write(runs, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "<script>" not in page and "&lt;script&gt;" in page  # what a user typed is text
    pictures = re.findall(r'<img src="([^"]*)"', page)
    assert len(pictures) == 4 + 1 + 3 + 3 and len(re.findall("src=|href=", page)) == len(pictures)
    for picture in pictures:
        assert base64.b64decode(picture.removeprefix("data:image/png;base64,")).startswith(b"\x89PNG")


def test_the_report_opens_in_a_browser(runs, tmp_path):
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no Chromium on this machine")
    report.write(runs, tmp_path / "r.html")
    shown = subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--dump-dom",
            (tmp_path / "r.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=280,
    ).stdout
    assert shown.count("<section>") == 3 and "84.00 %" in shown
