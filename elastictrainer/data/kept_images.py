"""Images of each class that a run keeps for later ones: chosen, stored in one file, read again."""

import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Sequence, Tuple

import numpy as np

from elastictrainer.data.splits import ArraySplit, Split, decode_all, labels_in
from elastictrainer.errors import UsageError
from elastictrainer.runs.files import atomic_write

_ARRAYS = ("images", "labels", "ages", "class_names")


@dataclass(frozen=True)
class KeptImages:
    """A few images of each class, as the network takes them.

    Attributes:
        images: (n, H, W, 3) uint8.
        labels: (n,) int64.
        ages: (n,) int64: 0 for images of the latest run's data, 1 for those of the run before it, and so on.
        class_names: by label.
    """

    images: np.ndarray
    labels: np.ndarray
    ages: np.ndarray
    class_names: Tuple[str, ...]

    def as_split(self) -> ArraySplit:
        """Return the images to train on."""
        return ArraySplit(self.images, self.labels)

    def subset(self, chosen: np.ndarray) -> "KeptImages":
        """Return the images that `chosen`, (n,) bool or int, names."""
        return replace(self, images=self.images[chosen], labels=self.labels[chosen], ages=self.ages[chosen])

    def older(self) -> "KeptImages":
        """Return the same images, seen from the next run."""
        return replace(self, ages=self.ages + 1)

    def renamed(self, class_names: Sequence[str]) -> "KeptImages":
        """Return the same images with labels by `class_names`, which holds all their classes."""
        labels = labels_in(class_names, self.class_names)[self.labels]
        return replace(self, labels=labels, class_names=tuple(class_names))

    def limited(self, each: int) -> "KeptImages":
        """Return at most `each` images of a class, in equal shares of its runs, the latest first.

        Of one run's images of a class the first stay: they are in the order in which they were chosen.
        """
        chosen = np.zeros(len(self.labels), bool)
        for label in np.unique(self.labels):
            of_class = np.flatnonzero(self.labels == label)
            ages = self.ages[of_class]
            rank = np.zeros(len(ages), np.int64)  # of an image among those of its class and run
            for age in np.unique(ages):
                rank[ages == age] = np.arange((ages == age).sum())
            chosen[of_class[np.lexsort((ages, rank))[:each]]] = True
        return self.subset(chosen)

    def save(self, path: Path) -> None:
        """Write all into an `.npz` file, completely or not at all."""
        with atomic_write(path) as unfinished, open(unfinished, "wb") as file:
            names = np.array(self.class_names, dtype=np.str_)
            arrays = dict(zip(_ARRAYS, (self.images, self.labels, self.ages, names)))
            np.savez_compressed(file, **arrays)


def joined(parts: Sequence[KeptImages]) -> KeptImages:
    """Return the images of all `parts`, which have the same class names and image size."""
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS[:3]}
    return KeptImages(class_names=parts[0].class_names, **arrays)


def draw(split: Split, class_names: Sequence[str], each: int, size: Tuple[int, int], seed: int) -> KeptImages:
    """Draw `each` images of every class by chance, or as many as there are: images of age 0.

    Which stand first is by chance, too. With the same `seed` a larger number draws the images of a smaller
    one and more. DataError where one cannot be decoded.
    """
    labels = np.asarray(split.labels)
    numbers = np.zeros(0, np.int64)
    for label in range(len(class_names)):
        members = np.random.default_rng([seed, label]).permutation(np.flatnonzero(labels == label))
        numbers = np.append(numbers, members[:each])
    chosen = np.zeros(len(labels), bool)
    chosen[numbers] = True
    place = np.argsort(np.argsort(numbers))  # the split gives them in its own order
    images, ages = decode_all(split.subset(chosen), size)[place], np.zeros(len(numbers), np.int64)
    return KeptImages(images, labels[numbers].astype(np.int64), ages, tuple(class_names))


def read(path: Path) -> KeptImages:
    """Read the images that `KeptImages.save` wrote; UsageError where the file is damaged or another."""
    try:
        with np.load(path, allow_pickle=False) as file:
            images, labels, ages, names = (file[name] for name in _ARRAYS)
        whole = (
            (images.dtype, images.ndim, images.shape[-1]) == (np.uint8, 4, 3)
            and (labels.dtype.kind, ages.dtype.kind, names.dtype.kind, names.ndim) == ("i", "i", "U", 1)
            and labels.shape == ages.shape == images.shape[:1]
            and bool((labels >= 0).all() and (labels < len(names)).all() and (ages >= 0).all())
        )
        if not whole:
            raise ValueError("other arrays")
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, MemoryError) as error:
        raise UsageError(
            f"{path} cannot be read as kept images ({type(error).__name__}: {str(error)[:100]}). "
            "Put it back from a copy; or delete it, and they are taken from the run's data, if that is there."
        ) from None
    return KeptImages(images, labels, ages, tuple(map(str, names)))
