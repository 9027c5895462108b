"""The warm-up of a step before it is measured."""

import pytest


class Step:
    """A compiled step that takes `step_s` by its own clock."""

    def __init__(self, step_s, runs):
        self.now_s, self.step_s, self.runs = 0.0, step_s, runs

    def __call__(self, x, y):
        self.now_s += self.step_s
        self.runs += 1
        return 0.0

    def clock(self):
        return self.now_s


@pytest.mark.parametrize(
    "step_s, ran_before, made", [(0.01, 0, 100), (0.01, 70, 30), (0.01, 100, 0), (0.2, 0, 25), (3.0, 0, 3)]
)
def test_a_step_is_warm_after_a_hundred_runs_or_five_seconds(tf, step_s, ran_before, made):
    from elastictrainer.profiler.capture import warm_up

    step = Step(step_s, ran_before)
    assert warm_up(step, (None, None), clock=step.clock) == made and step.runs == ran_before + made
