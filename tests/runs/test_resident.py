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


def test_large_blocks_go_back_at_once():
    (grown,) = _run(
        """
resident.give_back_freed_memory()
before = resident.resident_bytes()
for _ in range(4):
    block = np.ones(8 * MB, np.uint8)
    del block
print((resident.resident_bytes() - before) / MB)
"""
    )
    assert grown < 4


def test_what_a_large_step_took_is_given_back():
    """Also on x86 with oneDNN, where TensorFlow has a pool of its own for tensors."""
    pytest.importorskip("tensorflow")
    grown, kept = _run(
        """
resident.give_back_freed_memory()
import tensorflow as tf
tf.ones(1)
before = resident.resident_bytes()
large = tf.ones((2**25,))
grown = resident.resident_bytes() - before
del large
print(grown / MB, (resident.settled_bytes() - before) / MB)
"""
    )
    assert grown > 100
    assert kept < 32


def test_what_is_available_is_no_more_than_the_machine_has():
    assert 0 < resident.available_bytes() <= resident.memory_bytes()
