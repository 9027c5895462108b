"""Selections timed in turn, on a simulated machine."""

import numpy as np
import pytest

from elastictrainer.profiler.interleaved import ratios_to_full
from elastictrainer.steps.timing import SETTLED

FULL, CHOSEN = np.array([True, True]), np.array([True, False])


class Warm:
    """A step that has run often enough."""

    runs = SETTLED

    def __init__(self, mask):
        self.mask = mask


class Machine:
    """A cache of steps, and their clock: a step takes what `ms_of(round, mask)` says.

    Before the first round one full step is timed, to see how long it takes.
    """

    def __init__(self, ms_of):
        self.now_s, self.turns = 0.0, -1
        self.ms_of = ms_of

    def ratios(self, rounds, **options):
        self.turns = -1
        options.update(seconds=0.0, rounds=rounds, timed=self.step_ms)
        return ratios_to_full(self.get, [CHOSEN], FULL, None, **options)

    def get(self, mask):
        return Warm(mask)

    @property
    def round(self):
        return max(self.turns, 0) // 2

    def step_ms(self, step, batch, count):
        took = np.full(count, float(self.ms_of(self.round, step.mask)))
        self.now_s += 1e-3 * took.sum()
        self.turns += 1
        return took


@pytest.fixture(autouse=True)
def needs_tensorflow(tf):
    """Importing the module does."""


def test_ratios_to_full_runs_the_rounds_asked_for():
    machine = Machine(lambda k, mask: 100 if mask.all() else 40)
    assert machine.ratios(3) == pytest.approx([0.4]) and machine.round == 3


def test_a_caller_may_choose_the_rounds_that_count():
    machine = Machine(lambda k, mask: 100 if mask.all() else 80 if k < 5 else 40)

    def last(measure, rounds):
        return [measure() for _ in range(8)][-rounds:]

    assert machine.ratios(3, repeat=last) == pytest.approx([0.4]) and machine.round == 8


def test_a_few_fast_steps_and_many_slow_ones_do_not_count():
    def ms_of(k, mask):  # now the one turn is lucky or disturbed, now the other
        full_ms = 70 if k % 12 == 3 else 200 if k % 12 in (1, 4, 7, 10) else 100
        return full_ms if mask.all() else 0.4 * (60 if k % 12 == 8 else 150 if k % 12 in (0, 4, 6) else 100)

    assert Machine(ms_of).ratios(12) == pytest.approx([0.4])


def test_a_speed_that_changes_within_seconds_slows_both_alike():
    # Slower by two fifths in every other stretch of 2.3 s: four of these steps in a row would be all in one
    # stretch.
    def ms_of(k, mask):
        return (500 if mask.all() else 200) * (1.4 if machine.now_s % 4.6 > 2.3 else 1.0)

    machine = Machine(ms_of)
    ratios = [machine.ratios(6)[0] for _ in range(12)]
    assert ratios == pytest.approx([0.4] * 12, rel=0.12) and np.mean(ratios) == pytest.approx(0.4, rel=0.03)
