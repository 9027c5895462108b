"""The policy that selects, on a chain made by hand and with simulated times. No TensorFlow."""

import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from elastictrainer import TensorTimings, UsageError
from elastictrainer.selection.elastic import ElasticPolicy
from elastictrainer.selection.schedule import Schedule
from elastictrainer.selection.selector import KEPT, OVER_BUDGET, choose
from simulation import FakeClock, FakeRenewal, SimulatedRun, chain

CHAIN = TensorTimings.from_chain(list("abcd"), 10.0, [1, 1, 1, 1], [8, 8, 8, 8])  # a is nearest the input
PREVIOUS = np.array([False, True, False, True])


@pytest.mark.parametrize(
    "importance, rho, previous, selected, exception",
    [
        ([1, 1, 2, 3], 1.0, None, [0, 1, 2, 3], None),
        ([9, 1, 2, 3], 0.65, None, [2, 3], None),
        # All tensors of positive importance exceed the budget: the cheapest of them.
        ([5, 1, 1, -1], 0.5, None, [2], OVER_BUDGET),
        ([5, 1, 1, -1], 0.5, PREVIOUS, [2], OVER_BUDGET),
        ([-1, 0, -2, -1], 0.8, PREVIOUS, [1, 3], KEPT),
    ],
)
def test_what_is_chosen_from_given_scores(importance, rho, previous, selected, exception):
    mask, what = choose(CHAIN, np.array(importance, float), rho, previous=previous)
    assert (np.flatnonzero(mask).tolist(), what) == (selected, exception)


def test_the_least_costly_tensor_of_importance_may_take_more_than_asked_for():
    assert CHAIN.rho_min < 0.5 < CHAIN.step_time(np.array([False, False, True, False])) / CHAIN.full_ms


def test_a_first_selection_without_any_importance_is_an_error():
    with pytest.raises(UsageError, match="no tensor's update promises to lower the loss"):
        choose(CHAIN, np.array([-1.0, 0.0, -2.0, -1.0]), 0.8)


def test_the_time_that_is_left_counts_what_is_to_come_and_what_full_training_takes_as_well():
    schedule = Schedule(5, 100, 2)
    assert schedule.selection_steps == [25, 100, 300]
    asked = []

    def target_ratio(*given, **named):
        asked.append((given, named))
        return 0.5

    budget = SimpleNamespace(
        schedule=schedule, timings=CHAIN, target_ratio=target_ratio, full_step_ms=lambda: 100.0
    )
    ElasticPolicy(budget, None, FakeClock(importance=6.0, steps=3.0)).target_ratio(25)
    assert asked.pop() == ((25, 9.0), {"upcoming_s": 2 * 6.0, "shared_s": 0.0})
    clock = FakeClock(
        loop=3.0, checkpoint=1.0, full_tracing=5.0, steps=40.0, importance=6.0, selection=2.0, tracing=4.0
    )
    ElasticPolicy(budget, None, clock).target_ratio(150)
    # Two of five epochs have begun, and two of three selections were made.
    assert asked.pop() == ((150, 61.0), {"upcoming_s": 12.0 / 2 + 6.0, "shared_s": 9.0 + 6.0})
    budget.schedule = Schedule(5, 100, 2, reuse=True)
    ElasticPolicy(budget, None, FakeClock(steps=3.0)).target_ratio(25)
    # Before steps 200 and 300 three full ones are timed, and one comes before them.
    assert asked.pop() == ((25, 3.0), {"upcoming_s": pytest.approx(2 * 0.4), "shared_s": 0.0})


def test_full_steps_train_every_tensor_and_momentum_goes_when_they_end():
    run = SimulatedRun(chain(40), 100.0, epochs=5, steps_per_epoch=300, feedback=False).go()
    full = np.array([mask.all() for mask in run.masks])
    assert full.tolist() == [run.schedule.full_step_due(step) for step in range(run.schedule.steps)]
    assert run.rested == (np.flatnonzero(full[:-1] & ~full[1:]) + 1).tolist()
    assert [record["step"] for record in run.records] == run.schedule.selection_steps
    assert run.policy.selections == 3 and run.policy.corrections == 0 and run.policy.selects


def test_the_record_of_a_selection_has_the_keys_of_the_log():
    run = SimulatedRun(chain(40), 100.0).go(60)
    (record,) = json.loads(json.dumps(run.records, allow_nan=False))
    assert set(record) == {
        *("step", "selected", "rho_target", "rho_selector", "predicted_ms", "predicted_ratio", "importance"),
        *("importance_selected", "importance_positive", "kept_previous", "over_budget", "corrected"),
    }
    assert record["selected"] == np.flatnonzero(run.policy.mask).tolist() and not record["corrected"]
    assert run.said[0].startswith(f"selected {len(record['selected'])} of 40 tensors, predicted 0.")


def test_a_selection_that_exceeds_its_budget_is_corrected_by_the_same_scores():
    run = SimulatedRun(
        chain(40), 100.0, 80.0, epochs=1, steps_per_epoch=1500, rho=0.6, reprofile="never"
    ).go()
    first, *corrections = run.records
    assert not first["corrected"] and corrections and all(record["corrected"] for record in corrections)
    assert (run.policy.selections, run.policy.corrections) == (1, len(corrections))
    assert all(record["importance"] == first["importance"] for record in corrections)
    assert corrections[0]["rho_selector"] < first["rho_selector"]
    assert any(
        "corrected to" in line and line.startswith("measured 0.800 of a full step") for line in run.said
    )
    assert {record["step"] for record in corrections} <= set(run.rested)  # momentum goes at once


def test_without_feedback_the_request_goes_to_the_selector():
    run = SimulatedRun(chain(40), 100.0, 80.0, feedback=False).go()
    assert run.policy.corrections == 0
    assert all(record["rho_selector"] == record["rho_target"] == 0.5 for record in run.records)


def test_a_selection_that_takes_more_than_asked_for_says_so():
    run = SimulatedRun(
        CHAIN, 46.0, 23.0, steps_per_epoch=20, feedback=False, score=lambda step: np.array([5.0, 1, 1, -1])
    )
    run.go()
    assert all("over the budget of 0.500" in line for line in run.said)
    assert all(record["over_budget"] and not record["kept_previous"] for record in run.records)


def test_where_importance_fades_the_selection_stays():
    run = SimulatedRun(
        chain(40),
        100.0,
        epochs=3,
        interval=1,
        score=lambda step: np.full(40, -1.0 if step > 100 else 1.0),
    ).go()
    assert [record["kept_previous"] for record in run.records] == [False, True, True]
    assert (run.policy.masks[0] == run.policy.masks[2]).all() and "as before: no tensor" in run.said[-1]


@pytest.mark.parametrize("at", [30, 400, 897, 1000])
def test_a_restored_run_goes_on_as_if_it_had_not_stopped(at):
    def made():
        return SimulatedRun(
            chain(40),
            100.0,
            80.0,
            epochs=3,
            steps_per_epoch=600,
            interval=1,
            rho=0.6,
            renewal=FakeRenewal(chain(40)),
        )

    uninterrupted = made().go()
    before, after = made().go(at), made()
    after.policy.restore(json.loads(json.dumps(before.policy.state(), allow_nan=False)))
    after.masks[:], after.records[:] = before.masks, before.records
    after.clock.seconds.update(before.clock.seconds)
    assert after.policy.state() == before.policy.state()
    after.go()
    np.testing.assert_array_equal(after.masks, uninterrupted.masks)
    assert after.records == uninterrupted.records
    np.testing.assert_array_equal(after.policy.masks, uninterrupted.policy.masks)
    assert (after.policy.selections, after.policy.corrections) == (
        uninterrupted.policy.selections,
        uninterrupted.policy.corrections,
    )
    assert after.policy.full_training_ms(1800) == uninterrupted.policy.full_training_ms(1800)


def test_policies_need_no_tensorflow():
    modules = ("policy", "clock", "budget", "schedule", "elastic", "fixed", "selector", "knapsack")
    imports = "; ".join(f"import elastictrainer.selection.{name}" for name in modules)
    code = f"import sys; {imports}; assert not {{'tensorflow', 'keras'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
