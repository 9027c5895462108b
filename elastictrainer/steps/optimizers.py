"""The optimizers, and what any optimizer needs to update a selection of the tensors."""

import importlib.util
import warnings
from typing import Any, List, Sequence

import tensorflow as tf

from elastictrainer.registry import OPTIMIZER
from elastictrainer.steps.keras_compat.optimizer import (
    build,
    learning_rate,
    reset_slots,
    set_learning_rate,
    slots,
    untracked_variables,
)
from elastictrainer.steps.keras_compat.own_steps import count_own_steps
from elastictrainer.steps.keras_compat.variables import Variable


def make(
    name: str, learning_rate: float = 1e-4, weight_decay: float = 5e-4, momentum: float = 0.9
) -> tf.keras.optimizers.Optimizer:
    """Make an optimizer; with its defaults the paper's (SGD with momentum and weight decay, or Adam).

    `name` is "sgd": momentum, decoupled weight decay (each step subtracts learning rate x weight_decay x
    weight); "adam": Adam without weight decay; "adamw": Adam with a decoupled one. The rate is constant until
    `set_rate` is called.
    """
    OPTIMIZER.check(name)
    if name == "adam":
        return tf.keras.optimizers.Adam(learning_rate)
    if name == "adamw":
        return tf.keras.optimizers.AdamW(learning_rate, weight_decay)
    if importlib.util.find_spec("tensorflow_addons"):
        # One fused kernel per tensor: a step of MobileNetV2 takes three quarters of the time it takes with
        # Keras' SGD.
        return addons_sgdw(learning_rate, weight_decay, momentum)
    return keras_sgdw(learning_rate, weight_decay, momentum)


def addons_sgdw(learning_rate: float, weight_decay: float, momentum: float) -> tf.keras.optimizers.Optimizer:
    """Make SGDW of TensorFlow Addons, whose own decay is the learning rate times `weight_decay`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Addons says at import that it is end-of-life; pyproject.toml knows
        import tensorflow_addons as tfa
    optimizer = tfa.optimizers.SGDW(
        learning_rate=learning_rate, weight_decay=learning_rate * weight_decay, momentum=momentum
    )
    optimizer.decay_per_rate = weight_decay  # `set_rate` needs it
    return optimizer


def keras_sgdw(learning_rate: Any, weight_decay: float, momentum: float) -> tf.keras.optimizers.Optimizer:
    """Make Keras' own SGD with decoupled weight decay: the same update."""
    return tf.keras.optimizers.SGD(learning_rate, momentum=momentum, weight_decay=weight_decay)


def variables_of(optimizer: tf.keras.optimizers.Optimizer) -> List[Variable]:
    variables = optimizer.variables
    known = list(variables() if callable(variables) else variables)
    return known + untracked_variables(optimizer)


def follows_schedule(optimizer: tf.keras.optimizers.Optimizer) -> bool:
    """Return whether the learning rate is a function of the step, which nobody can set."""
    return isinstance(learning_rate(optimizer), tf.keras.optimizers.schedules.LearningRateSchedule)


def learning_rate_of(optimizer: tf.keras.optimizers.Optimizer) -> float:
    """Return the rate of the next update."""
    rate = learning_rate(optimizer)
    if callable(rate) and not isinstance(rate, tf.Variable):
        rate = rate(optimizer.iterations)
    return float(rate)


def set_rate(optimizer: tf.keras.optimizers.Optimizer, rate: float) -> None:
    """Train at the learning rate `rate` from the next update on; the weight decay of `make` follows it."""
    set_learning_rate(optimizer, rate, getattr(optimizer, "decay_per_rate", 0.0))


def prepare_freezing(optimizer: tf.keras.optimizers.Optimizer, variables: Sequence[Variable]) -> None:
    """Build for `variables`, of which some will be frozen in some steps.

    Before a step is traced. Averages, such as Adam's, are then corrected by the steps of each tensor, not by
    those of the optimizer. An optimizer that comes from a file does not say how many these were: it starts
    again.
    """
    build(optimizer, variables)
    if count_own_steps(optimizer) and int(optimizer.iterations):
        reset_slots(optimizer, variables)


def slot_bytes(optimizer: tf.keras.optimizers.Optimizer, variables: Sequence[Variable]) -> List[float]:
    """Return (N,) the bytes of the slots of each of `variables`, which a tensor has as soon as it trains."""
    sizes = {id(variable): 0.0 for variable in variables}
    for _, variable, slot in slots(optimizer, variables):
        sizes[id(variable)] += slot.dtype.size * slot.shape.num_elements()
    return list(sizes.values())
