"""The policies as a run has them: real steps, importances and traces."""

import copy

import numpy as np
import pytest

from builders import ArrayData, quick_profile, small_network
from elastictrainer import UsageError
from elastictrainer.selection.clock import IMPORTANCE, PROFILING, SELECTION
from elastictrainer.selection.elastic import ElasticPolicy
from elastictrainer.selection.fixed import FixedPolicy
from elastictrainer.selection.schemes import Elastic, Scheme
from elastictrainer.steps import optimizers
from policy_run import PolicyRun


@pytest.fixture(scope="module")
def timings(tf):
    return quick_profile(small_network(tf), next(ArrayData(tf).train(0)))


def test_an_elastic_policy_scores_selects_and_renews_the_profile_of_a_real_model(tf, timings):
    rho = (1 + timings.rho_min) / 2
    run = PolicyRun(tf, Elastic(), timings, rho=rho, reprofile="always")
    assert isinstance(run.policy, ElasticPolicy) and run.policy.mask is None
    run.train(2)
    assert run.policy.selections == 2 and [record["step"] for record in run.records][0] == 10
    assert len(run.kept) == 2 and run.policy.timings is run.kept[-1]
    assert [profile.metadata["renewed_at_step"] for profile in run.kept] == [10, 40]
    assert run.kept[-1].metadata["traced_steps"] == 4
    assert {IMPORTANCE, SELECTION, PROFILING} <= set(run.clock.laps)
    assert sum("the profile was renewed" in line for line in run.said) == 2


def test_a_run_too_short_for_a_selection_to_pay_says_so_and_trains_every_tensor(tf, timings):
    slow = copy.deepcopy(timings)
    slow.metadata["graph_ms"] = (
        30 * slow.full_ms
    )  # three graphs and more for each of two selections, in 80 steps
    rho = (1 + timings.rho_min) / 2
    run = PolicyRun(tf, Elastic(), slow, rho=rho, interval=None).train(2)
    assert run.policy.selections == 0 and all(mask.all() for mask in run.masks) and not run.records
    assert len(run.said) == 1 and "too short for a selection of tensors to pay" in run.said[0]
    assert run.policy.full_training_ms(80) == pytest.approx(80 * run.policy.full_step_ms())

    asked = PolicyRun(tf, Elastic(), slow, rho=rho, interval=1)
    assert asked.policy.budget.schedule.selection_steps == [10, 40] and not asked.said
    state = run.policy.state()
    asked.policy.restore(state)  # an interrupted run keeps its schedule, whatever its profile says by then
    assert asked.policy.budget.schedule.selection_steps == []


def test_the_momentum_of_resting_tensors_is_zeroed(tf, timings):
    run = PolicyRun(tf, Elastic(), timings, epochs=1, rho=(1 + timings.rho_min) / 2, feedback=False)
    run.train(1)
    model, mask = run.steps.objective.model, run.policy.mask
    state = [v.numpy() for v in optimizers.variables_of(run.optimizer)]
    slots = [np.abs(value).sum() for value in state if value.ndim and value.dtype == np.float32]
    assert len(slots) == len(model.trainable_weights) and not mask.all()
    assert all(momentum == 0 for momentum, trains in zip(slots, mask) if not trains)
    assert any(momentum > 0 for momentum, trains in zip(slots, mask) if trains)


def test_a_fixed_policy_hands_model_and_optimizer_to_the_scheme(tf):
    class Noting(Scheme):
        def at_interval(self, model, optimizer):
            return {"tensors": len(model.trainable_weights), "optimizer": type(optimizer).__name__}

    run = PolicyRun(tf, Noting(), None, steps_per_epoch=3)
    assert isinstance(run.policy, FixedPolicy) and run.policy.timings is None
    run.train(2)
    name = type(run.optimizer).__name__
    assert run.records == [{"step": 3, "tensors": len(run.policy.mask), "optimizer": name}]
    assert run.policy.full_step_ms() > 0


def test_a_profile_of_another_model_and_a_rho_below_what_is_to_be_had_are_errors(tf, timings):
    with pytest.raises(UsageError, match="pass timings"):
        PolicyRun(tf, Elastic(), None)
    with pytest.raises(UsageError, match="Valid"):
        PolicyRun(tf, Elastic(), timings, rho=timings.rho_min / 2)


@pytest.mark.parametrize(
    "mask",
    [lambda n: np.ones(n + 1, bool), lambda n: np.zeros(n, bool), lambda n: [0, 2], lambda n: np.ones(n)],
    ids=["of other tensors", "of none", "of indices", "of numbers"],
)
def test_a_mask_that_is_none_is_refused(tf, mask):
    class Mistaken(Scheme):
        def mask(self, model):
            return mask(len(model.trainable_weights))

    with pytest.raises(UsageError, match="Mistaken.mask gave .*needed: bool of shape"):
        PolicyRun(tf, Mistaken(), None, steps_per_epoch=3)


def test_a_probe_that_gives_nothing_is_an_error_and_not_a_hang(tf, timings, monkeypatch):
    monkeypatch.setattr(ArrayData, "probe", lambda data, step: iter(()))
    run = PolicyRun(tf, Elastic(), timings, rho=0.5 * (1 + timings.rho_min))
    with pytest.raises(UsageError, match="probe gave no minibatch"):
        run.train(4)
