"""The budget in simulated runs of the real policy, and by itself. No TensorFlow."""

import json

import numpy as np
import pytest

from elastictrainer.selection.budget import Budget
from elastictrainer.selection.policy import FULL, PLAIN, RECORDING, REPLAY
from elastictrainer.selection.schedule import Schedule
from reuse_builders import reusable_chain
from simulation import chain, simulate


@pytest.mark.parametrize("rho", [0.4, 0.5, 0.7])
@pytest.mark.parametrize("slope, constant", [(1.0, 0.0), (1.0, 12.0), (1.3, 5.0), (0.8, 0.0), (1.5, 0.0)])
def test_the_requested_ratio_is_kept_on_a_device_unlike_the_profiled_one(rho, slope, constant):
    runs = [simulate(rho, slope, constant, seed=seed) for seed in range(6)]
    for ratios, _ in runs:
        assert ratios[-1] == pytest.approx(rho, abs=0.02)
    assert np.mean([policy.corrections for _, policy in runs]) <= 4


@pytest.mark.parametrize("slope, constant", [(1.0, 0.0), (1.0, 100.0), (1.5, 0.0)])
def test_where_little_is_to_be_saved_noise_does_not_steer(slope, constant):
    runs = [simulate(0.9, slope, constant, seed=seed) for seed in range(3)]
    for ratios, _ in runs:
        assert ratios[-1] == pytest.approx(0.9, abs=0.02)
    assert np.mean([policy.corrections for _, policy in runs]) <= 4


@pytest.mark.parametrize(
    "rho, options",
    [
        (0.5, {"constant": 12.0, "epochs": 12, "steps_per_epoch": 100}),
        (0.6, {"selected_takes": 1.2, "epochs": 12, "steps_per_epoch": 60}),
        (0.6, {"slope": 1.3, "constant": 5.0, "epochs": 8, "steps_per_epoch": 150}),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_short_runs_keep_the_ratio(rho, options, seed):
    ratios, _ = simulate(rho, selecting_s=0.6, compiling_s=0.2, seed=seed, **options)
    assert ratios[-1] == pytest.approx(rho, abs=0.02)


@pytest.mark.parametrize("rho", [0.5, 0.9])
def test_noisy_steps_keep_the_ratio(rho):
    runs = [simulate(rho, noise=0.1, seed=seed) for seed in range(3)]
    for ratios, _ in runs:
        assert ratios[-1] == pytest.approx(rho, abs=0.02)
    assert np.mean([policy.corrections for _, policy in runs]) <= 8


def test_steps_that_take_longer_after_a_change_of_graph_do_not_mislead():
    ratios, policy = simulate(0.5, after_change=3.0)
    assert ratios[-1] == pytest.approx(0.5, abs=0.02) and policy.corrections <= 4


@pytest.mark.parametrize("off", [0.8, 1.2])
def test_a_wrong_profile_is_corrected_within_the_first_interval(off):
    ratios, _ = simulate(0.6, selected_takes=off, compiling_s=0.2)
    # Without opening, correction and priming.
    first_interval = (1380 * ratios[1379] - 100 * ratios[99]) / 1280
    # What is left for the steps when selections and full steps are paid.
    assert first_interval == pytest.approx(0.57, abs=0.03)
    assert ratios[-1] == pytest.approx(0.6, abs=0.02)


@pytest.mark.parametrize(
    "load",
    [
        lambda step: 2.0 if step >= 4200 else 1.0,
        lambda step: 2.0 if step % 3000 < 1000 else 1.0,
        lambda step: 1 + step / 8400,
        lambda step: 2 - step / 8400,
    ],
    ids=["from half-way on", "now and then", "ever more", "ever less"],
)
def test_the_ratio_holds_when_the_device_changes_under_the_run(load):
    ratios, _ = simulate(0.5, constant=5.0, load=load)
    assert ratios[-1] == pytest.approx(0.5, abs=0.02)


def test_selections_that_cost_a_tenth_of_their_interval_are_paid_for():
    ratios, _ = simulate(0.6, epochs=24, steps_per_epoch=112, selecting_s=4.0)
    assert ratios[-1] == pytest.approx(0.6, abs=0.02)


def test_a_short_run_is_not_corrected_where_that_costs_more_than_it_moves():
    _, policy = simulate(0.5, constant=12.0, epochs=4, steps_per_epoch=40, selecting_s=0.2, compiling_s=2.0)
    assert policy.corrections == 0


def test_the_step_after_a_change_of_graph_does_not_count():
    budget = Budget(0.5, chain(), Schedule(1, 100, 1))
    budget.new_selection({PLAIN: 0.5})
    times = [(500.0, FULL), (100.0, FULL), (500.0, PLAIN), *[(50.0, PLAIN)] * 64]
    for step, (ms, kind) in enumerate(times):
        budget.record(step, ms, kind)
    assert budget.full_step_ms() == 100.0 and budget.measured_ratio() == 0.5


def test_without_a_measured_full_step_the_request_is_handed_on():
    timings = chain()
    for rho in (0.7, 0.9):
        budget = Budget(rho, timings, Schedule(1, 100, 1))
        assert budget.rho_for_selector(budget.target_ratio(0, 0.0)) == pytest.approx(rho)
    assert Budget(0.01, timings, Schedule(1, 100, 1)).rho_for_selector(0.01) == timings.rho_min


def test_full_training_is_counted_at_the_pace_around_each_step():
    budget = Budget(0.5, chain(), Schedule(10, 300, 4))
    for step in range(1200):
        if step % 300 < 4:
            budget.record(step, 100.0 if step < 600 else 200.0, FULL)
        else:
            budget.record(step, 50.0, PLAIN)
    assert budget.full_step_ms() == 200.0
    assert budget.full_training_ms(300) == pytest.approx(300 * 100.0)
    assert budget.full_training_ms(1200) == pytest.approx(600 * 100 + 600 * 200, rel=0.1)


def test_a_profile_is_to_be_renewed_when_two_reviews_in_a_row_find_it_wrong():
    budget = Budget(0.5, chain(), Schedule(10, 300, 4))
    for step in range(10):
        budget.record(step, 100.0, FULL)
    budget.new_selection({PLAIN: 0.5})
    asked = []
    for step in range(10, 900):
        full = budget.schedule.full_step_due(step)
        budget.record(step, 100.0 if full else 60.0, FULL if full else PLAIN)
        if not full and budget.review_due():
            asked.append(budget.review(step, 0.5, 0.0)[1])
    assert asked == [False, True, True]


def test_what_both_trainings_take_beside_the_steps_widens_the_budget_by_the_share_of_full_training():
    budget = Budget(0.6, chain(), Schedule(10, 300, 4))
    for step in range(30):
        budget.record(step, 100.0, FULL)
    left, full_left = 3000 - 30, budget.schedule.full_left(30)
    # 2 s of 10 went by beside the steps, and 8 more are to come; full training takes these 10 s as well.
    ratio = budget.target_ratio(30, 3.0 + 2.0, upcoming_s=8.0, shared_s=10.0)
    assert ratio == pytest.approx((0.6 * (300 + 10) - 13 - 0.1 * full_left) / (left - full_left) / 0.1)
    assert budget.target_ratio(30, 3.0 + 2.0, upcoming_s=8.0) < ratio < budget.target_ratio(30, 3.0)


def test_the_state_goes_through_json_and_back():
    budget = Budget(0.5, chain(), Schedule(10, 300, 4))
    budget.new_selection({PLAIN: 0.4})
    for step in range(90):
        budget.record(step, 100.0 if step < 20 else 47.0, FULL if step < 20 else PLAIN)
    budget.review(90, 0.5, 0.0)
    other = Budget(0.5, chain(), Schedule(10, 300, 4))
    other.restore(json.loads(json.dumps(budget.state())))
    assert other.state() == budget.state() and other.measured_ratio() == 0.47


class TestFrozenWorkDoneOnce:
    """Steps that record are dear, those that replay cheap; full steps come between intervals only."""

    @pytest.mark.parametrize("rho", [0.2, 0.25, 0.35, 0.5, 0.7])
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"recording_takes": 1.15},
            {"selected_takes": 1.1},
            {"load": lambda step: 1.4 if step > 4000 else 1.0},
        ],
        ids=["as predicted", "recording takes longer", "all steps take longer", "the device slows down"],
    )
    def test_the_requested_ratio_is_kept(self, rho, options):
        runs = [simulate(rho, timings=reusable_chain(chain()), reuse=True, seed=s, **options) for s in (0, 1)]
        for ratios, _ in runs:
            assert ratios[-1] == pytest.approx(rho, abs=0.02)
        assert np.mean([policy.corrections for _, policy in runs]) <= 4

    @pytest.mark.parametrize("selected_takes", [1.0, 1.14])
    @pytest.mark.parametrize("seed", [0, 1])
    def test_a_short_run_foresees_what_the_graph_of_a_selection_costs(self, selected_takes, seed):
        """Without that, its last selection is too dear, and what replaces it trains next to nothing."""
        costs = {"selecting_s": 5.7, "compiling_s": 1.5, "selected_takes": selected_takes}
        short = {"epochs": 10, "steps_per_epoch": 87, "seed": seed}
        ratios, policy = simulate(0.5, timings=reusable_chain(chain()), reuse=True, **short, **costs)
        assert ratios[-1] == pytest.approx(0.5, abs=0.02)
        sizes = [mask.sum() for mask in policy.masks]
        assert policy.corrections == 0 and max(sizes) <= 2 * min(sizes)

    @pytest.mark.parametrize("rho", [0.25, 0.5])
    def test_a_machine_that_is_slow_for_seconds_does_not_mislead(self, rho):
        """Full steps that all fall into such seconds would make full training seem a quarter longer."""
        off = []
        for seed in range(8):
            random, slow = np.random.default_rng(seed), np.ones(8400)
            for start in random.integers(0, 8400, 5):
                slow[start : start + 220] = 1.28
            options = {"timings": reusable_chain(chain()), "reuse": True, "seed": seed}
            ratios, _ = simulate(rho, load=slow.__getitem__, **options)
            off.append(ratios[-1] - rho)
        assert np.max(np.abs(off)) < 0.05 * rho

    def test_noise_makes_few_corrections_where_rho_is_small(self):
        """Each builds a graph and counts on what the next 300 steps will contradict."""
        options = {
            "timings": reusable_chain(chain()),
            "reuse": True,
            "wandering": 0.1,
            "recording_takes": 1.1,
        }
        runs = [simulate(rho, seed=seed, **options) for rho in (0.2, 0.25) for seed in range(4)]
        assert np.mean([policy.corrections for _, policy in runs]) <= 1.5

    def test_steps_that_take_longer_than_predicted_do_not_end_the_next_selection(self):
        """A quarter longer asks for a quarter less, and not for next to nothing."""
        budget = Budget(0.5, chain(), Schedule(12, 700, 4, reuse=True))
        budget.record_full(48, [100.0] * 12)
        budget.new_selection({RECORDING: 0.8, REPLAY: 0.63})
        for step in range(48, 48 + 2 * budget.WINDOW):
            budget.record(step, 0.63 * 1.25 * 100.0, REPLAY)
        assert budget.measured_ratio() == pytest.approx(0.63 * 1.25)
        assert budget.rho_for_selector(0.55, 0.1) == pytest.approx(0.55 / 1.25)

    def test_no_correction_trains_below_the_cut(self):
        _, policy = simulate(0.4, timings=reusable_chain(chain()), reuse=True, recording_takes=0.7)
        deepest = [np.flatnonzero(mask).min() for mask in policy.masks]
        assert policy.corrections
        assert all(mask.any() for mask in policy.masks)
        assert len(set(deepest)) <= policy.selections + policy.corrections
