"""A run of a policy on a small network: real steps and importances, without the training loop."""

from builders import ArrayData, small_network
from elastictrainer import Objective
from elastictrainer.selection.plan import Plan
from elastictrainer.selection.settings import SelectionSettings
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import CompiledSteps
from elastictrainer.steps.objective import classification_loss
from elastictrainer.training.policies import make_policy


class PolicyRun:
    """The policy of `scheme`, and what it was made with.

    Attributes:
        records: what the policy logged.
    """

    def __init__(self, tf, scheme, profile, epochs=2, steps_per_epoch=8, rho=0.5, probe=None):
        tf.keras.utils.set_random_seed(0)
        self.model = small_network(tf)
        self.optimizer = optimizers.make("sgd", 0.05)
        optimizers.build(self.optimizer, self.model.trainable_weights)
        objective = Objective(self.model, classification_loss(), scheme.penalty(self.model))
        self.steps = CompiledSteps(objective, self.optimizer)
        self.data = ArrayData(tf, steps=steps_per_epoch)
        self.records, self.rho = [], rho
        self.policy = make_policy(
            scheme,
            SelectionSettings(importance_batches=2),
            profile,
            Plan([k / epochs for k in range(epochs)], 1.0, steps_per_epoch),
            self.steps,
            probe or self.data.probe,
            self.records.append,
        )

    def train(self, epochs):
        """Train so many epochs, each an interval of its own."""
        for epoch in range(epochs):
            self.policy.score()
            mask = self.policy.begin(self.rho, cached=False)
            self.policy.settle(epoch * self.data.steps_per_epoch)
            for minibatch in self.data.train(epoch):
                float(self.steps.get(mask)(*minibatch))
        return self
