"""Snapshot and restore: run steps on live variables, then give every variable the bits it had."""

import contextlib
import tempfile
import zlib
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, List, Optional, Tuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elastictrainer.steps.keras_compat.variables import Variable, tf_variables


@contextlib.contextmanager
def preserve_variables(
    variables: Iterable[Variable],
) -> Iterator[Callable[[Iterable[Variable]], List[tf.Tensor]]]:
    """Restore each variable, bit for bit, when the block ends or raises.

    Yields a function that restores the given ones at once, and returns their values.
    """
    unique = {id(v): v for v in tf_variables(variables)}
    # TensorFlow copies a buffer on write while a tensor holds it.
    before = {key: v.read_value() for key, v in unique.items()}

    def restore(chosen: Iterable[Variable]) -> List[tf.Tensor]:
        chosen = tf_variables(chosen)
        for variable in chosen:
            variable.assign(before[id(variable)])
        return [before[id(variable)] for variable in chosen]

    try:
        yield restore
    finally:
        restore(unique.values())


class StoredValues:
    """The values that variables have now, in an unnamed file, which disappears with the process."""

    def __init__(self, variables: Iterable[Variable], folder: Optional[Path] = None):
        """Store the values one by one, in a file in `folder`; None: the system's for temporary files."""
        self._variables = tf_variables(variables)
        self._file = tempfile.TemporaryFile(dir=folder)
        self._places: List[Tuple[int, Any]] = []  # offset in bytes; an example without values
        for variable in self._variables:
            value = variable.numpy()
            self._places.append((self._file.tell(), np.broadcast_to(value.dtype.type(0), value.shape)))
            self._file.write(value.tobytes())
        self._file.flush()

    def read(self, number: int) -> NDArray[Any]:
        offset, like = self._places[number]
        self._file.seek(offset)
        stored = self._file.read(like.nbytes)
        return np.frombuffer(stored, like.dtype).reshape(like.shape)

    def restore(self) -> None:
        for number, variable in enumerate(self._variables):
            variable.assign(self.read(number))

    def close(self) -> None:
        self._file.close()


def digest(variables: Iterable[Variable]) -> int:
    """Return the checksum (32 bit) of the variables' values: another one where a bit of them has changed."""
    checksum = 0
    for variable in variables:
        checksum = zlib.crc32(variable.numpy().tobytes(), checksum)
    return checksum
