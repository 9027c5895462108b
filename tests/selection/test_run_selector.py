"""The selector of a run, on a chain made by hand. No TensorFlow."""

import json

import numpy as np
import pytest

from cache_builders import reusable_chain
from elastictrainer import Profile
from elastictrainer.selection.run_selector import Selector
from elastictrainer.selection.selector import (
    LATE_LAYERS,
    OVER_BUDGET,
    UNCHANGED,
    freeze_below,
    select_with_fallback,
)
from log_lines import listen

CHAIN = Profile.from_chain(list("abcd"), 10.0, [1, 1, 1, 1], [8, 8, 8, 8])  # a is nearest the input
PREVIOUS = np.array([False, True, False, True])


class Run:
    """A selector on `profile`, and what it logged, said and froze; None: it has no scores."""

    def __init__(self, profile, importances, solver="dp"):
        self.records, self.said, self.frozen = [], listen(), []
        scores = iter(importances or [])
        self.selector = Selector(
            np.ones(len(profile), bool),
            profile,
            solver,
            None if importances is None else lambda interval: np.array(next(scores), float),
            on_freeze=self.frozen.append,
            log=self.records.append,
        )

    def begin(self, step, share, cached, last_layers=False):
        self.selector.score(last_layers)
        mask = self.selector.begin(share, cached)
        self.selector.settle(step)
        return mask


@pytest.mark.parametrize(
    "importance, rho, previous, selected, exception",
    [
        ([1, 1, 2, 3], 1.0, None, [0, 1, 2, 3], None),
        ([9, 1, 2, 3], 0.65, None, [2, 3], None),
        # All tensors of positive importance exceed the budget: the cheapest of them.
        ([5, 1, 1, -1], 0.5, None, [2], OVER_BUDGET),
        ([5, 1, 1, -1], 0.5, PREVIOUS, [2], OVER_BUDGET),
        ([-1, 0, -2, -1], 0.8, PREVIOUS, [1, 3], UNCHANGED),
        ([-1, 0, -2, -1], 0.65, None, [2, 3], LATE_LAYERS),
    ],
)
def test_choose_falls_back_to_the_cheapest_or_the_previous(importance, rho, previous, selected, exception):
    mask, what = select_with_fallback(CHAIN, np.array(importance, float), rho, previous=previous)
    assert (np.flatnonzero(mask).tolist(), what) == (selected, exception)


def test_each_interval_selects_by_scores_of_its_own_and_lets_the_others_rest():
    run = Run(CHAIN, [[9, 1, 2, 3], [1, 1, 1, 9]])
    assert run.selector.mask.all() and run.selector.interval == 0
    first = run.begin(0, 0.65, cached=False)
    assert np.flatnonzero(first).tolist() == [2, 3]
    second = run.begin(40, 0.45, cached=False)
    assert np.flatnonzero(second).tolist() == [3] and run.selector.interval == 2
    np.testing.assert_array_equal(run.frozen, [first, second])
    np.testing.assert_array_equal(run.selector.masks, [first, second])
    assert run.selector.selects
    (record, _) = json.loads(json.dumps(run.records, allow_nan=False))
    keys = "step selected rho_target predicted_ms predicted_ratio importance importance_selected"
    keys += " importance_positive kept_previous over_budget late_layers cached"
    assert set(record) == set(keys.split())
    assert record["selected"] == [2, 3] and record["rho_target"] == 0.65 and not record["cached"]
    assert run.said[0].startswith("selected 2 of 4 ")


def test_a_cached_interval_selects_by_the_time_of_cached_steps():
    profile = reusable_chain(CHAIN)
    cached = Run(profile, [[1, 1, 1, 1]]).begin(0, 0.6, cached=True)
    plain = Run(profile, [[1, 1, 1, 1]]).begin(0, 0.6, cached=False)
    assert cached.sum() > plain.sum()
    assert profile.with_cache.step_time(cached) <= 0.6 * profile.full_ms < profile.step_time(cached)


def test_without_cache_selects_again_by_the_same_scores():
    profile = reusable_chain(CHAIN)
    run = Run(profile, [[1, 1, 1, 1]])
    run.selector.score()
    cached = run.selector.begin(0.6, cached=True)
    run.selector.select(0.6, cached=False)
    plain = run.selector.mask
    run.selector.settle(0)
    assert plain.sum() < cached.sum() and len(run.selector.masks) == 1 and run.selector.interval == 1
    assert [record["cached"] for record in run.records] == [False]


def test_a_target_below_rho_min_selects_the_cheapest_tensor():
    run = Run(CHAIN, [[1, 1, 1, 1]])
    assert np.flatnonzero(run.begin(0, -0.3, cached=False)).tolist() == [3]
    assert run.records[0]["rho_target"] == pytest.approx(CHAIN.rho_min)


def test_a_selection_that_takes_more_than_asked_for_and_one_that_stays_say_so():
    run = Run(CHAIN, [[5, 1, 1, -1], [-1, -1, -1, -1]])
    first = run.begin(0, 0.5, cached=False)
    second = run.begin(40, 0.5, cached=False)
    assert "budget of 0.500" in run.said[0] and run.records[0]["over_budget"]
    assert (first == second).all() and "as before" in run.said[1] and "%" not in run.said[1]
    assert run.records[1]["kept_previous"]


def test_a_restored_selector_goes_on_where_it_was():
    before, after = Run(CHAIN, [[9, 1, 2, 3]]), Run(CHAIN, [])
    before.begin(0, 0.65, cached=False)
    after.selector.restore(json.loads(json.dumps(before.selector.state(), allow_nan=False)))
    assert after.selector.state() == before.selector.state()
    assert (after.selector.mask == before.selector.mask).all() and after.selector.interval == 1


@pytest.mark.parametrize("importances, last_layers", [(None, False), ([], True)])
def test_without_scores_the_last_layers_train_and_nothing_is_said_of_importance(importances, last_layers):
    solver = freeze_below if importances is None else "dp"
    run = Run(CHAIN, importances, solver)
    assert np.flatnonzero(run.begin(0, 0.7, False, last_layers)).tolist() == [2, 3]
    assert not any("importance" in key for key in run.records[0]) and "importance" not in run.said[0]
    assert run.selector.state()["importance"] is None


def test_without_a_solver_the_mask_stays_and_figures_are_logged_at_every_interval_but_the_first():
    records, mask = [], np.array([True, False])
    selector = Selector(mask, at_interval=lambda: {"pruned": 3}, log=records.append)
    for step in (0, 10, 20):
        selector.score()
        assert selector.begin(1.0, cached=False) is mask and selector.select(1.0, cached=False) is mask
        selector.settle(step)
        selector.settle(step, again=True)  # where the interval turned out not to be cached
    assert records == [{"step": 10, "pruned": 3}, {"step": 20, "pruned": 3}]
    assert not selector.selects and selector.masks == [] and selector.interval == 3
    restored = Selector(mask)
    restored.restore(json.loads(json.dumps(selector.state())))
    assert restored.interval == 3 and (restored.mask == mask).all()
