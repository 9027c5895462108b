"""The schemes that the paper compares elastic training with."""

from typing import Any, Callable, Dict

import numpy as np
import tensorflow as tf

from elastictrainer.selection.schemes import Scheme
from elastictrainer.steps.tensor_kinds import bias_and_norm_mask, convolution_kernels, head_mask


class Full(Scheme):
    """Every tensor, always."""


class TraditionalTransferLearning(Scheme):
    """The last layer only."""

    def mask(self, model: tf.keras.Model) -> np.ndarray:
        return head_mask(model)


class BnBias(Scheme):
    """Biases, normalisation tensors and the last layer."""

    def mask(self, model: tf.keras.Model) -> np.ndarray:
        return head_mask(model) | bias_and_norm_mask(model)


class PruneTrain(Scheme):
    """Full training with a group lasso on the channels of convolutions; channels that fade are pruned.

    After Lym et al. (SC'19): the penalty's weight is set once, such that it makes up a quarter of the loss at
    the start. Pruned channels are held at zero. The network is not rebuilt with fewer channels, so that a
    step takes as long as before; the share of pruned channels is logged.
    """

    RATIO = 0.25  # of the penalty to penalty plus loss at the start: it steers, and the loss prevails
    THRESHOLD = 1e-4  # no weight of a faded channel is larger: hundreds of times smaller than at the start

    def penalty(self, model: tf.keras.Model) -> Callable[[], tf.Tensor]:
        kernels = convolution_kernels(model)
        if not kernels:
            return lambda: tf.constant(0.0)
        classes = model.output_shape[-1]

        def lasso() -> tf.Tensor:
            # The norm's gradient at exactly zero is not a number; with 1e-12 it is zero there.
            groups = [
                tf.reduce_sum(tf.square(k), axis=axes) for k in kernels for axes in ((0, 1, 2), (0, 1, 3))
            ]
            return tf.add_n([tf.reduce_sum(tf.sqrt(g + 1e-12)) for g in groups])

        # ln(classes) is the loss of a head that knows nothing yet: P / (P + loss) = RATIO.
        weight = float(self.RATIO / (1 - self.RATIO) * np.log(classes) / lasso())
        return lambda: weight * lasso()

    def at_interval(self, model: tf.keras.Model, optimizer: Any) -> Dict[str, float]:
        pruned = channels = 0
        for kernel in convolution_kernels(model):
            alive = tf.reduce_max(tf.abs(kernel), axis=(0, 1, 2)) >= self.THRESHOLD
            kernel.assign(tf.where(alive, kernel, tf.zeros_like(kernel)))
            pruned += int(tf.reduce_sum(tf.cast(~alive, tf.int32)))
            channels += int(alive.shape[0])
        return {"pruned_channels": pruned, "channels": channels}
