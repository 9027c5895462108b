"""Timing in turn, on a clock and a host made by hand."""

from time import perf_counter as in_seconds

import numpy as np
import pytest

FULL, CHOSEN = np.array([True, True]), np.array([True, False])


class Machine:
    """Steps that take what `ms_of(round, mask)` says, while the host takes `stolen(round)` of a core.

    A single step, how long one takes, is made before the first round.
    """

    def __init__(self, monkeypatch, ms_of, stolen):
        from elastictrainer.profiler import interleaved

        self.now_s, self.stolen_s, self.turns = 0.0, 0.0, -1
        self.ms_of, self.stolen = ms_of, stolen
        self.ratios = lambda rounds, **more: interleaved.ratios_to_full(
            self, [CHOSEN], FULL, None, seconds=0.0, rounds=rounds, **more
        )
        monkeypatch.setattr(interleaved, "step_ms", self.step_ms)
        monkeypatch.setattr(interleaved, "warm_up", lambda mask, batch, runs: None)
        monkeypatch.setattr(interleaved, "stolen_seconds", lambda: self.stolen_s)
        monkeypatch.setattr(interleaved.time, "perf_counter", lambda: self.now_s)

    def get(self, mask):
        return mask

    @property
    def round(self):
        return max(self.turns, 0) // 2

    def step_ms(self, mask, batch, count):
        in_a_turn = self.turns >= 0
        took = np.full(count, float(self.ms_of(self.round, mask)))
        self.now_s += 1e-3 * took.sum()
        if in_a_turn:
            self.stolen_s += 1e-3 * took.sum() * self.stolen(self.round)
        self.turns += 1
        return took


def test_as_many_rounds_as_asked_for_on_a_machine_of_its_own(monkeypatch, tf):
    machine = Machine(monkeypatch, lambda k, mask: 100 if mask.all() else 40, lambda k: 0.0)
    assert machine.ratios(3) == pytest.approx([0.4]) and machine.round == 3


def test_rounds_that_the_host_disturbed_do_not_count(monkeypatch, tf):
    machine = Machine(
        monkeypatch, lambda k, mask: 100 if mask.all() else 80 if k < 5 else 40, lambda k: 0.2 * (k < 5)
    )
    assert machine.ratios(3) == pytest.approx([0.4]) and machine.round == 8


def test_a_host_that_never_rests_is_not_waited_for(monkeypatch, tf):
    # The rounds in which it took least count: the last three of nine.
    machine = Machine(
        monkeypatch, lambda k, mask: 100 if mask.all() else 80 - 5 * k, lambda k: 0.5 - 0.05 * k
    )
    assert machine.ratios(3) == pytest.approx([0.4], abs=0.02) and machine.round == 9


def test_a_few_fast_steps_and_many_slow_ones_do_not_count(monkeypatch, tf):
    def ms_of(k, mask):  # now the one turn is lucky or disturbed, now the other
        full_ms = 70 if k % 12 == 3 else 200 if k % 12 in (1, 4, 7, 10) else 100
        return full_ms if mask.all() else 0.4 * (60 if k % 12 == 8 else 150 if k % 12 in (0, 4, 6) else 100)

    assert Machine(monkeypatch, ms_of, lambda k: 0.0).ratios(12) == pytest.approx([0.4])


def test_a_speed_that_changes_within_seconds_slows_both_alike(monkeypatch, tf):
    # Slower by two fifths in every other stretch of 2.3 s: four of these steps in a row would be all in one, or all in the other.
    def ms_of(k, mask):
        return (500 if mask.all() else 200) * (1.4 if machine.now_s % 4.6 > 2.3 else 1.0)

    machine = Machine(monkeypatch, ms_of, lambda k: 0.0)
    ratios = []
    for _ in range(12):
        machine.turns = -1
        ratios.append(machine.ratios(6)[0])
    assert ratios == pytest.approx([0.4] * 12, rel=0.12) and np.mean(ratios) == pytest.approx(0.4, rel=0.03)


def test_a_caller_may_have_more_patience(monkeypatch, tf):
    machine = Machine(
        monkeypatch, lambda k, mask: 100 if mask.all() else 80 if k < 25 else 40, lambda k: 0.2 * (k < 25)
    )
    assert machine.ratios(1, patience=30) == pytest.approx([0.4]) and machine.round == 26


def test_a_profile_says_what_the_host_took_meanwhile(monkeypatch, tf):
    from builders import ArrayData, small_network
    from elastictrainer import profile_model
    from elastictrainer.cli.profile_table import table
    from elastictrainer.runs import environment
    from elastictrainer.steps.objective import classification_loss

    assert environment.stolen_seconds() >= 0.0
    lines = []
    for share in (0.0, 0.5):  # of one of two cores
        clock = environment.psutil.cpu_times()._replace  # the operating system's, with another `steal`
        start = in_seconds()
        monkeypatch.setattr(
            environment.psutil, "cpu_times", lambda: clock(steal=share * (in_seconds() - start))
        )
        monkeypatch.setattr("os.cpu_count", lambda: 2)
        timings = profile_model(
            small_network(tf), classification_loss(), next(ArrayData(tf).train(0)), warmup=1, steps=2
        )
        monkeypatch.undo()
        assert timings.metadata["stolen"] == pytest.approx(share / 2, abs=0.01)
        lines.append([line for line in table(timings).splitlines() if line.startswith("stolen")])
    assert lines[0] == [] and len(lines[1]) == 1 and "profile again" in lines[1][0]


@pytest.mark.parametrize(
    "step_s, ran_before, made", [(0.01, 0, 100), (0.01, 70, 30), (0.01, 100, 0), (0.2, 0, 25), (3.0, 0, 3)]
)
def test_a_step_is_warm_after_a_hundred_runs_or_five_seconds(monkeypatch, tf, step_s, ran_before, made):
    from elastictrainer.profiler import capture

    now_s = 0.0

    class Step:
        runs = ran_before

        def __call__(self, x, y):
            nonlocal now_s
            now_s += step_s
            self.runs += 1
            return 0.0

    monkeypatch.setattr(capture.time, "perf_counter", lambda: now_s)
    step = Step()
    assert capture.warm_up(step, (None, None)) == made and step.runs == ran_before + made
