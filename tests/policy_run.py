"""A run of a policy on a small network: real steps, importances and traces, without the training loop."""

import time

from builders import ArrayData, small_network
from elastictrainer import Objective
from elastictrainer.selection.build import make_policy
from elastictrainer.selection.policy import FULL, PLAIN
from elastictrainer.selection.settings import SelectionSettings
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import StepCache
from elastictrainer.steps.objective import classification_loss
from simulation import STEPS, FakeClock


class PolicyRun:
    """The policy of `scheme`, and what it was made with.

    Attributes:
        records, said, kept: what the policy logged, told the user, and kept as renewed profiles.
        masks: (N,) bool of each step taken.
    """

    def __init__(self, tf, scheme, timings, epochs=2, steps_per_epoch=40, **settings):
        tf.keras.utils.set_random_seed(0)
        self.model = small_network(tf)
        self.optimizer = optimizers.make("sgd", 0.05)
        optimizers.build(self.optimizer, self.model.trainable_weights)
        objective = Objective(self.model, classification_loss(), scheme.penalty(self.model))
        self.steps = StepCache(objective, self.optimizer)
        self.data = ArrayData(tf, steps=steps_per_epoch)
        self.records, self.said, self.kept, self.masks = [], [], [], []
        self.steps_per_epoch, self.clock = steps_per_epoch, FakeClock()
        self.policy = make_policy(
            scheme,
            SelectionSettings(**{"interval": 1, "importance_batches": 2, **settings}),
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
                step = epoch * self.steps_per_epoch + batch
                mask = self.policy.next_mask(step, epoch, batch)
                compiled = not self.steps.has(mask)
                start = time.perf_counter()
                with self.policy.stepping():
                    float(self.steps.get(mask)(*minibatch))
                seconds = time.perf_counter() - start
                self.clock.pass_s(STEPS, seconds)
                self.policy.step_taken(
                    step, 1e3 * seconds, minibatch, compiled, FULL if mask.all() else PLAIN
                )
                self.masks.append(mask)
        self.policy.close()
        return self
