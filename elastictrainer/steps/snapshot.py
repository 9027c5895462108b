"""Snapshot and restore: run steps on live variables, then give every variable the bits it had."""

import contextlib
import tempfile
import zlib
from pathlib import Path
from typing import IO, Any, Iterable, Iterator, List, Optional

import numpy as np

from elastictrainer.steps.keras_compat.variables import Variable, tf_variables


class Snapshot:
    """The values that variables have now, by their number: in memory, or in a file."""

    def __init__(self, variables: Iterable[Variable], file: Optional[IO[bytes]] = None):
        """Keep the values in memory, or where there is a file one by one in that."""
        self._variables, self._file = tf_variables(variables), file
        self._values: List[Any] = []  # in a file: the offset in bytes, and an example that takes no memory
        for variable in self._variables:
            if file is None:
                # TensorFlow copies a buffer on write while a tensor holds it.
                self._values.append(variable.read_value())
            else:
                value = variable.numpy()
                self._values.append((file.tell(), np.broadcast_to(value.dtype.type(0), value.shape)))
                file.write(value.tobytes())
                file.flush()

    def __getitem__(self, number: int) -> Any:
        if self._file is None:
            return self._values[number]
        offset, like = self._values[number]
        self._file.seek(offset)
        return np.frombuffer(self._file.read(like.nbytes), like.dtype).reshape(like.shape)

    def restore(self) -> None:
        for number, variable in enumerate(self._variables):
            variable.assign(self[number])


@contextlib.contextmanager
def preserve_variables(variables: Iterable[Variable], folder: Optional[Path] = None) -> Iterator[Snapshot]:
    """Restore each variable, bit for bit, when the block ends or raises. Yields the values that it had.

    They are in memory, or in an unnamed file in `folder`, which disappears with the process.
    """
    with contextlib.nullcontext() if folder is None else tempfile.TemporaryFile(dir=folder) as file:
        before = Snapshot(variables, file)
        try:
            yield before
        finally:
            before.restore()


def digest(variables: Iterable[Variable]) -> int:
    """Return the checksum (32 bit) of the variables' values: another one where a bit of them has changed."""
    checksum = 0
    for variable in variables:
        checksum = zlib.crc32(variable.numpy().tobytes(), checksum)
    return checksum
