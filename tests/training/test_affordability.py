"""The scheme that a deadline leaves time for, by a profile made by hand."""

from types import SimpleNamespace

import pytest

from cache_builders import reusable_chain
from elastictrainer import Profile
from elastictrainer.selection import schemes
from elastictrainer.selection.plan import Plan
from elastictrainer.training.affordability import affordable_scheme
from elastictrainer.training.deadline import Deadline
from elastictrainer.training.forecast import RunShape
from log_lines import listen

# A full step takes 100 ms, its forward pass 30: a pass over 1,000 minibatches 30 s. A selection takes 50 full
# steps, or 15 without scores: 5 or 1.5 s.
CHAIN = reusable_chain(Profile.from_chain(list("abcd"), 30.0, [10] * 4, [7.5] * 4))
PLAN = Plan([0.0], 6.0, 1000)


@pytest.fixture
def model(tf):
    return tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(3), tf.keras.layers.Dense(2)])


def scheme_for(model, seconds, scheme="elastic", head=True, rho=None, steps=1000):
    """The scheme that `seconds` leave time for, and what was said; 10 s are spent, 5 s are kept.

    With `rho` in their place, that share of five epochs of `steps` minibatches, of 0.1 s each.
    """
    said = listen()
    state = SimpleNamespace(
        model=model,
        deadline=seconds and Deadline(seconds, lambda: 5.0),
        full_step_ms=lambda: None,
        spent_s=lambda: 10.0 if seconds else 0.0,
        rho=rho,
        epochs=5,
        steps_per_epoch=steps,
    )
    work = SimpleNamespace(sampled=0, solving_s=0.0) if head else None
    return affordable_scheme(state, schemes.create(scheme), RunShape(CHAIN, PLAN, True, work)), " ".join(said)


def kinds(model, **options):
    """By seconds, from 30 to 199: the kind of the scheme."""
    found = {s: scheme_for(model, float(s), **options)[0] for s in range(30, 200)}
    return {s: getattr(scheme, "importance_metric", None) for s, scheme in found.items()}


def test_less_and_less_is_prepared_in_less_and_less_time(tf, model):
    by_seconds = kinds(model)
    scored = min(s for s, kind in by_seconds.items() if kind == "update" and s > 50)
    last_layers = min(s for s, kind in by_seconds.items() if kind == "weight-magnitude")
    head = min(s for s, kind in by_seconds.items() if kind is None)
    assert head < last_layers < scored and scored - last_layers in (3, 4), "the scores take 3.5 s"
    assert all(by_seconds[s] == "update" for s in range(scored, 200))
    # What is refused afterwards is refused for what was asked for.
    assert head >= 45 and by_seconds[head - 1] == "update"


def test_it_is_said(tf, model):
    by_seconds = kinds(model)
    head = min(s for s, kind in by_seconds.items() if kind is None)
    enough = float(scheme_for(model, head)[1].split("--time ")[1].split("s")[0])
    assert scheme_for(model, enough)[0].importance_metric is not None
    assert "score" in scheme_for(model, enough / 1.1 + 0.5)[1]
    assert scheme_for(model, 199.0)[1] == ""


def test_a_head_that_is_not_solved_is_no_result(tf, model):
    assert None not in kinds(model, head=False).values()
    assert scheme_for(model, None, head=False, rho=0.01)[0].importance_metric == "update"
    assert scheme_for(model, 50.0, scheme="full")[0].importance_metric is None


def test_a_small_share_of_full_trainings_time_prepares_less_as_well(tf, model):
    found = {rho / 200: scheme_for(model, None, rho=rho / 200) for rho in range(1, 201)}
    kinds = {rho: scheme.importance_metric for rho, (scheme, _) in found.items()}
    # A pass over the images takes 30 s, an epoch of the cheapest selection as long: 60 of 500 s at least.
    head = [rho for rho, kind in kinds.items() if kind is None]
    assert 0.1 < max(head) < 0.15 and min(head) == 0.005, "even where there is no time for the head"
    assert kinds[0.2] == "update"
    said = found[0.05][1]
    assert "the head alone" in said
    assert kinds[round(float(said.split("With rho ")[1].split(" ")[0]) * 200) / 200] is not None
    assert scheme_for(model, None, rho=0.05, steps=50)[0].importance_metric == "update", "nobody waits for it"
