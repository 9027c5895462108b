"""A run of a selector on a small network: real steps and importances, without the training loop."""

import itertools

from builders import ArrayData, small_network
from elastictrainer import Objective
from elastictrainer.selection.importance import ImportanceEvaluator
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import CompiledSteps
from elastictrainer.steps.objective import classification_loss
from elastictrainer.training.graphs import make_selector


class SelectorRun:
    """The selector of `scheme`, and what it was made with.

    Attributes:
        records: what the selector logged.
    """

    def __init__(self, tf, scheme, profile, steps_per_epoch=8, rho=0.5):
        tf.keras.utils.set_random_seed(0)
        self.model = small_network(tf)
        self.optimizer = optimizers.make("sgd", 0.05)
        optimizers.build(self.optimizer, self.model.trainable_weights)
        objective = Objective(self.model, classification_loss(), scheme.penalty(self.model))
        self.steps = CompiledSteps(objective, self.optimizer)
        self.data = ArrayData(tf, steps=steps_per_epoch)
        self.records, self.rho = [], rho
        metric = scheme.importance_metric
        scorer = metric and ImportanceEvaluator(objective, self.optimizer, metric, self.steps, momentum=False)
        self.selector = make_selector(scheme, profile, self.steps, scorer, self._probe, self.records.append)

    def _probe(self, number):
        return itertools.islice(self.data.probe(number), 2)

    def train(self, epochs):
        """Train so many epochs, each an interval of its own."""
        for epoch in range(epochs):
            self.selector.score()
            mask = self.selector.begin(self.rho, cached=False)
            self.selector.settle(epoch * self.data.steps_per_epoch)
            for minibatch in self.data.train(epoch):
                float(self.steps.get(mask)(*minibatch))
        return self
