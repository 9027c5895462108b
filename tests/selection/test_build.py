"""The policies as a run has them: real steps, importances and traces."""

import time

import numpy as np
import pytest

from builders import ArrayData, small_network
from elastictrainer import Objective, UsageError, profile_model
from elastictrainer.selection.build import make_policy
from elastictrainer.selection.elastic import ElasticPolicy
from elastictrainer.selection.fixed import FixedPolicy
from elastictrainer.selection.schemes import Elastic, Scheme
from elastictrainer.selection.settings import SelectionSettings
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import StepCache
from elastictrainer.steps.objective import classification_loss
from elastictrainer.training.stopwatch import STEPS, Stopwatch


@pytest.fixture(scope="module")
def timings(tf):
    batch = next(ArrayData(tf).train(0))
    return profile_model(small_network(tf), classification_loss(), batch, warmup=1, steps=3)


class Made:
    """A policy, and what it was made with."""

    def __init__(self, tf, scheme, timings, epochs=2, steps_per_epoch=40, **settings):
        tf.keras.utils.set_random_seed(0)
        model = small_network(tf)
        self.optimizer = optimizers.make("sgd", 0.05)
        optimizers.build(self.optimizer, model.trainable_weights)
        self.steps = StepCache(Objective(model, classification_loss()), self.optimizer)
        self.data = ArrayData(tf, steps=steps_per_epoch)
        self.records, self.said, self.kept, self.masks = [], [], [], []
        self.per_epoch, self.clock = steps_per_epoch, Stopwatch()
        self.policy = make_policy(
            scheme,
            SelectionSettings(interval=1, importance_batches=2, **settings),
            timings,
            epochs,
            steps_per_epoch,
            self.steps,
            self.clock,
            self.data.probe,
            self.records.append,
            self.said.append,
            self.kept.append,
        )

    def train(self, epochs):
        for epoch in range(epochs):
            for batch, minibatch in enumerate(self.data.train(epoch)):
                step = epoch * self.per_epoch + batch
                mask = self.policy.next_mask(step, epoch, batch)
                compiled = not self.steps.has(mask)
                start = time.perf_counter()
                with self.policy.stepping(), self.clock.lap(STEPS):
                    float(self.steps.get(mask)(*minibatch))
                self.policy.step_taken(step, 1e3 * (time.perf_counter() - start), minibatch, compiled)
                self.masks.append(mask)
        self.policy.close()


def test_an_elastic_policy_scores_selects_and_renews_the_profile_of_a_real_model(tf, timings):
    rho = (1 + timings.rho_min) / 2
    made = Made(tf, Elastic(), timings, rho=rho, reprofile="always")
    assert isinstance(made.policy, ElasticPolicy) and made.policy.mask is None
    made.train(2)
    assert made.policy.selections == 2 and [record["step"] for record in made.records][0] == 10
    assert len(made.kept) == 2 and made.policy.timings is made.kept[-1]
    assert [kept.metadata["renewed_at_step"] for kept in made.kept] == [10, 40]
    assert made.kept[-1].metadata["traced_steps"] == 4
    assert all(made.clock.of(lap) > 0 for lap in ("importance", "selection", "profiling"))
    assert sum("the profile was renewed" in line for line in made.said) == 2


def test_the_momentum_of_resting_tensors_is_forgotten(tf, timings):
    made = Made(tf, Elastic(), timings, epochs=1, rho=(1 + timings.rho_min) / 2, feedback=False)
    made.train(1)
    model, mask = made.steps.objective.model, made.policy.mask
    slots = [np.abs(v.numpy()).sum() for v in optimizers.variables_of(made.optimizer) if v.shape.rank]
    assert len(slots) == len(model.trainable_weights) and not mask.all()
    assert all(momentum == 0 for momentum, trains in zip(slots, mask) if not trains)
    assert any(momentum > 0 for momentum, trains in zip(slots, mask) if trains)


def test_a_fixed_policy_hands_model_and_optimizer_to_the_scheme(tf):
    class Noting(Scheme):
        def at_interval(self, model, optimizer):
            return {"tensors": len(model.trainable_weights), "optimizer": type(optimizer).__name__}

    made = Made(tf, Noting(), None, steps_per_epoch=3)
    assert isinstance(made.policy, FixedPolicy) and made.policy.timings is None
    made.train(2)
    name = type(made.optimizer).__name__
    assert made.records == [{"step": 3, "tensors": len(made.policy.mask), "optimizer": name}]
    assert made.policy.full_step_ms() > 0


def test_a_profile_of_another_model_and_a_rho_below_what_is_to_be_had_are_errors(tf, timings):
    with pytest.raises(UsageError, match="pass timings"):
        Made(tf, Elastic(), None)
    with pytest.raises(UsageError, match="Valid"):
        Made(tf, Elastic(), timings, rho=timings.rho_min / 2)
