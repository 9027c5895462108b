"""Settings of the activation cache."""

from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from elastictrainer.errors import UsageError
from elastictrainer.registry import ACTIVATION_CACHE, ACTIVATION_CACHE_DTYPE, Choice
from elastictrainer.runs import environment

# Bytes. Most caches of MobileNetV2 on 3,000 images of 224x224 have half of it; a larger one is a file.
_MOST = 2 * 10**9
_CHOICE = Choice("activation-cache", (*ACTIVATION_CACHE.names, "always"))  # a command's data is always steady


@dataclass(frozen=True)
class CacheSettings:
    """Settings of a run's activation cache.

    Attributes:
        mode: "auto": cache activations where that makes steps shorter; "off": compute them in every step,
            as the paper does; "always": as "auto", also from a tf.data.Dataset of which it is not known that
            every epoch gives the same examples.
        dtype: "float16" or "float32", of the stored activations. With float32 the result is that of computing
            the same augmented copies again, up to the last bit where TensorFlow fuses ops across the cut.
        memory: bytes that are kept in memory; a larger cache goes into a file. None: 2 GB, or a
            quarter of a smaller machine's.
        folder: of that file; None: the system's for temporary files.
        seed: of the order in which examples come again; None: minibatches come as they were written.

    Raises:
        UsageError: an attribute out of range.
    """

    mode: str = "auto"
    dtype: str = "float16"
    memory: Optional[int] = None
    folder: Optional[Path] = None
    seed: Optional[int] = 0

    def __post_init__(self) -> None:
        _CHOICE.check(self.mode)
        ACTIVATION_CACHE_DTYPE.check(self.dtype)
        if self.memory is not None and self.memory < 0:
            raise UsageError(
                f"the memory of the activation cache must be at least 0 bytes, not {self.memory}."
            )

    @property
    def kept_bytes(self) -> int:
        """Return the most bytes of a cache in memory."""
        # The training step itself takes as much again on a small device.
        return min(_MOST, environment.memory_bytes() // 4) if self.memory is None else self.memory
