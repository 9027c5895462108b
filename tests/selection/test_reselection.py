"""What is chosen from given scores, on a chain made by hand. No TensorFlow."""

from types import SimpleNamespace

import numpy as np
import pytest

from elastictrainer import TensorTimings, UsageError
from elastictrainer.selection.reselection import Reselector
from elastictrainer.selection.schedule import Plan
from elastictrainer.training.stopwatch import Stopwatch

CHAIN = TensorTimings.from_chain(list("abcd"), 10.0, [1, 1, 1, 1], [8, 8, 8, 8])  # a is nearest the input
PREVIOUS = np.array([False, True, False, True])


def choose(importance, rho, previous=None):
    pace = SimpleNamespace(timings=CHAIN, rho=rho)
    reselector = Reselector(
        lambda probe: np.array(importance, float), pace, Stopwatch(), 1, "dp", feedback=False
    )
    reselector.score([])
    mask, record = reselector.choose(0, previous)
    assert record["selected"] == np.flatnonzero(mask).tolist()
    assert not (record["kept_previous"] and record["over_budget"])
    return record["selected"], "kept" if record["kept_previous"] else "over budget" if record[
        "over_budget"
    ] else "fits"


def test_the_time_that_is_left_counts_what_is_to_come_and_what_full_training_takes_as_well():
    plan = Plan(5, 100, 2)  # selects before steps 25, 100 and 300
    asked = []
    pace = SimpleNamespace(plan=plan, target_ratio=lambda *given, **named: asked.append((given, named)))
    watch = Stopwatch(clock=lambda: 0.0)
    watch.seconds.update({"importance": 6.0, "steps": 3.0})
    Reselector(None, pace, watch, 1, "dp", feedback=True).target_ratio(25)
    assert asked.pop() == ((25, 9.0), {"upcoming_s": 2 * 6.0, "shared_s": 0.0})
    watch = Stopwatch(clock=lambda: 0.0)
    watch.seconds.update(
        {
            "loop": 3.0,
            "checkpoint": 1.0,
            "full_tracing": 5.0,
            "steps": 40.0,
            "importance": 6.0,
            "selection": 2.0,
            "tracing": 4.0,
        }
    )
    Reselector(None, pace, watch, 1, "dp", feedback=True).target_ratio(150)
    # Two of five epochs have begun, and two of three selections were made.
    assert plan.selection_steps == [25, 100, 300]
    assert asked == [((150, 61.0), {"upcoming_s": 12.0 / 2 + 6.0, "shared_s": 9.0 + 6.0})]


def test_what_fits_is_chosen():
    assert choose([1, 1, 2, 3], 1.0) == ([0, 1, 2, 3], "fits")
    assert choose([9, 1, 2, 3], 0.65) == ([2, 3], "fits")


@pytest.mark.parametrize("previous", [None, PREVIOUS])
def test_where_nothing_of_importance_fits_the_least_costly_of_it_is_chosen(previous):
    assert CHAIN.rho_min < 0.5 < CHAIN.step_time(np.array([False, False, True, False])) / CHAIN.full_ms
    assert choose([5, 1, 1, -1], 0.5, previous) == ([2], "over budget")


def test_without_any_importance_the_previous_selection_stays():
    assert choose([-1, 0, -2, -1], 0.8, PREVIOUS) == ([1, 3], "kept")
    with pytest.raises(UsageError, match="no tensor's update promises to lower the loss"):
        choose([-1, 0, -2, -1], 0.8)
