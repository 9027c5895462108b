"""The report is one page with everything inside."""

import base64
import re
import shutil
import subprocess

import pytest

from elastictrainer import UsageError
from elastictrainer.plotting import report


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


def test_another_ending_is_refused(runs, tmp_path):
    with pytest.raises(UsageError, match="valid endings: .html .htm"):
        report.write(runs, tmp_path / "r.png")
