"""The next step of a run: from the cache or from the data, and whether its time is that of others."""

from types import SimpleNamespace

import numpy as np
import pytest

from elastictrainer.steps.timing import CACHE_READ
from elastictrainer.training.progress import Progress
from elastictrainer.training.step_source import StepSource
from elastictrainer.training.stopwatch import FULL_TRACING, STEPS, TRACING, Stopwatch

ALL, SOME = np.ones(3, bool), np.array([False, True, True])


class Run:
    """A run at a step of an epoch, whose minibatches are numbers."""

    def __init__(self, batch=1, cached=False, unread=False, whole=True):
        self.asked, self.compiled = [], set()
        note = self.asked.append
        feed = SimpleNamespace(
            stop_prefetch=lambda: note("stop_prefetch"),
            fetch=lambda: (7.0, 1),
            is_whole=lambda minibatch: whole,
            remember=lambda minibatch: note("remember"),
            spec=("x", "y"),
        )
        cached_steps = SimpleNamespace(uses_cache=cached, unread=unread, step=lambda: 0.5)
        steps = SimpleNamespace(has=lambda mask: mask.tobytes() in self.compiled, get=self.get)
        state = SimpleNamespace(
            progress=Progress(batch=batch), watch=Stopwatch(lambda: 0.0), head_alone=False
        )
        self.source = StepSource(state, feed, cached_steps, steps)

    def get(self, mask):
        self.compiled.add(mask.tobytes())

        class Step:
            def trace(_, x, y):
                self.asked.append("trace")

            def __call__(_, x, y):
                return x * y

        return Step()


@pytest.mark.parametrize("mask, lap", [(ALL, FULL_TRACING), (SOME, TRACING)])
def test_the_first_step_of_a_graph_is_charged_to_it_and_not_timed(mask, lap):
    run = Run()
    first, second = run.source.next(mask), run.source.next(mask)
    assert (first.cached, first.lap, first.timed) == (False, lap, False)
    assert (second.cached, second.lap, second.timed) == (False, STEPS, True)
    assert first.train() == 7.0 and run.asked.count("trace") == 1


def test_a_smaller_minibatch_is_neither_timed_nor_scored_on():
    run = Run(whole=False)
    assert not any(run.source.next(SOME).timed for _ in range(2)) and "remember" not in run.asked


def test_a_cached_step_is_timed_but_for_the_first_of_its_cache_and_of_an_epoch():
    for batch, unread, timed in ((1, False, True), (1, True, False), (0, False, False)):
        run = Run(batch, cached=True, unread=unread)
        step = run.source.next(SOME)
        assert step.cached and step.timed == timed and step.train() == 0.5
        assert step.lap == (TRACING if unread else CACHE_READ)
        assert run.asked == ["stop_prefetch"]
