"""Variables of a model: TensorFlow's behind Keras' own, their names, and the states of random numbers."""

from typing import Any, Iterable, List

import tensorflow as tf

from elastictrainer.steps.keras_compat.layers import layers_inside
from elastictrainer.steps.keras_compat.version import KERAS_3


def tf_variable(variable: Any) -> tf.Variable:
    """Return TensorFlow's variable that holds the value: a Keras 3 variable wraps one."""
    return variable if isinstance(variable, tf.Variable) else variable.value


def tf_variables(variables: Iterable[Any]) -> List[tf.Variable]:
    """Return TensorFlow's variable of each."""
    return [tf_variable(v) for v in variables]


def name_of(variable: Any) -> str:
    """Return the variable's name with its layers': `block/conv/kernel`."""
    return getattr(variable, "path", None) or variable.name.split(":")[0]


def random_states(model: tf.keras.Model) -> List[tf.Variable]:
    """Return the state variables of the model's random number generators, which are not among its weights."""
    states = {}
    for layer in [model, *layers_inside(model, recursive=True)]:
        for generator in getattr(layer, "_seed_generators", ()):  # Keras 3
            states[id(generator)] = tf_variable(generator.state)
    if not KERAS_3:
        for module in model.submodules:
            for value in vars(module).values():
                for candidate in (value, getattr(value, "_generator", None)):
                    if isinstance(candidate, tf.random.Generator):
                        states[id(candidate)] = candidate.state
    return list(states.values())


def use_random_variables() -> None:
    """Keep the random state of dropout and augmentation in variables; Keras 2 has it in ops by default."""
    if not KERAS_3:
        tf.keras.backend.experimental.enable_tf_random_generator()
