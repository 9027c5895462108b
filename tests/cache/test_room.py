"""The cut whose cache fits, on a step whose two cuts are made by hand."""

import shutil
from collections import namedtuple
from types import SimpleNamespace

import numpy as np
import pytest

from elastictrainer.cache.cache_storage import NotCacheable
from elastictrainer.cache.cut import Cut
from elastictrainer.cache.room import cut_that_fits
from elastictrainer.cache.settings import CacheSettings

BATCH, EXAMPLES = 4, 1000
Usage = namedtuple("Usage", "total used free")


class Step:
    """Two ops of 1 ms. Behind the first a row has 400 bytes of float16, behind both it has 2,000.

    A minibatch of the smaller one takes 0.0032 ms to read where a MB takes 1.
    """

    def __init__(self, tf):
        self.small, self.large = (
            SimpleNamespace(dtype=tf.float32, shape=tf.TensorShape((BATCH, width))) for width in (200, 1000)
        )
        self.ops = SimpleNamespace(operations=["first", "second"])

    def cut(self, op_cost, tensor_cost):
        """Find the cheaper of the two cuts, as `TracedStep.cut` does."""
        if tensor_cost(self.large) < op_cost("second") + tensor_cost(self.small):
            return Cut([self.large], set(), {0, 1})
        return Cut([self.small], {1}, {0})


def cut_of(step, memory, folder=None, ms_per_mb=1.0):
    settings = CacheSettings(memory=memory, folder=folder)
    return cut_that_fits(step, lambda op: 1.0, ms_per_mb, BATCH, EXAMPLES, settings)


def test_the_cheapest_cut_is_in_memory_where_it_fits_and_else_in_a_file(tf, tmp_path):
    step, place = Step(tf), tmp_path / "cache"
    for memory, folder in ((2_000_000, None), (1_999_999, place)):
        cut, found = cut_of(step, memory, place)
        assert cut.tensors == [step.large] and found == folder
    assert place.is_dir()


def test_a_cut_with_fewer_bytes_is_taken_where_the_cheapest_has_too_many(tf, tmp_path, monkeypatch):
    step = Step(tf)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(0, 0, 500_000))
    cut, found = cut_of(step, 0, tmp_path)
    assert cut.tensors == [step.small] and found == tmp_path
    cut, found = cut_of(step, 400_000, tmp_path)
    assert cut.tensors == [step.small] and found is None
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(0, 0, 440_000))  # a tenth stays free
    with pytest.raises(NotCacheable, match="0.0 GB fits neither"):
        cut_of(step, 0, tmp_path)


def test_a_folder_that_cannot_be_made_is_named(tf, tmp_path):
    (tmp_path / "a file").touch()
    with pytest.raises(NotCacheable, match="a file cannot hold 0.0 GB .File exists"):
        cut_of(Step(tf), 0, tmp_path / "a file")


@pytest.mark.parametrize("ms_per_mb", [1000.0, np.inf])
def test_nothing_is_cached_that_takes_as_long_to_read(tf, ms_per_mb):
    with pytest.raises(NotCacheable, match="take as long"):
        cut_of(Step(tf), 10**9, ms_per_mb=ms_per_mb)
