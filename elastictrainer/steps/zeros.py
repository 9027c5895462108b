"""Zeros that variables share: they take no memory of their own until one of them is written."""

from typing import Dict

import tensorflow as tf

_BLOCKS: Dict[tf.DType, tf.Tensor] = {}  # the largest that was asked for, by type
_BITS = {2: tf.int16, 4: tf.int32, 8: tf.int64}  # by the size of a number


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
