"""Minibatches read to train on, to cache, and to score tensors on."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from builders import ArrayData
from elastictrainer import UsageError
from elastictrainer.training.feed import Feed
from elastictrainer.training.fit_data import StreamData
from elastictrainer.training.state import Progress
from log_lines import listen


def feed_of(data, *options, **progress):
    return run_of(data, *options, **progress)[1]


def run_of(data, ends_s=np.inf, spent_s=lambda: 0.0, **progress):
    """A run's progress and feed; `data`: a function of (epoch, first); None: it can be read once only."""
    clock = SimpleNamespace(steps_per_epoch=6, pass_ends_s=lambda: ends_s, spent_s=spent_s)
    state, data = Progress(**progress), StreamData(data, 6) if data else SimpleNamespace(repeatable=False)
    return state, Feed(clock, state, data, None, 3)


def test_a_pass_reads_the_epoch_going_on_or_another_one(tf):
    data = ArrayData(tf, steps=6)
    feed = feed_of(data.stream, epoch=2)
    assert feed.repeatable
    for read, epoch in ((feed.one_pass(6), 2), (feed.one_pass(6, epoch=1), 1)):
        for (x, _), (other, _) in zip(read, data.train(epoch)):
            np.testing.assert_array_equal(x, other)
    assert len(list(feed.one_pass(2))) == 2


def test_a_pass_ends_where_half_of_the_time_is_used(tf):
    seconds, said = iter(range(100)), listen()
    feed = feed_of(ArrayData(tf, steps=6).stream, 3.5, lambda: float(next(seconds)))
    assert len(list(feed.one_pass(6))) == 5
    assert said == ["the time allows 5 of 6 minibatches in this pass"]


def test_tensors_are_scored_on_the_first_minibatches_of_the_epoch(tf):
    data = ArrayData(tf, steps=6)
    feed = feed_of(data.stream, epoch=3)
    feed.peek()
    scored, expected = list(feed.probe(0)), list(data.train(3))[:3]
    for (x, _), (other, _) in zip(scored, expected):
        np.testing.assert_array_equal(x, other)


def test_data_that_can_be_read_once_is_scored_on_by_what_was_trained_on(tf):
    feed = feed_of(None)
    assert not feed.repeatable
    for x, y in ArrayData(tf, steps=5).train(0):
        feed.remember((x, (y, None)))
    assert len({id(x) for x, _ in itertools.islice(feed.endless_probe(0), 7)}) == 3, "they repeat"


def test_a_first_look_takes_nothing_away_and_a_stream_begins_where_the_run_is(tf):
    data = ArrayData(tf, steps=6)
    state, feed = run_of(data.stream)
    state.epoch = 1
    seen, (expected, _) = feed.peek(), next(data.train(1))
    read = feed.fetch()
    for x in (seen[0], read[0]):
        np.testing.assert_array_equal(x, expected)
    state.batch = 4
    (x, _), (expected, _) = feed.fetch(), list(data.train(1))[4]
    np.testing.assert_array_equal(x, expected)


def test_tensors_are_scored_on_as_many_examples_as_fit(tf):
    feed = feed_of(ArrayData(tf, steps=6).stream)
    feed.peek()
    feed.probe_examples = 3
    assert [(len(x), len(y), weights) for x, (y, weights) in feed.probe(0)] == [(3, 3, None)] * 3


def test_a_probe_that_gives_nothing_is_an_error_and_not_a_hang(tf):
    data = StreamData(ArrayData(tf, steps=6).stream, 6)
    feed = Feed(SimpleNamespace(steps_per_epoch=6), Progress(), data, lambda number: iter(()), 3)
    with pytest.raises(UsageError, match="probe gave no minibatch"):
        next(feed.probe(0))


@pytest.mark.parametrize("part", ["inputs", "labels", "sample weights"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_in_the_data_is_found(tf, part, value):
    def stream(epoch, first):
        x, y, w = np.ones((12, 2), np.float32), np.ones((12, 1), np.float32), np.ones(12, np.float32)
        {"inputs": x, "labels": y, "sample weights": w}[part][8] = value
        return tf.data.Dataset.from_tensor_slices((x, y, w)).batch(2).skip(first).repeat()

    expected = f"the {part} of minibatch 5 of epoch 3 hold NaN or infinite values"
    assert feed_of(stream, epoch=2).fault() == expected
    feed = feed_of(None, epoch=2, batch=4)
    assert feed.fault() == ""  # it cannot be read again
    for minibatch in list(feed_of(stream).one_pass(6))[3:5]:
        feed.suspect(minibatch)
    assert feed.fault() == expected
