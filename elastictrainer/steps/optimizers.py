"""The optimizers and their schedules, and what any optimizer needs to update a selection of the tensors."""

import importlib.util
import warnings
from typing import Any, Callable, Optional, Sequence

import tensorflow as tf

from elastictrainer.registry import OPTIMIZER, SCHEDULE
from elastictrainer.steps import keras_compat
from elastictrainer.steps.keras_compat import apply_gradients, build_optimizer, learning_rate


def make(
    name: str,
    learning_rate: float = 1e-4,
    weight_decay: float = 5e-4,
    momentum: float = 0.9,
    decay_steps: int = 0,
    schedule: Optional[str] = None,
    warmup_steps: int = 0,
) -> Any:
    """An optimizer; with its defaults the paper's (SGD with momentum and decoupled weight decay, or Adam).

    Args:
        name: "sgd": momentum, decoupled weight decay (each step subtracts learning rate x weight_decay x
            weight); "adam": Adam without weight decay; "adamw": Adam with a decoupled one.
        learning_rate: the highest.
        weight_decay: of "sgd" and "adamw".
        momentum: of "sgd".
        decay_steps: training steps, at whose end "cosine" reaches zero; 0: it keeps the rate constant.
        schedule: "cosine" or "constant"; None: "constant" for "adam" as in the paper, else "cosine".
        warmup_steps: the first of the steps, over which the rate rises linearly; 0: none.

    Raises:
        UsageError: unknown name or schedule.
    """
    OPTIMIZER.check(name)
    schedule = schedule or ("constant" if name == "adam" else "cosine")
    SCHEDULE.check(schedule)
    rate = _rates(schedule, decay_steps, warmup_steps)
    if name == "adam":
        return tf.keras.optimizers.Adam(rate(learning_rate))
    if name == "adamw":
        return tf.keras.optimizers.AdamW(rate(learning_rate), weight_decay)
    if importlib.util.find_spec("tensorflow_addons"):
        # One fused kernel per tensor: a step of MobileNetV2 takes three quarters of the time it takes with
        # Keras' SGD.
        return addons_sgdw(rate(learning_rate), rate(learning_rate * weight_decay), momentum)
    return keras_sgdw(rate(learning_rate), weight_decay, momentum)


def _rates(schedule: str, steps: int, warmup: int) -> Callable[[float], Any]:
    """From the highest rate to that of each of `steps` steps, of which the first `warmup` rise to it.

    The first step is not at zero: its update would be none, and nothing could be said of its worth.
    """
    schedules = tf.keras.optimizers.schedules

    def rate(highest: float) -> Any:
        if schedule == "cosine" and steps:
            if not warmup:
                return schedules.CosineDecay(highest, steps)
            lowest = highest / warmup
            return schedules.CosineDecay(lowest, steps - warmup, warmup_target=highest, warmup_steps=warmup)
        return schedules.PolynomialDecay(highest / warmup, warmup, highest) if warmup else highest

    return rate


def addons_sgdw(learning_rate: Any, decay: Any, momentum: float) -> Any:
    """SGDW of TensorFlow Addons; `decay` is the learning rate times the weight decay."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Addons says at import that it is end-of-life; pyproject.toml knows
        import tensorflow_addons as tfa
    return tfa.optimizers.SGDW(learning_rate=learning_rate, weight_decay=decay, momentum=momentum)


def keras_sgdw(learning_rate: Any, weight_decay: float, momentum: float) -> Any:
    """Keras' own SGD with decoupled weight decay: the same update."""
    return tf.keras.optimizers.SGD(learning_rate, momentum=momentum, weight_decay=weight_decay)


def build(optimizer: Any, variables: Sequence[tf.Variable]) -> None:
    """Create the slots of all tensors at once: an optimizer that was built for a part refuses the others."""
    build_optimizer(optimizer, variables)


def variables_of(optimizer: Any) -> list:
    """The optimizer's slots and counters."""
    variables = optimizer.variables
    known = list(variables() if callable(variables) else variables)
    return known + keras_compat.untracked_variables(optimizer)


def follows_schedule(optimizer: Any) -> bool:
    """Whether the learning rate is a function of the step, which nobody can set."""
    return isinstance(learning_rate(optimizer), tf.keras.optimizers.schedules.LearningRateSchedule)


def learning_rate_of(optimizer: Any) -> float:
    """The rate of the next update."""
    rate = learning_rate(optimizer)
    if callable(rate) and not isinstance(rate, tf.Variable):
        rate = rate(optimizer.iterations)
    return float(rate)


def apply(optimizer: Any, gradients_and_variables: Sequence[tuple]) -> None:
    """Update the given tensors, and no other.

    Without the optimizer's all-reduce over replicas: each process has one replica, and `Objective` averages
    over processes. TensorFlow never frees the function that it registers for each all-reduce it traces, and
    with it every selection's graph would stay in memory.
    """
    apply_gradients(optimizer, gradients_and_variables)


def let_rest(optimizer: Any, variables: Sequence[tf.Variable]) -> None:
    """Build for `variables`, of which some will be left out of some steps; see `start_again`.

    Before a step is traced. Averages, such as Adam's, are then corrected by the steps of each tensor, not by
    those of the optimizer. An optimizer that comes from a file does not say how many these were: it starts
    again.
    """
    build(optimizer, variables)
    if keras_compat.count_own_steps(optimizer) and int(optimizer.iterations):
        start_again(optimizer, variables)


def start_again(optimizer: Any, variables: Sequence[tf.Variable]) -> None:
    """Make the optimizer as new for tensors that stop training.

    Their momentum would later push them in an outdated direction. Their averages of squared gradients would
    scale by gradients of long ago.
    """
    keras_compat.start_again(optimizer, variables)
