"""A data set by its name: of a collection, any image folder, tables and arrays."""

from pathlib import Path
from typing import Any, List, Optional, Sequence, Tuple

from elastictrainer.data import hugging_face, tfds_data, user_data
from elastictrainer.data.image_data import ImageData
from elastictrainer.data.image_folder import FolderSplit, read_folder
from elastictrainer.data.splits import ArraySplit, Split
from elastictrainer.data.tfds_data import TFDS_CLASSES
from elastictrainer.errors import UsageError
from elastictrainer.registry import DATASET, HF, TFDS


def load(
    name: str,
    batch_size: int,
    image_size: Tuple[int, int],
    seed: int = 0,
    data_dir: Optional[str] = None,
    validation_split: Optional[float] = None,
) -> ImageData:
    """A data set by name, or the user's own images: a folder, a `.csv` table of files, or `.npz` arrays.

    Args:
        name: one of `registry.DATASET`; "tfds:" or "hf:" and a name there; or a path. A folder holds
            split/class/image, or class/image with `validation_split`, or what a builder of
            tensorflow-datasets has prepared.
        batch_size: of training.
        image_size: height and width to resize to.
        seed: of the training order, and of the choice of test images by `validation_split`.
        data_dir: where tensorflow-datasets or Hugging Face's datasets keep their data.
        validation_split: share of every class to test on, where the data has no test part of its own.

    Raises:
        UsageError: unknown name, data that is not on this machine and cannot be fetched, a malformed folder
            or file, a split asked for where there is one, or none where there is none.
    """
    DATASET.check(name)
    has_split = True
    names: Sequence[str]
    splits: Sequence[Split]
    if name == "demo":
        from elastictrainer.data import demo_digits

        names = demo_digits.CLASSES
        splits = [ArraySplit(*demo_digits.target(part)) for part in ("train", "test")]
    elif is_fetched(name):
        names, found = _collected(name, data_dir)
        has_split = len(found) == 2
        splits = found if has_split else _set_apart(name, found[0], names, validation_split, seed)
    else:
        names, splits, has_split = _from_path(Path(name), validation_split, seed)
    if has_split and validation_split is not None:
        raise UsageError(f"{name} has a test part of its own: leave out --validation-split.")
    return ImageData(name, tuple(names), splits[0], splits[1], batch_size, image_size, seed)


def is_fetched(name: str) -> bool:
    """Whether a data set may have to come over a network."""
    return name in TFDS_CLASSES or name.startswith((TFDS, HF))


def _collected(name: str, data_dir: Optional[str]) -> Tuple[List[str], List[Any]]:
    """Class names and splits of a data set of a collection: train, and test where there is one."""
    if name.startswith(HF):
        return hugging_face.load(name[len(HF) :], data_dir)
    return tfds_data.named(name.removeprefix(TFDS), data_dir)


def _set_apart(
    name: str, split: Any, names: Sequence[str], validation_split: Optional[float], seed: int
) -> List[Split]:
    """The training and the test part of a split, see `user_data.test_part`."""
    if validation_split is None:
        raise UsageError(
            f"{name} has no test part: --validation-split 0.2 sets a fifth of every class apart for testing."
        )
    is_test = user_data.test_part(split.read_labels(), list(names), validation_split, seed)
    return [split.part(~is_test), split.part(is_test)]


def _from_path(
    path: Path, validation_split: Optional[float], seed: int
) -> Tuple[Sequence[str], Sequence[Split], bool]:
    """Class names, the splits train and test, and whether they were in the data."""
    if tfds_data.is_prepared(path):
        names, found = tfds_data.prepared(path)
        if len(found) == 2:
            return names, found, True
        return names, _set_apart(str(path), found[0], names, validation_split, seed), False
    if path.is_dir():
        if validation_split is None or (path / "train").is_dir():
            return (*read_folder(path), True)
        names, items, labels = user_data.read_class_folders(path)
        is_test = None
    elif path.suffix == ".csv":
        (names, items, labels), is_test = user_data.read_table(path)
    elif path.suffix == ".npz":
        names, items, labels, is_test = user_data.read_arrays(path)
    else:
        raise UsageError(f"{path} is neither a folder nor a .csv or .npz file.")
    has_split = is_test is not None
    if is_test is None:
        if validation_split is None:
            raise UsageError(
                f"{path} has no test part: --validation-split 0.2 sets a fifth of every class apart for "
                "testing."
            )
        is_test = user_data.test_part(labels, names, validation_split, seed)
    parts = user_data.split_parts(items, labels, is_test)
    lacking = [name for k, name in enumerate(names) if not all((labels == k).any() for _, labels in parts)]
    if lacking:
        raise UsageError(f"{path}: class {lacking[0]!r} is not in both train and test.")
    kind = ArraySplit if path.suffix == ".npz" else FolderSplit
    return names, [kind(*part) for part in parts], has_split


def classes_of(name: str, validation_split: Optional[float] = None, data_dir: Optional[str] = None) -> int:
    """The number of classes of a data set, without fetching one of tensorflow-datasets."""
    if name in TFDS_CLASSES or name.startswith(TFDS):
        return tfds_data.classes_of(name.removeprefix(TFDS), data_dir)
    if name.startswith(HF):
        return len(_collected(name, data_dir)[0])
    return len(load(name, batch_size=1, image_size=(32, 32), validation_split=validation_split).class_names)
