"""The selector as a run has it, on a real model."""

import numpy as np
import pytest

from builders import invented_profile, small_network
from elastictrainer import UsageError
from elastictrainer.selection.schemes import Elastic, Scheme
from elastictrainer.steps import optimizers
from selector_run import SelectorRun


@pytest.fixture(scope="module")
def profile(tf):
    return invented_profile(small_network(tf))


def test_a_users_scheme_selects_once_it_has_a_metric(tf, profile):
    class Mine(Scheme):
        importance_metric = "grad-magnitude"

    selector = SelectorRun(tf, Mine(), profile).selector
    selector.score()
    assert selector.selects and selector.begin(1.0, cached=False).any()


def test_the_momentum_of_resting_tensors_is_zeroed(tf, profile):
    made = SelectorRun(tf, Elastic(), profile)
    for minibatch in made.data.train(0):
        made.steps.get(np.ones(len(profile), bool))(*minibatch)
    made.selector.score()
    mask = made.selector.begin((1 + profile.rho_min) / 2, cached=False)
    made.selector.settle(8)
    state = [v.numpy() for v in optimizers.variables_of(made.optimizer)]
    slots = [np.abs(value).sum() for value in state if value.ndim and value.dtype == np.float32]
    assert len(slots) == len(mask) and not mask.all()
    assert all(momentum == 0 for momentum, trains in zip(slots, mask) if not trains)
    assert any(momentum > 0 for momentum, trains in zip(slots, mask) if trains)


def test_a_scheme_that_does_not_select_is_handed_model_and_optimizer(tf):
    class Noting(Scheme):
        def at_interval(self, model, optimizer):
            return {"tensors": len(model.trainable_weights), "optimizer": type(optimizer).__name__}

    made = SelectorRun(tf, Noting(), None)
    assert not made.selector.selects and made.selector.profile is None
    for step in (0, 3):
        made.selector.begin(1.0, cached=False)
        made.selector.settle(step)
    name = type(made.optimizer).__name__
    assert made.records == [{"step": 3, "tensors": len(made.selector.mask), "optimizer": name}]


def test_a_missing_profile_and_one_of_another_model_are_errors(tf, profile):
    with pytest.raises(UsageError, match="pass profile"):
        SelectorRun(tf, Elastic(), None)
    other = invented_profile(small_network(tf, classes=5))
    assert len(other) == len(profile)  # the number of tensors is all that can be compared here
    other.names = other.names[:-1]
    with pytest.raises(UsageError, match="profile this model"):
        SelectorRun(tf, Elastic(), other)


@pytest.mark.parametrize(
    "mask",
    [lambda n: np.ones(n + 1, bool), lambda n: np.zeros(n, bool), lambda n: [0, 2], lambda n: np.ones(n)],
    ids=["of other tensors", "of none", "of indices", "of numbers"],
)
def test_a_mask_that_is_none_is_refused(tf, mask):
    class Mistaken(Scheme):
        def mask(self, model):
            return mask(len(model.trainable_weights))

    with pytest.raises(UsageError, match="Mistaken.mask .*bool"):
        SelectorRun(tf, Mistaken(), None)
