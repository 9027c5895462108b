"""The errors of every command: one line on stderr, and the exit status; output that cannot be written."""

import os
import signal
import subprocess
import sys

import pytest

from elastictrainer import RunError, UsageError, __version__
from elastictrainer.cli import command
from elastictrainer.cli.command import run


def raising(error):
    def body(arguments):
        raise error

    return body


@pytest.fixture(autouse=True)
def keep_signal_handler():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_success_is_status_0_and_the_body_gets_the_arguments(capsys):
    received = []
    assert run("et-test", received.append, ["--a", "b"]) == 0
    assert received == [["--a", "b"]]
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


OUT_OF_MEMORY = "out of memory: a step on so many pixels does not fit. Lower --batch-size or --image-size."
ADVICE = "\nRun again with --debug for details."
IN_USER_CODE = "in user code:\n\n    File a.py\n        x\n\n    ValueError: of shape 3\n    called so"
IN_A_LAYER = """Exception encountered when calling layer 'd' (type Dense).

of shape 3

Call arguments received by layer 'd' (type Dense):
  - inputs=x"""


@pytest.mark.parametrize(
    "error, status, line",
    [
        (UsageError("no such run."), 2, "no such run."),
        (RunError("the loss is not finite."), 1, "the loss is not finite."),
        (KeyboardInterrupt(), 130, "interrupted."),
        (KeyboardInterrupt("Go on: --resume r"), 130, "interrupted. Go on: --resume r"),
        (OSError(28, "No space left", "f.txt"), 1, "failed: f.txt: No space left."),
        (OSError("torn"), 1, "failed: torn."),
        (MemoryError(), 1, OUT_OF_MEMORY),
        (type("ResourceExhaustedError", (Exception,), {})("OOM when allocating"), 1, OUT_OF_MEMORY),
        (ZeroDivisionError("first line\nsecond"), 1, f"failed: ZeroDivisionError: first line{ADVICE}"),
        (ValueError(IN_USER_CODE), 1, f"failed: ValueError: of shape 3{ADVICE}"),
        (ValueError(IN_A_LAYER), 1, f"failed: ValueError: of shape 3{ADVICE}"),
        (AssertionError(), 1, f"failed: AssertionError{ADVICE}"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_is_one_line_and_a_status_and_debug_adds_the_traceback(capsys, error, status, line):
    assert run("et-test", raising(error), []) == status
    captured = capsys.readouterr()
    assert [said.rstrip() for said in captured.err.splitlines()] == f"et-test: {line}".splitlines()
    assert captured.out == ""
    run("et-test", raising(error), ["--debug"])
    assert ("Traceback" in capsys.readouterr().err) == isinstance(error, Exception)


def test_a_closed_pipe_ends_the_command_without_a_word(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # `run` replaces it, which is undone after the test
    assert run("et-test", raising(BrokenPipeError()), []) == 1
    sys.stdout.close()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_termination_signal_and_a_lost_terminal_interrupt_the_body(capsys, number):
    signal.signal(number, signal.SIG_DFL)

    def body(arguments):
        os.kill(os.getpid(), number)
        signal.pause()

    assert run("et-test", body, []) == 130
    assert "interrupted" in capsys.readouterr().err


def test_nohup_is_obeyed():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert run("et-test", lambda arguments: os.kill(os.getpid(), signal.SIGHUP), []) == 0


@pytest.mark.parametrize("name", ["train", "profile", "plot", "export"])
def test_every_command_tells_its_version(name, capsys):
    import importlib

    with pytest.raises(SystemExit) as stopped:
        importlib.import_module(f"elastictrainer.cli.{name}").main(["--version"])
    assert stopped.value.code == 0 and capsys.readouterr().out == f"et-{name} {__version__}\n"


BODY = """
import sys
from elastictrainer.cli.command import run, unfailing

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
        ">&- 2>&-; echo status $?",  # else warnings go into the next file opened
        "<&- >&- 2>&-; echo status $?",
    ],
)
def test_what_is_printed_cannot_end_the_work(tmp_path, redirection):
    result = shell(tmp_path, redirection)
    assert b"status 0" in result.stdout and b"Traceback" not in result.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_characters_that_the_terminal_lacks_are_escaped(tmp_path, encoding):
    result = shell(tmp_path, "", PYTHONIOENCODING=encoding)
    said = result.stdout.decode(encoding).splitlines()[0]
    assert said == ("pr\\xfcfung 0" if encoding == "ascii" else "pr\u00fcfung 0") and result.returncode == 0


def test_a_stream_is_its_old_self_otherwise(capsys):
    with command.unfailing():
        print("said")
        assert sys.stdout.write("four") == 4 and sys.stdout.encoding and not sys.stdout.isatty()
    assert capsys.readouterr().out == "said\nfour"
