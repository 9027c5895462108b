"""Cached examples in memory or in a file, and the order in which they are read."""

import os

import numpy as np
import pytest

from elastictrainer.cache.storage import CacheError, CacheReader, CacheStorage, Column, order

COLUMNS = [Column((3, 2), "float16"), Column((), "int64"), Column((5,), "bool")]


def examples(count, seed=0):
    random = np.random.default_rng(seed)
    return [
        random.normal(size=(count, 3, 2)).astype("float16"),
        random.integers(0, 9, count),
        random.random((count, 5)) < 0.5,
    ]


def file_of(folder):
    """The descriptor of the cache's file, which has no name."""
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(folder)):
                return int(descriptor)
        except OSError:
            continue
    raise AssertionError("no file")


@pytest.fixture(params=["memory", "file"])
def folder(request, tmp_path):
    return tmp_path / "store" if request.param == "file" else None


def test_rows_come_back_in_any_order(folder):
    storage = CacheStorage(COLUMNS, 10, folder)
    parts = [examples(4, 1), examples(4, 2), examples(2, 3)]
    for part in parts:
        storage.add(part)
    rows = np.array([9, 0, 3, 3, 7])
    for column, read in enumerate(storage.read(rows)):
        whole = np.concatenate([part[column] for part in parts])
        assert read.dtype == whole.dtype
        np.testing.assert_array_equal(read, whole[rows])


def test_more_examples_than_there_is_room_for_and_others_are_refused(folder):
    storage = CacheStorage(COLUMNS, 5, folder)
    storage.add(examples(4))
    with pytest.raises(CacheError, match="more than 5 examples"):
        storage.add(examples(2))
    with pytest.raises(CacheError, match="changed"):
        storage.add([np.zeros((1, 3, 3), "float16"), *examples(1)[1:]])


def test_converted_rows_hold_the_same_in_wider_numbers(folder):
    storage = CacheStorage(COLUMNS, 4, folder)
    storage.add(examples(4))
    wider = storage.converted([Column((3, 2), "float32"), *COLUMNS[1:]], folder)
    assert wider.ends == storage.ends
    rows = np.arange(4)
    for narrow, wide in zip(storage.read(rows), wider.read(rows)):
        np.testing.assert_array_equal(narrow, wide)
    assert wider.read(rows)[0].dtype == np.float32


def test_a_file_has_no_name_and_a_shorter_one_is_noticed(tmp_path):
    storage = CacheStorage(COLUMNS, 4, tmp_path)
    storage.add(examples(4))
    assert not list(tmp_path.iterdir())
    os.ftruncate(file_of(tmp_path), storage.bytes - 1)
    with pytest.raises(CacheError, match="example 3"):
        storage.read(np.array([3]))


def test_a_folder_without_room_or_that_cannot_be_made_is_named_before_anything_is_written(tmp_path):
    with pytest.raises(CacheError, match=str(tmp_path)):
        CacheStorage([Column((2**50,), "uint8")], 1, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="file/store"):
        CacheStorage(COLUMNS, 1, tmp_path / "file" / "store")


FULL = range(4, 101, 4)  # 25 minibatches of 4


def cached(*sizes):
    storage = CacheStorage([Column((), "int64")], sum(sizes))
    for size in sizes:
        storage.add([storage.rows + np.arange(size)])
    return storage


def test_an_epoch_has_every_example_once_in_an_order_of_its_own():
    orders = [np.concatenate(order(FULL, seed, epoch)).tolist() for seed, epoch in [(0, 0), (0, 1), (1, 0)]]
    assert len({tuple(rows) for rows in orders}) == 3
    assert orders[0] == np.concatenate(order(FULL, 0, 0)).tolist()
    assert [sorted(rows) for rows in orders] == [list(range(100))] * 3


def test_minibatches_come_as_ordered_whatever_was_read_ahead():
    reader = CacheReader(cached(4, 4, 2), seed=3)
    asked = [(5, 0), (5, 1), (5, 2), (6, 0), (6, 2), (5, 1)]
    for epoch, batch in asked:
        np.testing.assert_array_equal(reader.minibatch(epoch, batch)[0], order([4, 8, 10], 3, epoch)[batch])
    reader.close()


def test_each_minibatch_is_read_once_ahead_of_the_next_epochs_first_one(monkeypatch):
    storage, asked = cached(4, 4, 2), []
    read = storage.read
    monkeypatch.setattr(storage, "read", lambda rows: asked.append(rows.tolist()) or read(rows))
    reader = CacheReader(storage, seed=3)
    for epoch in (1, 2):
        for batch in range(3):
            reader.minibatch(epoch, batch)
    reader.close()
    orders = [rows.tolist() for epoch in (1, 2, 3) for rows in order([4, 8, 10], 3, epoch)]
    assert asked == orders[:7]


def test_a_short_cache_begins_anew():
    reader = CacheReader(cached(4), seed=0)
    np.testing.assert_array_equal(reader.minibatch(1, 0)[0], reader.minibatch(1, 1)[0])
    reader.close()


@pytest.mark.parametrize("seed", [None, 0])
def test_minibatches_of_several_sizes_keep_their_sizes(seed):
    """Cut by the size of the first one, an epoch would have fewer, and begin again before its end."""
    reader = CacheReader(cached(4, 2, 4, 2), seed)
    rows = [reader.minibatch(1, batch)[0].tolist() for batch in range(4)]
    assert [len(row) for row in rows] == [4, 2, 4, 2]
    assert sorted(sum(rows, [])) == list(range(12))
    assert seed is not None or sum(rows, []) == list(range(12)), "as they were written"
    reader.close()
