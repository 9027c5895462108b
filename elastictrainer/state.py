"""Running something on live variables and leaving every bit as it was."""

import contextlib
from typing import Iterable, Iterator

import tensorflow as tf

from elastictrainer.keras_stack import tf_variables


@contextlib.contextmanager
def restored(variables: Iterable[tf.Variable]) -> Iterator[None]:
    """Put each variable back to the bits it had, also when the block raises."""
    unique = list({id(v): v for v in tf_variables(variables)}.values())
    before = [v.read_value() for v in unique]  # TensorFlow copies a buffer on write while a tensor still holds it
    try:
        yield
    finally:
        for variable, value in zip(unique, before):
            variable.assign(value)
