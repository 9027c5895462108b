"""The README's first command, and that the README tells the truth about files and commands."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from builders import ONE_THREAD

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_demo_trains_elastic_with_less_work_and_similar_accuracy():
    as_a_user = {name: value for name, value in os.environ.items() if name not in ONE_THREAD}
    result = subprocess.run(
        ["bash", "scripts/demo.sh"],
        cwd=ROOT,
        env=as_a_user,
        capture_output=True,
        text=True,
        timeout=900,
        stdin=subprocess.DEVNULL,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    table = result.stdout.split("== result")[1]
    for label in ("full, epochs 10", "full, epochs 5", "elastic.* 0.50"):
        assert re.search(rf"{label}.*%", table), table
    full, elastic = (
        json.loads((ROOT / "demo-output" / n / "summary.json").read_text()) for n in ("full", "elastic")
    )
    assert full["accuracy_best"] > 0.93
    # Which tensors half the time buys depends on the machine: 93 to 94 % were seen. The head alone has 89 %.
    assert elastic["accuracy_best"] > full["accuracy_best"] - 0.06
    assert elastic["flops_total"] < 0.7 * full["flops_total"]
    for name in ("timings.png", "curves.png", "selection.png"):
        assert (ROOT / "demo-output" / name).stat().st_size > 5000


def test_readme_names_only_commands_and_files_that_exist():
    text = (ROOT / "README.md").read_text()
    commands = re.findall(
        r"^(?:bash|python) (\S+)", "\n".join(re.findall(r"```(?:sh|text)?\n(.*?)```", text, re.S)), re.M
    )
    assert {"scripts/demo.sh", "scripts/test.sh"} <= set(commands)
    for path in commands:
        assert (ROOT / path).exists(), path
