"""Snapshot and restore: run steps on live variables, then give every variable the bits it had."""

import contextlib
import zlib
from typing import Any, Callable, Iterable, Iterator, List

import tensorflow as tf

from elastictrainer.steps.keras_compat import tf_variables


@contextlib.contextmanager
def preserve_variables(variables: Iterable[Any]) -> Iterator[Callable[[Iterable[Any]], List[tf.Tensor]]]:
    """Restore each variable, bit for bit, when the block ends or raises.

    Yields:
        A function that restores the given variables at once, and returns their values.
    """
    unique = {id(v): v for v in tf_variables(variables)}
    # TensorFlow copies a buffer on write while a tensor holds it.
    before = {key: v.read_value() for key, v in unique.items()}

    def restore(chosen: Iterable[Any]) -> List[tf.Tensor]:
        chosen = tf_variables(chosen)
        for variable in chosen:
            variable.assign(before[id(variable)])
        return [before[id(variable)] for variable in chosen]

    try:
        yield restore
    finally:
        restore(unique.values())


def digest(variables: Iterable[Any]) -> int:
    """Return the checksum (32 bit) of the variables' values: another one where a bit of them has changed."""
    checksum = 0
    for variable in variables:
        checksum = zlib.crc32(variable.numpy().tobytes(), checksum)
    return checksum
