"""Resident memory, measured on a process of its own: what earlier tests freed would be used again here."""

import subprocess
import sys

import pytest

from elastictrainer.runs import resident

_START = """
import sys
import numpy as np
from elastictrainer.runs import resident
MB = 2**20
"""


def _run(code):
    """Run `code` in a fresh process, and return the numbers that it prints."""
    done = subprocess.run([sys.executable, "-c", _START + code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [float(word) for word in done.stdout.split()]


def test_the_peak_counts_what_was_freed_since():
    if not resident.reset_peak() or resident.peak_bytes() is None:
        pytest.skip("this system does not tell the peak")
    freed, reset = _run(
        """
before = resident.resident_bytes()
np.ones(64 * MB, np.uint8)
freed = resident.peak_bytes() - before
resident.release_memory()
resident.reset_peak()
print(freed / MB, (resident.peak_bytes() - before) / MB)
"""
    )
    assert freed > 60
    assert reset < 32


def test_a_system_that_does_not_tell_is_no_error(monkeypatch, tmp_path):
    monkeypatch.setattr(resident, "_PROCESS", tmp_path / "missing")
    assert resident.reset_peak() is False
    assert resident.peak_bytes() is None


def test_large_blocks_go_back_at_once_and_then_are_kept_as_usual():
    in_block, after, limited, grown = _run(
        """
def still_there():
    before = resident.resident_bytes()
    for _ in range(4):
        block = np.ones(8 * MB, np.uint8)
        del block
    return (resident.resident_bytes() - before) / MB
resident.keep_large_blocks()
with resident.releasing_large_blocks():
    in_block = still_there()
after = resident.keeps_large_blocks()
resident.release_large_blocks()
with resident.releasing_large_blocks():
    pass
print(in_block, int(after), int(resident.keeps_large_blocks()), still_there())
"""
    )
    assert in_block < 4 and grown < 4
    assert after and not limited, "a block leaves the mode of the process as it was"


def test_what_is_available_is_no_more_than_the_machine_has():
    assert 0 < resident.available_bytes() <= resident.memory_bytes()
