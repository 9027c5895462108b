"""The package on a system without what only Linux has: modules, signals, clocks and files are hidden first.

This stands for Windows and macOS, on which no test has run.
"""

import os
import subprocess
import sys
from pathlib import Path

# What Windows does not know; macOS lacks some of it.
HIDDEN = """
import builtins, os, pathlib, signal, sys, time
import ctypes, multiprocessing, subprocess, tempfile  # the standard library's own, as they are on this system
import psutil
for module in ("fcntl", "resource", "pwd", "grp", "termios", "pty", "posix_ipc"):
    sys.modules[module] = None
for holder, names in {
    signal: ["SIGHUP", "SIGUSR1", "SIGKILL"],
    time: ["CLOCK_BOOTTIME", "clock_gettime"],
    os: ["sysconf", "sched_getaffinity", "posix_fallocate", "preadv", "pread", "pwrite", "getuid", "fork"],
}.items():
    for name in names:
        if hasattr(holder, name):
            delattr(holder, name)
really_open = builtins.open

def opened(file, *rest, **more):
    asks = sys._getframe(1).f_globals.get("__name__", "")
    if str(file).startswith(("/proc/", "/sys/")) and not asks.startswith(("psutil", "filelock")):
        raise FileNotFoundError(2, "No such file or directory", file)
    return really_open(file, *rest, **more)

builtins.open = opened
pathlib.Path.open = lambda self, *rest, **more: opened(self, *rest, **more)
"""


def run(program, *arguments, **options):
    """Run `program` where all that is hidden; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN + program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        **options,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_numpy_core_is_imported_and_keeps_run_folders_and_caches(tmp_path):
    program = """
import re
import numpy as np
text = open(sys.argv[1], encoding="utf-8").read()
core = text[text.index("source_modules = "):text.index("forbidden_modules")]
modules = re.findall('"(elastictrainer[a-z_.]*)"', core)
assert len(modules) > 5
for module in [*modules, "elastictrainer.runs.environment", "elastictrainer.runs.resident"]:
    __import__(module)
assert "tensorflow" not in sys.modules

from elastictrainer import UsageError
from elastictrainer.cache.storage import CacheStorage, Column
from elastictrainer.runs import environment, resident
from elastictrainer.runs.run_folder import RunFolder

run = RunFolder.create("run")
run.write_config({"scheme": "full"})
run.add_metrics({"epoch": 0})
with run.claimed(resume=True):
    try:
        with RunFolder("run").claimed(resume=True):
            raise AssertionError("the folder is claimed twice")
    except UsageError as error:
        assert "in use" in str(error)
assert run.is_own() and run.metrics() == [{"epoch": 0}]
assert environment.peak_rss_bytes() > 1e6 and environment.processors() and environment.memory_bytes() > 1e6
assert resident.resident_bytes() > 1e6
resident.release_memory()

cache = CacheStorage([Column((3,), "float32")], 4, run.path)
cache.add([np.arange(12, dtype=np.float32).reshape(4, 3)])
assert cache.read(np.array([2, 0]))[0].tolist() == [[6, 7, 8], [0, 1, 2]]
"""
    pyproject = Path(__file__).resolve().parents[2] / "pyproject.toml"
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "home")}
    run(program, pyproject, cwd=tmp_path, env=environment)


COMMANDS = {
    **dict.fromkeys(("profile", "train"), []),
    **dict.fromkeys(("evaluate", "export"), ["run"]),
    "predict": ["run", "image"],
    "plot": ["table", "run"],
}


def test_every_command_starts_and_refuses_a_wrong_option():
    program = f"""
import importlib
for command, arguments in {COMMANDS!r}.items():
    main = importlib.import_module("elastictrainer.cli." + command).main
    for words, status in (["--help"], 0), ([*arguments, "--no-such-option"], 2):
        try:
            ended = main(words)
        except SystemExit as end:
            ended = end.code or 0
        assert ended == status, (command, words, ended)
        print("that was", command)
        sys.stdout.flush()
        sys.stderr.flush()
"""
    said = run(program)
    for command in COMMANDS:
        help, refused, said = said.split(f"that was {command}\n")
        assert f"et-{command}" in help and "--no-such-option" in refused and "Traceback" not in refused
