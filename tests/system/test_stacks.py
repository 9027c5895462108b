"""Keras 2 and Keras 3 come to the same numbers: those expected here were computed with both."""

import numpy as np
import pytest

from builders import small_network, step_of, tensor_names
from elastictrainer import ImportanceEvaluator, Objective, Profile, select
from elastictrainer.steps import optimizers
from elastictrainer.steps.objective import classification_loss

IMPORTANCE = [
    *(1.25772e-4, 0, 7.39945e-4, 6.43023e-3, 8.77544e-5),
    *(0, 4.28338e-4, 1.11160e-2, 3.77064e-2, 2.66453e-2),
]
SELECTED = [[8, 9], [3, 8, 9], [2, 3, 7, 8, 9]]
LOSSES = [1.250215, 1.277372, 1.139246, 1.218896]


@pytest.fixture
def fixed(tf):
    """The small network without dropout, its weights and two minibatches drawn by NumPy."""
    random = np.random.default_rng(7)
    model = small_network(tf, dropout=0.0)
    for variable in model.trainable_weights:
        variable.assign(
            random.normal(0.5 if "gamma" in variable.name else 0.0, 0.4, variable.shape).astype(np.float32)
        )
    batches = [
        (tf.constant(random.normal(size=(4, 8, 8, 3)), tf.float32), tf.constant(random.integers(0, 3, 4)))
        for _ in range(2)
    ]
    return model, batches


def test_importance_and_selection(fixed):
    model, batches = fixed
    weights = ("kernel", "bias"), ("gamma", "beta"), ("kernel", "bias"), ("gamma", "beta"), ("kernel", "bias")
    layers = zip(("stem", "stem_bn", "inner", "inner_bn", "head"), weights)
    assert tensor_names(model) == [f"{layer}/{name}" for layer, names in layers for name in names]
    optimizer = optimizers.keras_sgdw(0.05, 0.01, 0.9)
    scores = ImportanceEvaluator(Objective(model, classification_loss()), optimizer)(batches)
    np.testing.assert_allclose(scores, IMPORTANCE, rtol=1e-3, atol=1e-7)
    n = len(scores)
    profile = Profile.from_chain(tensor_names(model), 5.0, np.arange(1.0, n + 1), np.full(n, 0.7))
    assert [np.flatnonzero(select(profile, scores, rho).mask).tolist() for rho in (0.4, 0.5, 0.7)] == SELECTED


def test_one_step_of_training(fixed, tf):
    model, batches = fixed
    step = step_of(model, optimizers.keras_sgdw(0.05, 0.01, 0.9))
    losses = [float(step(*batch)) for batch in [*batches, *batches]]
    np.testing.assert_allclose(losses, LOSSES, rtol=1e-4)
