"""The planner of a run, by a profile made by hand. No TensorFlow."""

import re
from dataclasses import replace

import numpy as np
import pytest

from cache_builders import reusable_chain
from elastictrainer import Profile, UsageError
from elastictrainer.selection.schemes import Elastic, FreezeBelow, Scheme
from elastictrainer.training.planner import GRAPH_STEPS, HeadWork, Planner, Stage, require_reachable

# A full step takes 100 ms, its forward pass 30: a pass over 1,000 minibatches 30 s. A selection takes 50 full
# steps, or 15 without scores: 5 or 1.5 s.
CHAIN = reusable_chain(Profile.from_chain(list("abcd"), 30.0, [10] * 4, [7.5] * 4))
WRITING_S = 30.0 + float(np.median(CHAIN.cache.cache_write_ms))
SHARE = {"ends_by": "share"}
NO_HEAD = {"head_work": None}
FULL, UNSCORED = {"scheme": Scheme()}, {"scheme": FreezeBelow()}
LATE = {"intervals": 1}


def planner_of(seconds=None, **changes):
    """Of a run with a head to solve, on cached activations, by the clock.

    It begins: it has `seconds` in all, keeps 5 for its end, and has taken 10. None: as `changes` say.
    """
    usual = {"scheme": Elastic(), "profile": CHAIN, "epochs": 12, "steps_per_epoch": 1000}
    usual.update(ends_by="deadline", head_work=HeadWork(100, 2.0))
    if seconds is not None:
        usual.update(spent_s=10.0, end_s=seconds - 5.0, ending_s=5.0)
    return Planner(**{**usual, **changes})


@pytest.mark.parametrize(
    "changes, epochs, end_epoch, end_s",
    [
        # An epoch is to take four thirds of a pass, 40 s, three to eight epochs an interval.
        ({"end_s": 20.0}, 3.0, None, 20.0),
        ({"end_s": 120.0}, 3.0, None, 120.0),
        ({"end_s": 200.0}, 4.2125, None, 200.0),
        ({"end_s": 300.0}, 6.7125, None, 300.0),
        ({"end_s": 600.0}, 7.10625, None, 300.0),
        ({"end_s": 6000.0}, 8.0, None, 1500.0),
        ({"end_s": 700.0, "spent_s": 100.0}, 7.10625, None, 400.0),
        # A device of half the speed.
        ({"end_s": 600.0, "full_ms": 200.0}, 6.7125, None, 600.0),
        # A share of full training's time is divided as a whole.
        ({**SHARE, "end_s": 600.0, "spent_s": 8.0}, 7.00625, None, 300.0),
        # Later on by what is left: a device that became slower, more time, as many as there may be.
        ({**LATE, "end_s": 600.0, "spent_s": 300.0}, 6.7125, None, 600.0),
        ({**LATE, "end_s": 600.0, "spent_s": 450.0}, None, None, None),
        ({**LATE, "end_s": 600.0, "spent_s": 300.0, "full_ms": 300.0}, None, None, None),
        ({**LATE, "end_s": 6000.0, "spent_s": 1500.0}, 8.0, None, 3000.0),
        ({"end_s": 9000.0, "spent_s": 6000.0, "intervals": 4}, None, None, None),
        # Steps end the run: its epochs are divided.
        ({"rho": 0.5}, 6.0, 6.0, None),
        ({**LATE, "rho": 0.5, "epoch": 6}, 6.0, 12.0, None),
        ({"rho": 0.5, "epochs": 2}, 2.0, 2.0, None),
        ({"rho": 0.5, "epochs": 1}, 1.0, 1.0, None),
        # The paper's method.
        ({"cached": False}, 4.0, 4.0, None),
        ({"cached": False, "epochs": 10}, 5.0, 5.0, None),
        ({**LATE, "cached": False, "epochs": 10, "epoch": 5}, 5.0, 10.0, None),
        ({**FULL, "epochs": 8}, 4.0, 4.0, None),
        ({"cached": False, "rho": 0.5, "end_s": 600.0}, 4.0, 4.0, 200.0),
    ],
)
def test_a_run_is_divided_into_intervals(changes, epochs, end_epoch, end_s):
    stage = planner_of(**{**UNSCORED, **NO_HEAD, **changes}).next_stage()
    if epochs is None:
        assert stage is None, "what goes on goes on"
    else:
        assert (stage.end_epoch, stage.end_s) == (end_epoch, pytest.approx(end_s))
        assert stage.epochs == pytest.approx(epochs)


def test_where_there_is_no_time_for_scores_the_epochs_have_it():
    planners = [planner_of(80.0, **scheme) for scheme in ({}, UNSCORED)]
    stage, unscored = (planner.next_stage() for planner in planners)
    assert not stage.scoring and unscored.scoring and stage.trains
    assert (stage.epochs, stage.end_s) == (unscored.epochs, unscored.end_s)
    assert planners[0].parts(1, False) == planners[1].parts(1, False)


@pytest.mark.parametrize("asked, starts", [(5, [0, 5, 10]), (8, [0, 8]), (12, [0]), (1, list(range(12)))])
@pytest.mark.parametrize("cached, end_s", [(True, None), (False, None), (True, 600.0)])
def test_the_interval_that_is_asked_for_is_kept(asked, starts, cached, end_s):
    planner, found, stage = planner_of(interval=asked, cached=cached, head_work=None, end_s=end_s), [], None
    for epoch in range(12):
        spent_s = 50.0 * epoch
        if stage is None or stage.is_over(epoch, spent_s):
            planned = replace(planner, intervals=len(found), epoch=epoch, spent_s=spent_s).next_stage()
            stage = planned or stage
            found += [epoch] if planned else []
    # By the clock an interval that would have less than half of its epochs does not begin.
    assert found == starts[: len(found)] and len(found) >= (min(2, len(starts)) if end_s else len(starts))


def test_an_interval_ends_at_the_epoch_nearest_to_its_end():
    stage = Stage(epochs=2.0, end_s=50.0, epoch_s=25.0)
    assert [stage.is_over(0, spent_s) for spent_s in (30.0, 37.4, 38.0, 60.0)] == [False, False, True, True]
    assert [Stage(end_epoch=3.5).is_over(epoch, 0.0) for epoch in (2, 3, 4)] == [False, True, True]


def stages(**changes):
    """By seconds, from 1 to 199: what a run begins with."""
    usual = {"head_work": HeadWork(0, 0.0), **changes}
    return {seconds: planner_of(float(seconds), **usual).next_stage() for seconds in range(1, 200)}


def kind(stage):
    return "head" if not stage.trains else "scores" if stage.scoring else "last layers"


def test_less_and_less_is_prepared_in_less_and_less_time():
    found = stages()
    kinds = [kind(stage) for stage in found.values()]
    order = ["head", "last layers", "scores"]
    assert kinds == sorted(kinds, key=order.index) and set(kinds) == set(order)
    # 15 s are kept or spent. A pass of 30 s and graphs of 1.5; two passes, and 5 s to select.
    assert (kinds.count("head"), kinds.index("scores")) == (46, 79)
    alone, layers = (next(stage for stage in found.values() if kind(stage) == which) for which in order[:2])
    assert "head alone" in alone.note and "score" in layers.note and found[199].note == ""
    assert {stage.note for stage in stages(**UNSCORED).values() if stage.trains} == {""}, "nothing to score"


def test_a_head_that_is_not_solved_is_no_result_and_no_time_is_too_short():
    assert set(map(kind, stages(**NO_HEAD).values())) == {"last layers", "scores"}
    assert set(map(kind, stages(**FULL, **NO_HEAD, cached=False).values())) == {"scores"}


@pytest.mark.parametrize("seconds, expected", [(11, "head"), (40, "head"), (200, "scores")])
def test_without_a_profile_the_time_of_an_image_tells_whether_layers_can_train(seconds, expected):
    """A full step of 4 takes 0.36 s, and 15 of them 5.3 s."""
    planner = planner_of(float(seconds), **FULL, profile=None, batch_size=4, image_s=0.02)
    assert kind(planner.next_stage()) == expected
    assert planner.parts(1, False).pass_s == pytest.approx(1000 * 4 * 0.02 / 0.75)


@pytest.mark.parametrize(
    "left_s, share, cached, changes, expected",
    [
        (7.0, 0.2, True, {}, True),  # a third of 1,000 steps of 20 ms
        (6.0, 0.2, True, {}, False),
        (-3.0, 0.2, True, {}, False),
        (34.0, 1.0, False, {}, True),
        (32.0, 1.0, False, {}, False),
        (9.0, 0.0, True, {}, False),  # nothing is predicted: 0.3 of a full step
        (11.0, 0.0, True, {}, True),
        (19.0, 0.2, True, SHARE, False),  # an epoch is made in any case
        (21.0, 0.2, True, SHARE, True),
        (-3.0, 0.2, True, {**SHARE, "epochs": 1, "steps_per_epoch": 50}, True),
    ],
)
def test_a_solved_head_is_trained_on_where_a_third_of_an_epoch_fits(left_s, share, cached, changes, expected):
    planner = planner_of(spent_s=50.0, end_s=50.0 + left_s, full_ms=100.0, **changes)
    assert planner.steps_fit(share, cached) == expected
    assert replace(planner, end_s=None).steps_fit(share, cached)


def test_after_a_head_alone_layers_train_where_another_pass_and_their_graphs_fit_as_well():
    """The pass takes 30 s, graphs 1.5, a third of an epoch of cached steps 10."""
    for left_s, expected in ((41.0, False), (42.0, True)):
        planner = planner_of(spent_s=50.0, end_s=50.0 + left_s, full_ms=100.0)
        assert planner.steps_fit(0.0, True, again=True) == expected
        assert kind(replace(planner, head_work=None).next_stage()) == "last layers"


def test_what_begins_later_is_neither_refused_nor_a_head_alone():
    assert planner_of(600.0, spent_s=580.0, intervals=1, epoch=3).next_stage() is None
    assert kind(planner_of(600.0, spent_s=100.0, intervals=1, epoch=3).next_stage()) == "scores"
    # A run that had time for the head alone is given more: it begins again with the head.
    assert kind(planner_of(150.0, spent_s=60.0, epoch=1).next_stage()) == "scores"


@pytest.mark.parametrize("steps, least", [(1000, 0.1), (50, None)])
def test_a_small_share_of_full_trainings_time_prepares_less_as_well(steps, least):
    """A pass takes 30 s, an epoch as long, a selection 5: 65 of 500 s; the last layers take 31.5."""

    def stage_at(rho):
        asked = {"rho": rho, "epochs": 5, "steps_per_epoch": steps, "head_work": HeadWork(0, 0.0)}
        return planner_of(**SHARE, **asked, end_s=rho * 0.1 * 5 * steps).next_stage()

    found = {rho / 200: stage_at(rho / 200) for rho in range(1, 201)}
    alone = [rho for rho, stage in found.items() if kind(stage) == "head"]
    if least is None:
        assert not alone, "nobody waits for it"
        return
    assert max(alone) < least and min(alone) == 0.005, "even where there is no time for the head"
    assert kind(found[0.1]) == "last layers" and kind(found[0.2]) == "scores"


@pytest.mark.parametrize(
    "intervals, scored, changes, passes_s, selections_s",
    [
        (2, True, {}, 2 * 30.0 + 3.0 + 2.0, 2 * 5.0),  # two passes, a sample, and solving
        (2, True, {"full_ms": 200.0}, 128.0, 2 * 10.0),  # a device that is twice as slow as its profile
        (2, False, {}, 2 * 30.0 + 2.0, 2 * 1.5),  # unscored tensors need no head before
        (0, False, {}, 32.0, 0.0),
        (2, True, NO_HEAD, 60.0, 2 * 5.0),
        (2, True, {**NO_HEAD, "cached": False}, 0.0, 2 * 5.0),
    ],
)
def test_the_parts_add_up(intervals, scored, changes, passes_s, selections_s):
    parts = planner_of(200.0, **changes).parts(intervals, scored)
    assert (parts.passes_s, parts.selections_s) == pytest.approx((passes_s, selections_s))
    assert parts.training_s == pytest.approx(200 - 10 - passes_s - selections_s - 5)
    assert parts.pass_s == pytest.approx(0.3 * changes.get("full_ms", 100.0))


def test_the_plan_has_a_line_for_each_part():
    planner = planner_of(600.0)
    lines = planner.lines(planner.next_stage())
    assert len(lines) == 4 and re.fullmatch(r"\D+600 s\D+10 s\D*", lines[0])
    assert "in 2 intervals; then 5 s to evaluate" in lines[3]
    planner = replace(planner, end_s=250.0, ending_s=0.0)
    assert "in one interval" in planner.lines(planner.next_stage())[3]


def test_cached_steps_have_the_time_that_is_left_when_all_before_them_is_done():
    stage, steps_s, graphs_s = Stage(epochs=4.0, end_s=500.0), 4000 * 0.1, GRAPH_STEPS * 0.1

    def training_s(graphs_s=graphs_s, **changes):
        return planner_of(spent_s=8.0, end_s=1000.0, **changes).step_share(stage, True, graphs_s) * steps_s

    assert training_s(**NO_HEAD) == training_s(**LATE) == pytest.approx(500 - 8 - 1.5 - WRITING_S)
    assert training_s() == pytest.approx(500 - 8 - 1.5 - WRITING_S - 2)
    slow = training_s(**NO_HEAD, full_ms=200.0)
    assert slow * 2 == pytest.approx(500 - 8 - 3 - 2 * WRITING_S), "graphs take as many full steps"
    assert training_s(0.5, **LATE) == pytest.approx(500 - 8 - 0.5 - WRITING_S), "known"


def test_where_steps_end_the_run_the_profile_alone_decides():
    planner, stage = planner_of(rho=0.5, ends_by="steps"), Stage(epochs=6.0, end_epoch=6.0)
    for ms, spent_s in ((None, 0.0), (None, 9.0), (70.0, 0.0), (70.0, 9.0)):
        found = replace(planner, full_ms=ms, spent_s=spent_s).step_share(stage, True, 1.5)
        assert found == pytest.approx((0.5 * 600 - WRITING_S) / 600)
    assert planner.step_share(stage, False, 1.5) == 0.5, "a step that does all work takes what was asked for"


def test_a_time_in_which_nothing_can_train_is_refused_with_the_least():
    require_reachable(1.0, CHAIN, False)
    require_reachable(CHAIN.with_cache.rho_min, CHAIN, True)
    with pytest.raises(UsageError, match=rf"Valid: {CHAIN.rho_min:.3f} to 1. A lower one needs"):
        require_reachable(CHAIN.rho_min - 0.01, CHAIN, False)
