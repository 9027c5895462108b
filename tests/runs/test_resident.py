"""Resident memory: measured on this process."""

import numpy as np
import pytest

from elastictrainer.runs import resident

_MB = 2**20


def test_the_peak_counts_what_was_freed_since():
    if not resident.reset_peak() or resident.peak_bytes() is None:
        pytest.skip("this system does not tell the peak")
    before = resident.resident_bytes()
    np.ones(64 * _MB, np.uint8)
    assert resident.peak_bytes() - before > 60 * _MB
    resident.give_back()
    resident.reset_peak()
    assert resident.peak_bytes() - before < 32 * _MB


def test_a_system_that_does_not_tell_is_no_error(monkeypatch, tmp_path):
    monkeypatch.setattr(resident, "_PROCESS", tmp_path / "missing")
    assert resident.reset_peak() is False
    assert resident.peak_bytes() is None


def test_large_blocks_go_back_at_once_and_then_are_kept_as_usual():
    resident.keep_as_usual()
    assert resident.keep_nothing()
    assert not resident.keep_nothing(), "it does already"
    before = resident.resident_bytes()
    for _ in range(4):
        del_me = np.ones(8 * _MB, np.uint8)
        del del_me
    assert resident.resident_bytes() - before < 4 * _MB
    resident.keep_as_usual()


def test_what_is_available_is_no_more_than_the_machine_has():
    assert 0 < resident.available_bytes() <= resident.memory_bytes()
