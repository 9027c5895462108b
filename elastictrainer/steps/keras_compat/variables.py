"""Variables of a model: TensorFlow's behind Keras' own, their names, the states of random numbers; and zeros
that variables share, which take no memory of their own until one of them is written.
"""

from typing import Any, Dict, Iterable, List

import tensorflow as tf

from elastictrainer.steps.keras_compat.layers import layers_inside
from elastictrainer.steps.keras_compat.version import KERAS_3

Variable = Any  # TensorFlow's, or Keras 3's own, which wraps one
Optimizer = Any  # of Keras, or of its older kind

_BLOCKS: Dict[tf.DType, tf.Tensor] = {}  # the largest that was asked for, by type
_BITS = {2: tf.int16, 4: tf.int32, 8: tf.int64}  # by the size of a number


def tf_variable(variable: Variable) -> tf.Variable:
    """Return TensorFlow's variable that holds the value, in its own precision.

    Keras 3 wraps it always, Keras 2 where layers compute in bfloat16; within their calls both give it cast.
    """
    if isinstance(variable, tf.Variable):
        return getattr(variable, "_variable", variable)
    return variable._value


def tf_variables(variables: Iterable[Variable]) -> List[tf.Variable]:
    return [tf_variable(v) for v in variables]


def name_of(variable: Variable) -> str:
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


def zeros_like(variable: tf.Variable) -> tf.Tensor:
    """Return zeros to assign to `variable`, which has its own memory again when it is next updated."""
    size = variable.shape.num_elements()
    block = _BLOCKS.get(variable.dtype)
    if block is None or block.shape[0] < size:
        block = _BLOCKS[variable.dtype] = tf.zeros([size], variable.dtype)
    # A part of the block and not a copy, where it ends at a multiple of 64 bytes.
    return tf.reshape(tf.slice(block, [0], [size]), variable.shape)


def share_zeros(variable: tf.Variable) -> None:
    """Have `variable` share its memory where all its bits are zero."""
    bits = _BITS.get(variable.dtype.size)
    if variable.dtype.is_floating and bits and not tf.reduce_any(tf.bitcast(variable, bits) != 0):
        variable.assign(zeros_like(variable))
