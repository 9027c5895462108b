"""Output whose reader went, whose disk is full, whose characters are too few; in real processes."""

import os
import subprocess
import sys

import pytest

from elastictrainer.cli import output

BODY = """
import sys
from elastictrainer.cli.command import run
from elastictrainer.cli.output import unfailing

def body(arguments):
    for line in range(3):
        print("pr\u00fcfung", line, flush=True)
        print("warning", file=sys.stderr, flush=True)
    open(arguments[0], "w").write("done")

with unfailing():
    status = run("et-test", body, sys.argv[1:])
sys.exit(status)
"""


def shell(tmp_path, redirection, **environment):
    """Run the body above with its output redirected so; returns what came out."""
    (tmp_path / "body.py").write_text(BODY)
    result = subprocess.run(
        ["bash", "-c", f'"{sys.executable}" body.py done {redirection}'],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        timeout=280,
    )
    assert (tmp_path / "done").read_text() == "done", result.stderr.decode()
    return result


@pytest.mark.parametrize(
    "redirection",
    [
        "> >(true); echo status $?",
        "2>&1 | head -1 | cut -c 1 > seen; echo status ${PIPESTATUS[0]}",
        ">/dev/full; echo status $?",
        ">/dev/full 2>/dev/full; echo status $?",
        "2>&- >/dev/null; echo status $?",
        ">&- 2>&-; echo status $?",
        "<&- >&- 2>&-; echo status $?",
    ],
)
def test_what_is_printed_cannot_end_the_work(tmp_path, redirection):
    result = shell(tmp_path, redirection)
    assert b"status 0" in result.stdout and b"Traceback" not in result.stderr


def test_a_file_opened_after_start_never_gets_stderrs_number(tmp_path):
    shell(tmp_path, ">&- 2>&-")  # its warnings would stand in the file


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_characters_that_the_terminal_lacks_are_escaped(tmp_path, encoding):
    result = shell(tmp_path, "", PYTHONIOENCODING=encoding)
    said = result.stdout.decode(encoding).splitlines()[0]
    assert said == ("pr\\xfcfung 0" if encoding == "ascii" else "pr\u00fcfung 0") and result.returncode == 0


def test_a_stream_is_its_old_self_otherwise(capsys):
    with output.unfailing():
        print("said")
        assert sys.stdout.write("four") == 4 and sys.stdout.encoding and not sys.stdout.isatty()
    assert capsys.readouterr().out == "said\nfour"
