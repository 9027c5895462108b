"""The table of runs, and the report: one page with everything inside."""

import base64
import html
import json
import re
import shutil
import subprocess

import matplotlib.colors
import numpy as np
import pytest
from PIL import Image

from elastictrainer import UsageError
from elastictrainer.plotting import drawing, report


def test_the_report_is_one_page_that_loads_nothing(runs, tmp_path):
    report.write(runs, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "<script>" not in page and "&lt;script&gt;" in page  # what a user typed is text
    pictures = re.findall(r'<img src="([^"]*)"', page)
    assert len(pictures) == 1 + 1 + 2 + 2 and len(re.findall("src=|href=", page)) == len(pictures)
    for picture in pictures:
        assert base64.b64decode(picture.removeprefix("data:image/png;base64,")).startswith(b"\x89PNG")


# Appended to a copy of the page: what the browser made of it, in the title.
MEASURE = """<script>document.title = JSON.stringify({
    wide: document.documentElement.scrollWidth, window: document.documentElement.clientWidth,
    pictures: [...document.images].map(image => image.complete && image.naturalWidth > 0),
    lines: [...document.querySelectorAll("#runs tbody td")].map(cell => cell.offsetHeight / 21.75),
    scripts: document.querySelectorAll("table script").length})</script>"""


@pytest.mark.slow
def test_the_report_is_readable_in_a_browser(runs, tmp_path):
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    report.write(runs, tmp_path / "r.html")
    page = tmp_path / "measured.html"
    page.write_text((tmp_path / "r.html").read_text().replace("</body>", MEASURE + "</body>"))
    options = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking"
    options += f" --disable-component-update --disable-sync --user-data-dir={tmp_path / 'profile'}"

    def shown(width, *more):
        command = [browser, *options.split(), "--hide-scrollbars", f"--window-size={width},3000", *more]
        return subprocess.run([*command, page.as_uri()], capture_output=True, timeout=280, check=True).stdout

    for width in (1200, 500):
        text = shown(width, "--dump-dom").decode()
        assert text.count("<section>") == 3 and "84.00 %" in text
        measured = json.loads(html.unescape(re.search("<title>(.*?)</title>", text, re.S)[1]))
        assert measured["wide"] <= measured["window"]  # nothing sticks out to the right
        assert len(measured["pictures"]) == 1 + 1 + 2 + 2 and all(measured["pictures"])
        assert max(measured["lines"]) < 2  # a number is not broken into lines
        assert measured["scripts"] == 0
    shown(1200, f"--screenshot={tmp_path / 'page.png'}")
    pixels = np.asarray(Image.open(tmp_path / "page.png").convert("RGB")).reshape(-1, 3)
    for scheme in ("full", "elastic"):
        colour = np.array(matplotlib.colors.to_rgb(drawing.SCHEMES[scheme][0])) * 255
        drawn = np.abs(pixels - colour).max(axis=1) < 60  # a thin line, drawn small, is mixed with white
        assert drawn.sum() > 100, scheme


def test_the_report_rounds_and_cuts_long_lists(runs, tmp_path):
    runs[0].write_summary({**runs[0].summary(), "full_step_ms": 116.123456789, "train_seconds": 12345.678})
    names = [f"class{k}" for k in range(100)]
    runs[0].write_environment({"device": "abacus", "class_names": names, "arguments": names})
    report.write(runs[:1], tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "<td>116.1</td>" in page and "<td>12,346</td>" in page and "123456" not in page
    assert "class11, and 88 more" in page and "class99" not in page
    assert "<td>3.4 h</td>" in page and "<td>84.00 %</td>" in page


def test_another_ending_is_refused(runs, tmp_path):
    with pytest.raises(UsageError, match="valid endings: .html .htm"):
        report.write(runs, tmp_path / "r.png")


def test_the_table_has_what_was_asked_and_got(runs):
    runs[2].write_config({**runs[2].config(), "time": "10m"})
    heading, *lines = report.table_text(runs).splitlines()
    columns = ["run", "model", "scheme", "time asked", "rho asked", "rho got", "accuracy", "training time"]
    assert re.split("  +", heading) == columns
    assert [re.split("  +", line)[2:] for line in lines] == [
        ["full", "-", "-", "0.510", "84.00 %", "200.0 s"],
        ["elastic", "-", "0.50", "0.510", "80.00 %", "100.0 s"],
        ["elastic", "10m", "-", "0.510", "82.00 %", "110.0 s"],
    ]
    assert "asked" not in report.table_text(runs[:1])  # full training takes no rho


def test_a_run_that_was_not_evaluated_has_no_accuracy(runs):
    summary = runs[0].summary()
    del summary["accuracy"]
    runs[0].write_summary(summary)
    assert re.search(r"full +- +0.510 +- +200.0 s", report.table_text(runs).splitlines()[1])
    assert "accuracy" not in report.table_text(runs[:1])
