"""Measure the gain of each layer: train it alone, with the head, and see how far the held-out loss falls.

    python studies/truth.py --dataset path/to/cub100 --weights path/to/mobilenet_v2.h5

Full training goes on for 0, 1, 3 and 8 epochs. At each of these points every layer (a kernel, with the bias
and the normalisation behind it) trains alone with the head on the same minibatches, from the same weights;
then on other minibatches, which tells how repeatable a gain is. A layer's gain is the loss on held-out
training images after the head trained alone, less that after the layer trained with it. Beside the gains
stand the metrics that are to foretell them. One row of the CSV file is a layer at one of the points;
correlation.py compares.
"""

import argparse
import csv
import itertools
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

import layers
import metrics

POINTS = (0, 1, 3, 8)  # epochs of full training
PROBES = 48  # minibatches to compute metrics on
_OPENING = 48  # full steps
DRAWS = 2  # trainings of each layer, on different minibatches


class Study:
    """A network in training, its images, and what is measured of its layers."""

    def __init__(self, options):
        from elastictrainer.experiment import assembly
        from elastictrainer.experiment.settings import TrainSettings
        from elastictrainer.steps import optimizers
        from elastictrainer.steps.compiled_step import CompiledSteps
        from elastictrainer.steps.keras_compat.variables import name_of
        from elastictrainer.steps.objective import Objective, classification_loss
        from elastictrainer.training.evaluation import Evaluator

        assembly.configure(options.seed)
        settings = TrainSettings(
            model=options.model,
            dataset=options.dataset,
            weights=options.weights,
            image_size=options.image_size,
            rotation=None if ":" in options.model else 0.0,
            learning_rate=options.learning_rate,
            validation_split=0.1,
            seed=options.seed,
        )
        self.data = assembly.load_data(settings)
        self.model = assembly.make_model(settings, len(self.data.class_names))
        self.optimizer = assembly.make_optimizer(settings)
        optimizers.build(self.optimizer, self.variables)
        self.objective = Objective(self.model, classification_loss())
        self.full = CompiledSteps(self.objective, self.optimizer).get(np.ones(len(self.variables), bool))
        self.evaluator = Evaluator(self.model)
        minibatches = itertools.islice(self.data.validation(), options.held_out // 32)
        self.held_out = [(x, y) for x, y in minibatches]
        self.layers = layers.of(map(name_of, self.variables), [v.shape for v in self.variables])
        self.head = list(self.layers)[-1]

    @property
    def variables(self):
        return self.model.trainable_variables

    def open(self):
        """Full training of a few steps, as in et-train: a head of zeros passes no gradient."""
        for minibatch in itertools.islice(self.data.train(0), _OPENING):
            self.full(*minibatch)

    def train_full(self, first, last):
        """Full training from epoch `first` to `last`."""
        for epoch in range(first, last):
            for minibatch in self.data.train(epoch):
                self.full(*minibatch)

    def weights(self):
        return [v.numpy() for v in self.model.variables]

    def assign(self, weights):
        """Put weights back, and begin with a new optimizer."""
        from elastictrainer.steps.optimizers import reset_slots

        for variable, value in zip(self.model.variables, weights):
            variable.assign(value)
        reset_slots(self.optimizer, self.variables)

    def loss(self):
        return self.evaluator(self.held_out).loss

    def step(self, layer):
        """The compiled step that trains a layer and the head."""
        from elastictrainer.steps.compiled_step import CompiledStep

        chosen = {*self.layers[layer], *self.layers[self.head]}
        return CompiledStep(self.objective, self.optimizer, [self.variables[k] for k in sorted(chosen)])

    def loss_after(self, step, weights, minibatches):
        self.assign(weights)
        for minibatch in minibatches:
            step(*minibatch)
        return self.loss()

    def probes(self):
        return list(itertools.islice(self.data.probe(0), PROBES))


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="mobilenetv2", help="as for et-train")
    parser.add_argument("--dataset", required=True, help="as for et-train")
    parser.add_argument("--weights", default="imagenet", help="as for et-train")
    parser.add_argument("--image-size", type=int, help="as for et-train")
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--points", type=int, nargs="+", default=POINTS, help="epochs of full training")
    parser.add_argument("--steps", type=int, default=64, help="for which a layer trains")
    parser.add_argument("--held-out", type=int, default=160, help="images to measure the loss on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", default="truth.csv")
    return parser.parse_args()


def main():
    options = parse()
    study = Study(options)
    probes = study.probes()
    study.open()
    points = {}  # weights and each layer's metrics
    for before, epoch in zip([0, *options.points], options.points):
        study.train_full(before, epoch)
        weights = study.weights()
        study.assign(weights)
        points[epoch] = weights, metrics.by_layer(study, probes)
        study.assign(weights)
        print(f"after epoch {epoch}: held-out loss {study.loss():.4f}", flush=True)
    draws = [list(itertools.islice(study.data.train(1000 + k), options.steps)) for k in range(DRAWS)]
    alone = {}
    partial = f"{options.output}.part"  # an earlier file stays until this one is whole
    with open(partial, "w", newline="") as file:
        writer = None
        for layer in reversed(study.layers):  # the head first
            step = study.step(layer)
            for epoch, (weights, scores) in points.items():
                after = [study.loss_after(step, weights, minibatches) for minibatches in draws]
                if layer == study.head:
                    alone[epoch] = after
                    continue
                gains = [one - other for one, other in zip(alone[epoch], after)]
                row = {
                    "data": Path(options.dataset).name,
                    "model": options.model,
                    "epoch": epoch,
                    "layer": layer,
                }
                row.update({f"gain_{k}": f"{gain:.6f}" for k, gain in enumerate(gains)})
                row.update({name: f"{values[layer]:.6g}" for name, values in scores.items()})
                writer = writer or csv.DictWriter(file, row)
                if file.tell() == 0:
                    writer.writeheader()
                writer.writerow(row)
                file.flush()
                print(f"{layer:<28} epoch {epoch}  gain " + "  ".join(f"{g:+.4f}" for g in gains), flush=True)
    os.replace(partial, options.output)


if __name__ == "__main__":
    main()
