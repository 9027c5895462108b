"""Training schemes: which tensors train. TensorFlow is loaded by what needs it: plots ask what selects."""

from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Union

import numpy as np

from elastictrainer.errors import UsageError, unknown
from elastictrainer.registry import import_object
from elastictrainer.selection.selector import Solver, freeze_below

if TYPE_CHECKING:
    import tensorflow as tf


class Scheme:
    """A scheme; this one trains every tensor from first to last.

    One that has a metric or a solver selects tensors at every interval, by the time that rho allows.

    Attributes:
        importance_metric: name of the metric that tensors are scored by; None: they are not scored.
        solver: selects the tensors: a name or a function, as for `select`; None: a knapsack, where tensors
            are scored.
        trains: whether steps follow after the head is solved.
    """

    importance_metric: Optional[str] = None
    solver: Union[str, Solver, None] = None
    trains = True

    @property
    def selects(self) -> bool:
        """Return whether tensors are selected at every interval."""
        return self.importance_metric is not None or self.solver is not None

    @property
    def needs_scores(self) -> bool:
        """Return whether it selects by what training does, and so needs a head that knows something."""
        return self.importance_metric not in (None, "weight-magnitude")

    def mask(self, model: "tf.keras.Model") -> np.ndarray:
        """Return (N,) bool: which of the N `model.trainable_weights`, in their order, train."""
        return np.ones(len(model.trainable_weights), bool)

    def penalty(self, model: "tf.keras.Model") -> Optional[Callable[[], Any]]:
        """Return the term that the scheme adds to the training loss, from no arguments to a scalar tensor;
        None: none.
        """
        return None

    def at_interval(self, model: "tf.keras.Model", optimizer: Any) -> Dict[str, float]:
        """Act at the start of an interval, for a scheme that does not select; returns figures for the log."""
        return {}


@dataclass
class Elastic(Scheme):
    """At every interval, the tensors of the largest importance within the budget (paper Sec. 3).

    The metric "update" is the paper's (Eq. 6); others are "grad-magnitude", "weight-magnitude" and a user's.
    """

    importance_metric: str = "update"
    solver: Union[str, Solver, None] = None


class FreezeBelow(Scheme):
    """All tensors above a layer, which is as early as the time allows. No importance is needed."""

    solver = staticmethod(freeze_below)


class TraditionalTransferLearning(Scheme):
    """The last layer only."""

    def mask(self, model: "tf.keras.Model") -> np.ndarray:
        from elastictrainer.steps.tensor_kinds import head_mask

        return head_mask(model)


class LastLayers(Scheme):
    """The last quarter of the tensors, by a rule: for where there is no time to measure what they cost."""

    SHARE = 0.26

    def __init__(self, tensors: Optional[int] = None):
        """`tensors`: how many; None: the quarter."""
        self.tensors = tensors

    def mask(self, model: "tf.keras.Model") -> np.ndarray:
        from elastictrainer.steps.tensor_kinds import head_mask

        return self.of(len(model.trainable_weights)) | head_mask(model)

    def of(self, count: int) -> np.ndarray:
        """Return which of `count` tensors train, (count,) bool."""
        tensors = count - round((1 - self.SHARE) * count) if self.tensors is None else self.tensors
        return np.arange(count) >= count - tensors


class HeadAlone(TraditionalTransferLearning):
    """The last layer, solved on the features of the images. It is the best one for them: no step follows."""

    trains = False


class BnBias(Scheme):
    """Biases, normalisation tensors and the last layer."""

    def mask(self, model: "tf.keras.Model") -> np.ndarray:
        from elastictrainer.steps.tensor_kinds import bias_and_norm_mask, head_mask

        return head_mask(model) | bias_and_norm_mask(model)


class PruneTrain(Scheme):
    """Full training with a group lasso on the channels of convolutions; channels that fade are pruned.

    After Lym et al. (SC'19): the penalty's weight is set once, such that it makes up a quarter of the loss at
    the start. Pruned channels are held at zero. The network is not rebuilt with fewer channels, so that a
    step takes as long as before; the share of pruned channels is logged.
    """

    RATIO = 0.25  # of the penalty to penalty plus loss at the start: it steers, and the loss prevails
    THRESHOLD = 1e-4  # no weight of a faded channel is larger: hundreds of times smaller than at the start

    def penalty(self, model: "tf.keras.Model") -> Callable[[], Any]:
        import tensorflow as tf

        from elastictrainer.steps.tensor_kinds import convolution_kernels

        kernels = convolution_kernels(model)
        if not kernels:
            return lambda: tf.constant(0.0)
        classes = model.output_shape[-1]

        def lasso() -> Any:
            # The norm's gradient at exactly zero is not a number; with 1e-12 it is zero there.
            groups = [
                tf.reduce_sum(tf.square(k), axis=axes) for k in kernels for axes in ((0, 1, 2), (0, 1, 3))
            ]
            return tf.add_n([tf.reduce_sum(tf.sqrt(g + 1e-12)) for g in groups])

        # ln(classes) is the loss of a head that knows nothing yet: P / (P + loss) = RATIO.
        weight = float(self.RATIO / (1 - self.RATIO) * np.log(classes) / lasso())
        return lambda: weight * lasso()

    def at_interval(self, model: "tf.keras.Model", optimizer: Any) -> Dict[str, float]:
        import tensorflow as tf

        from elastictrainer.steps.tensor_kinds import convolution_kernels

        pruned = channels = 0
        for kernel in convolution_kernels(model):
            alive = tf.reduce_max(tf.abs(kernel), axis=(0, 1, 2)) >= self.THRESHOLD
            kernel.assign(tf.where(alive, kernel, tf.zeros_like(kernel)))
            pruned += int(tf.reduce_sum(tf.cast(~alive, tf.int32)))
            channels += int(alive.shape[0])
        return {"pruned_channels": pruned, "channels": channels}


SCHEMES: Dict[str, Callable[[], Scheme]] = {
    "elastic": Elastic,
    "elastic-weight-magnitude": lambda: Elastic("weight-magnitude"),
    "elastic-grad-magnitude": lambda: Elastic("grad-magnitude"),
    "freeze-below": FreezeBelow,
    "last-layers": LastLayers,
    "full": Scheme,
    "traditional-tl": TraditionalTransferLearning,
    "head-alone": HeadAlone,
    "bn-bias": BnBias,
    "prunetrain": PruneTrain,
}


def check_name(name: str) -> None:
    """Raise UsageError, with the valid names, if no scheme is called `name`. A `module:Class` is not
    imported.
    """
    if name not in SCHEMES and ":" not in name and name not in _installed():
        raise unknown("scheme", name, [*SCHEMES, *_installed()])


def create(name: str) -> Scheme:
    """Create the scheme called `name`: a built-in one, `package.module:Class`, or one that an installed
    package names in the entry point group "elastictrainer.schemes".

    Raises:
        UsageError: there is none; with the valid names.
    """
    check_name(name)
    if name in SCHEMES:
        return SCHEMES[name]()
    if ":" not in name:
        return _installed()[name].load()()
    made = import_object("--scheme", name)()
    if not isinstance(made, Scheme):
        raise UsageError(f"--scheme {name} gave a {type(made).__name__}, not an elastictrainer.Scheme.")
    return made


def name_of(scheme: Scheme) -> str:
    """Return the name of a built-in scheme, or the class of a user's."""
    names = {type(make()): name for name, make in reversed(list(SCHEMES.items()))}
    return names.get(type(scheme), type(scheme).__name__)


def selects(name: str) -> Optional[bool]:
    """Return whether the scheme called `name` selects; None where a user's code would have to be imported."""
    return SCHEMES[name]().selects if name in SCHEMES else None


def _installed() -> Dict[str, Any]:
    """Return the entry points of schemes that installed packages have, by name."""
    points, group = metadata.entry_points(), "elastictrainer.schemes"
    old = not hasattr(points, "select")  # Python 3.9
    return {point.name: point for point in (points.get(group, ()) if old else points.select(group=group))}
