"""Which images a client has: a share of one data set, or its own folder."""

from pathlib import Path
from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

from elastictrainer.data.image_data import ImageData
from elastictrainer.data.splits import IndexedSplit, labels_in
from elastictrainer.data.user_images import FileSplit, Reading, class_folders, read_classes
from elastictrainer.errors import UsageError

_TRIALS = 1000


def dirichlet(
    labels: NDArray[Any], clients: int, concentration: float, seed: int, least: int = 1
) -> NDArray[np.int64]:
    """Divide examples among clients, each class in shares drawn from a Dirichlet distribution.

    Args:
        labels: (n,) int.
        clients: how many.
        concentration: below 1: each class is with few clients; above 10: about equal shares.
        seed: of the shares, and of which examples.
        least: examples that each client must get; shares are drawn again until it does.

    Returns:
        (n,) int: each example's client, from 0. UsageError where there are too few for so many clients.
    """
    labels = np.asarray(labels)
    if clients < 1 or clients * least > len(labels):
        raise UsageError(
            f"{len(labels)} images cannot be divided among {clients} clients, {least} each. Lower the number "
            "of clients (--federation-config num-supernodes=N) or batch-size."
        )
    if not concentration > 0:
        raise UsageError(f"concentration must be above 0, not {concentration:g}.")
    generator = np.random.default_rng(seed)
    for _ in range(_TRIALS):
        owner = np.empty(len(labels), np.int64)
        for label in np.unique(labels):
            of_class = generator.permutation(np.flatnonzero(labels == label))
            shares = generator.dirichlet(np.full(clients, concentration))
            ends = np.rint(np.cumsum(shares)[:-1] * len(of_class)).astype(int)
            for client, part in enumerate(np.split(of_class, ends)):
                owner[part] = client
        if np.bincount(owner, minlength=clients).min() >= least:
            return owner
    raise UsageError(
        f"with concentration={concentration:g} some of {clients} clients get fewer than {least} images: "
        "raise it, or lower the number of clients (--federation-config num-supernodes=N)."
    )


def own_images(folder: Path, class_names: Sequence[str]) -> IndexedSplit:
    """Return the images of a client's folder: CLASS/IMAGE, or train/CLASS/IMAGE; classes may be missing.

    UsageError where there is no folder, or it has none of the fleet's classes, or others.
    """
    folder = folder / "train" if (folder / "train").is_dir() else folder
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}: give the client's images (--node-config images=...).")
    classes = class_folders(folder)
    unknown = sorted(set(classes) - set(class_names))
    if unknown:
        raise UsageError(
            f"{folder} has the class {unknown[0]!r}, which the server does not have. Expected: CLASS/IMAGE "
            "with the classes of the server's data."
        )
    return read_classes(classes, Reading()).relabelled(labels_in(class_names, list(classes)))


def keep_decoded(data: ImageData) -> ImageData:
    """Return the same images, kept in memory where they are files: every round reads them again."""
    return data.in_memory() if isinstance(data.train_split, FileSplit) else data
