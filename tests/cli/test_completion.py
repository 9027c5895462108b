"""Completion at TAB, as the shell's hook asks for it."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# TensorFlow would take seconds at every TAB.
ASK = "import sys; sys.modules['tensorflow'] = None; from elastictrainer.cli.{} import main; main([])"


@pytest.mark.skipif(not importlib.util.find_spec("argcomplete"), reason="argcomplete is not installed")
@pytest.mark.parametrize(
    "line, completions",
    [
        ("et-train --model vgg", ["vgg16", "vgg19"]),
        ("et-train --model my", ["my.keras"]),
        ("et-train --scheme trad", ["traditional-tl"]),
        ("et-train --warm", ["--warmup"]),
        ("et-plot tim", ["timings"]),
        ("et-export --format tfl", ["tflite", "tflite-int8"]),
    ],
)
def test_what_a_shell_is_answered(tmp_path, line, completions):
    (tmp_path / "my.keras").touch()
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "answer"),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", ASK.format(line.split()[0][3:])]
    subprocess.run(command, env={**os.environ, **asked, "PYTHONPATH": path}, cwd=tmp_path, timeout=60)
    assert sorted((tmp_path / "answer").read_text().split()) == completions
