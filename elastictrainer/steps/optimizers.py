"""The paper's optimizers, and what every optimizer needs before it may update some tensors only."""

import importlib.util
import warnings
from typing import Any, Sequence

import tensorflow as tf

from elastictrainer.registry import OPTIMIZER
from elastictrainer.steps.keras_compat import apply_gradients, build_optimizer, momentum_slots


def make(
    name: str,
    learning_rate: float = 1e-4,
    weight_decay: float = 5e-4,
    momentum: float = 0.9,
    decay_steps: int = 0,
) -> Any:
    """An optimizer with the paper's settings (SGD with momentum and decoupled weight decay, or Adam).

    Args:
        name: "sgd": momentum, decoupled weight decay (each step subtracts learning rate x weight_decay x
            weight); "adam": Adam at a constant rate, without weight decay.
        learning_rate: at the first step.
        weight_decay: of "sgd".
        momentum: of "sgd".
        decay_steps: steps over which "sgd"'s rate falls to zero by a half cosine; 0 keeps it constant.

    Raises:
        UsageError: unknown name.
    """
    OPTIMIZER.check(name)
    if name == "adam":
        return tf.keras.optimizers.Adam(learning_rate)

    def schedule(initial: float) -> Any:
        return tf.keras.optimizers.schedules.CosineDecay(initial, decay_steps) if decay_steps else initial

    if importlib.util.find_spec("tensorflow_addons"):
        # One fused kernel per tensor: a step of MobileNetV2 takes three quarters of the time it takes with
        # Keras' SGD.
        return addons_sgdw(schedule(learning_rate), schedule(learning_rate * weight_decay), momentum)
    return keras_sgdw(schedule(learning_rate), weight_decay, momentum)


def addons_sgdw(learning_rate: Any, decay: Any, momentum: float) -> Any:
    """SGDW of TensorFlow Addons; `decay` is its own rate: learning rate x weight decay."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Addons says at import that it is end-of-life; pyproject.toml knows
        import tensorflow_addons as tfa
    return tfa.optimizers.SGDW(learning_rate=learning_rate, weight_decay=decay, momentum=momentum)


def keras_sgdw(learning_rate: Any, weight_decay: float, momentum: float) -> Any:
    """Keras' own SGD with decoupled weight decay: the same update."""
    return tf.keras.optimizers.SGD(learning_rate, momentum=momentum, weight_decay=weight_decay)


def build(optimizer: Any, variables: Sequence[tf.Variable]) -> None:
    """Create all slots at once: an optimizer built for some tensors only refuses the others later."""
    build_optimizer(optimizer, variables)


def variables_of(optimizer: Any) -> list:
    """The optimizer's slots and counters."""
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def learning_rate_of(optimizer: Any) -> float:
    """The rate of the next update."""
    rate = optimizer.learning_rate
    if callable(rate) and not isinstance(rate, tf.Variable):
        rate = rate(optimizer.iterations)
    return float(rate)


def apply(optimizer: Any, gradients_and_variables: Sequence[tuple]) -> None:
    """Update the given tensors, and no other.

    Summing gradients over replicas is left out: each process has one (`Objective` averages over processes),
    and TensorFlow registers a function for every sum it traces and never forgets it, which would keep each
    selection's graph alive for good.
    """
    apply_gradients(optimizer, gradients_and_variables)


def forget_momentum(optimizer: Any, variables: Sequence[tf.Variable]) -> None:
    """Zero the momentum of tensors that stop training: much later it would push them in an old direction.

    Squared-gradient averages, as Adam keeps, stay: they only scale.
    """
    for slot in momentum_slots(optimizer, variables):
        slot.assign(tf.zeros_like(slot))
