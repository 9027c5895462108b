"""A fairer importance for `--scheme held_out:HeldOut`: updates are judged by minibatches they are not from.

The paper's importance takes update and gradient from the same minibatch. An optimizer that normalises, such
as AdamW, moves each weight by about as much; then that product is the sum of |gradient|, which is large for
large tensors whatever they learn: most of it is the noise of the minibatch. Here a tensor's score is
<sign(gradient on a minibatch), gradient on the next>, summed over pairs: the mean is free of that noise.

    PYTHONPATH=studies et-train --scheme held_out:HeldOut --importance-batches 9 --rho 0.1 ...
"""

import tensorflow as tf

from elastictrainer import Elastic
from elastictrainer.selection.importance import register


class _HeldOutGain:
    """Scores of a minibatch by the one before it, perhaps of the selection before; zero for the first."""

    def __init__(self):
        self._before = None

    def __call__(self, gradients, variables):
        before, self._before = self._before, gradients
        if before is None:
            return tf.zeros(len(variables))
        return tf.stack([tf.reduce_sum(tf.sign(b) * g) for b, g in zip(before, gradients)])


register("held-out")(_HeldOutGain())


class HeldOut(Elastic):
    def __init__(self):
        super().__init__("held-out")
