"""How the frozen work of a run is to be done once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from elastictrainer.errors import UsageError
from elastictrainer.registry import REUSE, REUSE_DTYPE


@dataclass(frozen=True)
class ReuseSettings:
    """What a run that records and replays needs to know.

    Attributes:
        reuse: "auto": record frozen work where that makes steps shorter; "off": do it in every step, as the
            paper does.
        dtype: "float16" or "float32": of what is stored. With float32 a run gives the same, bit for bit, as
            one that computes the same views again.
        memory: bytes that are kept in memory; a larger recording goes into a file.
        folder: of that file; None: the system's for temporary files.
        seed: of the order in which examples come again; None: in that of the recording.

    Raises:
        UsageError: an attribute out of range.
    """

    reuse: str = "auto"
    dtype: str = "float16"
    memory: int = 2 * 10**9
    folder: Optional[Path] = None
    seed: Optional[int] = 0

    def __post_init__(self) -> None:
        REUSE.check(self.reuse)
        REUSE_DTYPE.check(self.dtype)
        if self.memory < 0:
            raise UsageError(f"the memory for reuse must be at least 0 bytes, not {self.memory}.")
