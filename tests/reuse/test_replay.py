import numpy as np

from elastictrainer.reuse.recording import Column, Recording
from elastictrainer.reuse.replay import Replay, order


def recorded(count):
    recording = Recording([Column((), "int64")], count)
    recording.add([np.arange(count)])
    return recording


def test_an_epoch_has_every_example_once():
    rows = order(10, 4, seed=1, epoch=2)
    assert [len(row) for row in rows] == [4, 4, 2]
    assert sorted(np.concatenate(rows)) == list(range(10))


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = [np.concatenate(order(100, 4, seed, epoch)).tolist() for seed, epoch in [(0, 0), (0, 1), (1, 0)]]
    assert len({tuple(rows) for rows in orders}) == 3
    assert orders[0] == np.concatenate(order(100, 4, 0, 0)).tolist()


def test_minibatches_come_as_ordered_whatever_was_read_ahead():
    replay = Replay(recorded(10), 4, seed=3)
    asked = [(5, 0), (5, 1), (5, 2), (6, 0), (6, 2), (5, 1)]
    for epoch, batch in asked:
        np.testing.assert_array_equal(replay.minibatch(epoch, batch)[0], order(10, 4, 3, epoch)[batch])
    replay.close()


def test_a_short_recording_begins_anew():
    replay = Replay(recorded(4), 4, seed=0)
    np.testing.assert_array_equal(replay.minibatch(1, 0)[0], replay.minibatch(1, 1)[0])
    replay.close()


def test_without_a_seed_the_order_is_that_of_the_recording():
    assert [row.tolist() for row in order(5, 2, None, 3)] == [[0, 1], [2, 3], [4]]
