"""The commands in processes of their own, as a shell starts them.

Each is forked from a process that has TensorFlow loaded, which saves the seconds that every start would
take; of TensorFlow nothing has run in it yet.
"""

import importlib
import multiprocessing
import os
import resource
import signal
import sys
import threading
from pathlib import Path

TESTS = str(Path(__file__).parent)
_starts = multiprocessing.get_context("forkserver")
_starts.set_forkserver_preload(["tensorflow", "keras"])


class Process:
    """A running command: what `subprocess.Popen` offers of one, stdout and stderr together."""

    def __init__(
        self, folder, name, *arguments, ignored=(), largest_file=None, ends_before=None, environment=()
    ):
        """
        Args:
            folder: to run in.
            name: of the command, "et-train".
            ignored: signals that are ignored from the start, as in a shell's background job.
            largest_file: bytes; no file can be made larger.
            ends_before: the end of a file's path: with status 9, right before that file is there.
            environment: variables to add.
        """
        reading, writing = _starts.Pipe(duplex=False)
        everything = {**os.environ, "PYTHONPATH": os.pathsep.join([TESTS, *sys.path]), **dict(environment)}
        words = [name, *map(str, arguments)]
        self._process = _starts.Process(
            target=_run,
            args=(words, str(folder), everything, writing, tuple(ignored), largest_file, ends_before),
        )
        self._process.start()
        writing.close()
        self.stdout = os.fdopen(os.dup(reading.fileno()), errors="replace")
        reading.close()
        self.pid = self._process.pid
        self.kill = self._process.kill
        self.terminate = self._process.terminate

    def poll(self):
        """The exit status, minus the signal's number if one ended it; None while it runs."""
        return self._process.exitcode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def wait(self):
        self._process.join()
        return self.poll()

    def said(self, timeout=280):
        """All that it says from here until it has ended; it is killed after `timeout` seconds."""
        killer = threading.Timer(timeout, self.kill)
        killer.start()
        try:
            with self.stdout:
                said = self.stdout.read()
            self.wait()
        finally:
            killer.cancel()
            self.kill()
        return said


def run(folder, name, *arguments, status=0, **options):
    """Return the command's output; it must end with that status, and without a traceback."""
    return finished(Process(folder, name, *arguments, **options), status)


def finished(process, status=0):
    """Return the process' further output; it must end with that status, and without a traceback."""
    said = process.said()
    assert process.poll() == status, said
    assert "Traceback" not in said, said
    return said


def answer_of(model, shape):
    """The shape of what a saved model answers to ones, in a process that has not seen its classes."""
    reading, writing = _starts.Pipe(duplex=False)
    process = _starts.Process(target=_answer, args=(str(model), shape, writing))
    process.start()
    writing.close()
    try:
        return reading.recv()
    finally:
        process.join()


def _answer(model, shape, writing):
    import tensorflow as tf

    from elastictrainer.models import user_models

    writing.send(tuple(user_models.read(model, trust=True)(tf.ones(shape)).shape))


def _run(words, folder, environment, writing, ignored, largest_file, ends_before):
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for entry in reversed(environment["PYTHONPATH"].split(os.pathsep)):
        if entry not in sys.path:
            sys.path.insert(0, entry)
    os.dup2(writing.fileno(), 1)
    os.dup2(1, 2)
    writing.close()
    sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))
    if largest_file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    if ends_before:
        replace = os.replace
        os.replace = lambda a, b: os._exit(9) if str(b).endswith(ends_before) else replace(a, b)
    name, *sys.argv[1:] = words
    sys.argv[0] = name
    command = importlib.import_module(f"elastictrainer.cli.{name[3:]}")
    sys.exit(command.main(words[1:]))
