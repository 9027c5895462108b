"""Training schemes: which tensors train now, and what a scheme adds to the loss."""

from dataclasses import dataclass
from importlib import metadata
from typing import Any, Callable, Dict, Iterable, Optional

import numpy as np
import tensorflow as tf

from elastictrainer.errors import UsageError, unknown
from elastictrainer.importing import named
from elastictrainer.tensors import bias_and_norm_mask, convolution_kernels, head_mask


class Scheme:
    """A scheme that trains the same tensors all along.

    Attributes:
        importance_metric: how tensors are scored at each interval; None: the scheme does not select.
    """

    importance_metric: Optional[str] = None

    def mask(self, model: tf.keras.Model) -> np.ndarray:
        """(N,) bool: the tensors that train, or that may be selected."""
        return np.ones(len(model.trainable_weights), bool)

    def penalty(self, model: tf.keras.Model) -> Optional[Callable[[], tf.Tensor]]:
        """What the scheme adds to the training loss, a function without arguments; None: nothing."""
        return None

    def at_interval(self, model: tf.keras.Model, optimizer: Any) -> Dict[str, float]:
        """Called every interval of a scheme that does not select; returns figures for the log."""
        return {}


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
    """Full training with a group lasso on the channels of convolutions; channels that fade are pruned for good.

    After Lym et al. (SC'19): the penalty's weight is set once, such that it makes up a quarter of the loss at the
    start. Pruned channels are held at zero. The network is not rebuilt with fewer channels, so that a step takes as
    long as before; the share of pruned channels is logged.
    """

    RATIO = 0.25
    THRESHOLD = 1e-4

    def penalty(self, model: tf.keras.Model) -> Callable[[], tf.Tensor]:
        kernels = convolution_kernels(model)
        if not kernels:
            return lambda: tf.constant(0.0)
        classes = model.output_shape[-1]

        def lasso() -> tf.Tensor:
            # The norm's gradient at exactly zero is not a number; a pruned channel stays where it is.
            groups = [tf.reduce_sum(tf.square(k), axis=axes) for k in kernels for axes in ((0, 1, 2), (0, 1, 3))]
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


@dataclass
class Elastic(Scheme):
    """At every interval, out of all tensors, those that promise most within the time (the paper's method)."""

    importance_metric: str = "update"


SCHEMES: Dict[str, Callable[[], Scheme]] = {
    "elastic": Elastic,
    "elastic-weight-magnitude": lambda: Elastic("weight-magnitude"),
    "elastic-grad-magnitude": lambda: Elastic("grad-magnitude"),
    "full": Full,
    "traditional-tl": TraditionalTransferLearning,
    "bn-bias": BnBias,
    "prunetrain": PruneTrain,
}


def register(name: str) -> Callable[[Callable[[], Scheme]], Callable[[], Scheme]]:
    """Decorator for a class of one's own: `--scheme name` finds it once its module is imported.

    A package can name such classes in the entry point group "elastictrainer.schemes" instead; then nothing needs importing.
    """

    def keep(factory: Callable[[], Scheme]) -> Callable[[], Scheme]:
        SCHEMES[name] = factory
        return factory

    return keep


def create(name: str) -> Scheme:
    """The scheme called `name`: a registered one, one of an installed package, or `package.module:Class`.

    Raises:
        UsageError: there is none; with the valid names.
    """
    if name in SCHEMES:
        return SCHEMES[name]()
    installed = {point.name: point for point in _entry_points()}
    if name in installed:
        return installed[name].load()()
    if ":" in name:
        return _from_module(name)
    raise unknown("scheme", name, [*SCHEMES, *installed])


def _entry_points() -> Iterable[Any]:
    found = metadata.entry_points()
    if hasattr(found, "select"):
        return found.select(group="elastictrainer.schemes")
    return found.get("elastictrainer.schemes", ())  # Python 3.9


def _from_module(name: str) -> Scheme:
    made = named("--scheme", name)()
    if not isinstance(made, Scheme):
        raise UsageError(f"--scheme {name} gave a {type(made).__name__}, not an elastictrainer.Scheme.")
    return made
