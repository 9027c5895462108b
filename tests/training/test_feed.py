"""Minibatches kept to score tensors on, also in a run that is gone on with."""

from types import SimpleNamespace

import numpy as np

from builders import ArrayData
from elastictrainer.training.feed import Feed
from elastictrainer.training.state import Progress


def feed_of(scored_on, epoch=0, batch=0, step=0):
    progress = Progress(epoch=epoch, batch=batch, step=step)
    return Feed(SimpleNamespace(progress=progress, scored_on=scored_on, steps_per_epoch=6), None, 3)


def test_a_run_that_goes_on_scores_on_the_minibatches_that_it_had_kept(tf):
    """Its newest are not the last before the checkpoint where epochs were replayed in between."""
    data = ArrayData(tf, steps=6)
    before = feed_of([])
    for batch in range(5):
        before._run_state.progress.batch = batch
        before.keep(before.fetch(iter(data.stream(0, batch))))
    scored_on = before._run_state.scored_on
    assert scored_on == [[0, 2], [0, 3], [0, 4]]
    after = feed_of([], epoch=2, batch=1, step=13)
    after.keep(after.fetch(iter(data.stream(0, 0))))  # the first of the run, by which it is built
    after._run_state.scored_on = list(scored_on)
    after.read_again(data.stream, 0)
    for (x, _), (other, _) in zip(before.probe(0), after.probe(0)):
        np.testing.assert_array_equal(x, other)
    assert len(list(after.probe(0))) == 3
