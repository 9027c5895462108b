import numpy as np
import pytest

from elastictrainer.cache.cache_reader import CacheReader, order
from elastictrainer.cache.cache_storage import CacheStorage, Column

FULL = range(4, 101, 4)  # 25 minibatches of 4


def cached(*sizes):
    storage = CacheStorage([Column((), "int64")], sum(sizes))
    for size in sizes:
        storage.add([storage.rows + np.arange(size)])
    return storage


def test_an_epoch_has_every_example_once():
    rows = order([4, 8, 10], seed=1, epoch=2)
    assert [len(row) for row in rows] == [4, 4, 2]
    assert sorted(np.concatenate(rows)) == list(range(10))


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = [np.concatenate(order(FULL, seed, epoch)).tolist() for seed, epoch in [(0, 0), (0, 1), (1, 0)]]
    assert len({tuple(rows) for rows in orders}) == 3
    assert orders[0] == np.concatenate(order(FULL, 0, 0)).tolist()


def test_minibatches_come_as_ordered_whatever_was_read_ahead():
    reader = CacheReader(cached(4, 4, 2), seed=3)
    asked = [(5, 0), (5, 1), (5, 2), (6, 0), (6, 2), (5, 1)]
    for epoch, batch in asked:
        np.testing.assert_array_equal(reader.minibatch(epoch, batch)[0], order([4, 8, 10], 3, epoch)[batch])
    reader.close()


def test_a_short_cache_begins_anew():
    reader = CacheReader(cached(4), seed=0)
    np.testing.assert_array_equal(reader.minibatch(1, 0)[0], reader.minibatch(1, 1)[0])
    reader.close()


def test_order_without_a_seed_is_that_of_the_writing():
    assert [row.tolist() for row in order([2, 4, 5], None, 3)] == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("seed", [None, 0])
def test_minibatches_of_several_sizes_keep_their_sizes(seed):
    """Cut by the size of the first one, an epoch would have fewer, and begin again before its end."""
    reader = CacheReader(cached(4, 2, 4, 2), seed)
    rows = [reader.minibatch(1, batch)[0].tolist() for batch in range(4)]
    assert [len(row) for row in rows] == [4, 2, 4, 2]
    assert sorted(sum(rows, [])) == list(range(12))
    assert seed is not None or rows[1] == [4, 5]
    reader.close()
