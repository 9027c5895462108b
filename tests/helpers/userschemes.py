"""Schemes as users write them, for `--scheme userschemes:NAME`."""

import numpy as np
import tensorflow as tf

from elastictrainer import Elastic, Scheme
from elastictrainer.selection import importance


class OddTensors(Scheme):
    """Every second tensor."""

    def mask(self, model):
        return np.arange(len(model.trainable_weights)) % 2 == 1


@importance.register("largest-gradient")
def largest_gradient(gradients, variables):
    return [float(tf.reduce_max(tf.abs(g))) for g in gradients]


class ByLargestGradient(Elastic):
    def __init__(self):
        super().__init__("largest-gradient")


class NoScheme:
    pass
