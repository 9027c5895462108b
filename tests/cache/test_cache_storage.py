import os

import numpy as np
import pytest

from elastictrainer.cache.cache_storage import CacheError, CacheStorage, Column

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


def test_more_examples_than_there_is_room_for_are_refused(folder):
    storage = CacheStorage(COLUMNS, 5, folder)
    storage.add(examples(4))
    with pytest.raises(CacheError, match="more than 5 examples"):
        storage.add(examples(2))


def test_an_example_of_another_shape_is_refused(folder):
    storage = CacheStorage([Column((3,), "float32")], 4, folder)
    with pytest.raises(CacheError, match="changed"):
        storage.add([np.zeros((2, 4), "float32")])


def test_converted_rows_hold_the_same_in_wider_numbers(folder):
    storage = CacheStorage(COLUMNS, 4, folder)
    storage.add(examples(4))
    wider = storage.converted([Column((3, 2), "float32"), *COLUMNS[1:]])
    assert wider.ends == storage.ends
    rows = np.arange(4)
    for narrow, wide in zip(storage.read(rows), wider.read(rows)):
        np.testing.assert_array_equal(narrow, wide)
    assert wider.read(rows)[0].dtype == np.float32


def test_a_closed_storage_leaves_nothing_in_its_folder(tmp_path):
    storage = CacheStorage(COLUMNS, 4, tmp_path)
    storage.add(examples(4))
    assert not list(tmp_path.iterdir())


def test_a_shorter_file_is_noticed(tmp_path):
    storage = CacheStorage(COLUMNS, 4, tmp_path)
    storage.add(examples(4))
    os.ftruncate(file_of(tmp_path), storage.bytes - 1)
    with pytest.raises(CacheError, match="example 3"):
        storage.read(np.array([3]))


def test_a_disk_without_room_is_noticed_before_anything_is_written(tmp_path):
    with pytest.raises(CacheError, match=str(tmp_path)):
        CacheStorage([Column((2**50,), "uint8")], 1, tmp_path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="file/store"):
        CacheStorage(COLUMNS, 1, tmp_path / "file" / "store")
