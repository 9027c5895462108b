"""A data set by its name: a published one, the demo's, a folder or a table of the user's images."""

from pathlib import Path
from typing import Dict, Mapping, Optional, Sequence, Tuple

from elastictrainer.data import demo_digits, published, user_images
from elastictrainer.data.image_data import ImageData
from elastictrainer.data.published import TFDS_CLASSES
from elastictrainer.data.splits import UNSPLIT, ArraySplit, Split, split_dataset
from elastictrainer.data.user_images import Reading
from elastictrainer.errors import UsageError
from elastictrainer.registry import DATASET, HF, TFDS


def load(
    name: str,
    batch_size: int,
    image_size: Tuple[int, int],
    seed: int = 0,
    data_dir: Optional[str] = None,
    validation_split: Optional[float] = None,
    test_split: Optional[float] = None,
    reading: Optional[Reading] = None,
) -> ImageData:
    """Load a data set by name, or the user's own images: a folder, or a `.csv` table of files.

    Args:
        name: one of `registry.DATASET`; "tfds:" or "hf:" and a name there; or a path. A folder holds
            part/class/image, or class/image with `test_split`, or what a builder of tensorflow-datasets has
            prepared.
        seed: of the minibatches' order, and of what is set apart.
        data_dir: folder of tensorflow-datasets' or Hugging Face's data.
        validation_split, test_split: shares of every class to set apart, see `splits.split_dataset`.
        reading: settings for images and labels; None: all images are read.

    Raises:
        UsageError: unknown name, data that is not on this machine and cannot be fetched, a malformed folder
            or file, fewer than two classes, a part asked for where there is one, or none to test on.
    """
    names, parts = load_parts(name, data_dir, reading)
    parts = split_dataset(name, names, parts, test_split, validation_split, seed)
    return ImageData(name, tuple(names), parts, batch_size, image_size, seed)


def load_parts(
    name: str, data_dir: Optional[str] = None, reading: Optional[Reading] = None
) -> Tuple[Sequence[str], Dict[str, Split]]:
    """Return class names and parts as they come, train, test and val, or UNSPLIT alone; else as `load`."""
    DATASET.check(name)
    _require_one(name)
    reading = reading or Reading()
    if reading.label_column is not None and not name.startswith(HF):
        raise UsageError(
            f"--label-column {reading.label_column} goes with hf:NAME alone, not {name}: leave it out."
        )
    names: Sequence[str]
    parts: Mapping[str, Split]
    if name == "demo":
        names = demo_digits.CLASSES
        parts = {part: ArraySplit(*demo_digits.digits(part)) for part in ("train", "test")}
    elif name.startswith(HF):
        names, parts = published.load_hub(name[len(HF) :], data_dir, reading.label_column)
    elif _is_tfds(name):
        names, parts = published.load_tfds(name.removeprefix(TFDS), data_dir)
    else:
        names, parts = _load_path(Path(name), reading)
    if len(names) < 2:
        raise UsageError(f"{name} has {len(names)} class(es); classification needs at least two.")
    return names, dict(parts)


def _is_tfds(name: str) -> bool:
    return name in TFDS_CLASSES or name.startswith(TFDS)


def _require_one(name: str) -> None:
    """Refuse a name that is that of a known data set and of a folder here."""
    if (name == "demo" or name in TFDS_CLASSES) and Path(name).exists():
        raise UsageError(
            f"{name} is a known data set, and there is a folder {name} here. Write ./{name} for the folder; "
            "for the other start the command in another place."
        )


def _load_path(path: Path, reading: Reading) -> Tuple[Sequence[str], Mapping[str, Split]]:
    if (path / "dataset_info.json").is_file():  # what a builder has written
        return published.load_prepared(path)
    if path.is_dir():
        if any((path / part).is_dir() for part in ("train", "test")):
            return user_images.read_folder(path, reading)
        classes = user_images.class_folders(path)
        return list(classes), {UNSPLIT: user_images.read_classes(classes, reading)}
    if path.suffix.lower() == ".csv":
        return user_images.read_table(path, reading)
    if path.suffix == ".npz":
        raise UsageError(
            f"{path}: arrays are not read here any more. Trainer.fit takes arrays (docs/keras.md); or write "
            "them as image files, FOLDER/CLASS/IMAGE."
        )
    raise UsageError(f"{path} is neither a folder nor a .csv file.")


def count_classes(name: str, data_dir: Optional[str] = None, reading: Optional[Reading] = None) -> int:
    """Return the number of classes of a data set, without fetching one of tensorflow-datasets."""
    _require_one(name)
    if _is_tfds(name):
        return published.count_classes(name.removeprefix(TFDS), data_dir)
    return len(load_parts(name, data_dir, reading)[0])
