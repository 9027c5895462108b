"""The README's first command."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from builders import ONE_THREAD, roughly_profiled, write_digits

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_demo_compares_elastic_training_with_its_rivals(tmp_path):
    """With few epochs and images: what they reach is a benchmark's to say (docs/results.md)."""
    write_digits(tmp_path / "digits", 5)
    (tmp_path / "demo.yaml").write_text(roughly_profiled("demo"))
    as_a_user = {name: value for name, value in os.environ.items() if name not in ONE_THREAD}
    result = subprocess.run(
        ["bash", "scripts/demo.sh", "--dataset", tmp_path / "digits", "--config", tmp_path / "demo.yaml"],
        cwd=ROOT,
        env={**as_a_user, "EPOCHS": "2", "VALIDATE": "1", "RHO": "0.5"},
        capture_output=True,
        text=True,
        timeout=900,
        stdin=subprocess.DEVNULL,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    shown = result.stdout.split("== result")[1]
    rows = (
        "full +demo +full ",
        "full-short +demo +full ",
        "freeze-below +demo .*0.50 ",
        "elastic +demo .*0.50 ",
    )
    for row in rows:
        assert re.search(rf"^{row}.*%", shown, re.M), shown
    runs = {
        name: json.loads((ROOT / "demo-output" / name / "summary.json").read_text())["accuracy"]
        for name in ("full", "freeze-below", "elastic")
    }
    verdict = shown.splitlines()[-1]
    for words, name in (("Late layers", "freeze-below"), ("Chosen tensors", "elastic")):
        pattern = rf"{words} \({name}\) took \d\.\d\d of .* end at {100 * runs[name]:.2f} %: "
        assert re.search(pattern + "[^%]* full training of 2 epochs, .* that of 1[.]", verdict), verdict
    assert min(runs["full"], runs["elastic"]) > 0.2, "chance is 0.1"
    for name in ("timings.png", "curves.png", "selection.png"):
        assert (ROOT / "demo-output" / name).stat().st_size > 5000
