"""Images in folders, train/CLASS/IMAGE and test/CLASS/IMAGE: list them, check their headers, read them."""

from pathlib import Path
from typing import Dict, List, Tuple

import numpy as np

from elastictrainer.data.file_split import FileSplit
from elastictrainer.data.parts import VALIDATION_NAMES
from elastictrainer.data.pictures import SUFFIXES
from elastictrainer.data.reading import Reading, abbreviated, is_hidden
from elastictrainer.errors import UsageError

LAYOUT = (
    "Expected: train/CLASS/IMAGE, test/CLASS/IMAGE and perhaps val/CLASS/IMAGE, images being "
    f"{' '.join(SUFFIXES)}."
)


def read_folder(folder: Path, reading: Reading) -> Tuple[List[str], Dict[str, FileSplit]]:
    """Return the class names, in alphabetical order, and the parts: train, and test and val if any.

    Every file is opened and its header and end read. Pixels are decoded when training or evaluation reads
    them.

    Raises:
        UsageError: no training part, two validation parts, a class missing from a part, a class without
            images, an unreadable image.
    """
    if not (folder / "train").is_dir():
        raise UsageError(f"{folder} has no folder 'train'. {LAYOUT}")
    validation = [name for name in VALIDATION_NAMES if (folder / name).is_dir()]
    if len(validation) > 1:
        raise UsageError(
            f"{folder} has the folders {' and '.join(validation)}; one validation part is used: remove the "
            "others, or move them out."
        )
    folders = {"train": folder / "train", "test": folder / "test"}
    if validation:
        folders["val"] = folder / validation[0]
    folders = {part: path for part, path in folders.items() if path.is_dir()}
    classes_of = {path: class_folders(path) for path in folders.values()}
    names = sorted(set().union(*classes_of.values()))
    for path, classes in classes_of.items():
        missing = [name for name in names if name not in classes]
        if missing:
            raise UsageError(
                f"{path} lacks {abbreviated(missing)}, which another part of the data has. Add images there, "
                "or remove the class from all parts."
            )
    return names, {part: read_classes(path, names, reading) for part, path in folders.items()}


def class_folders(folder: Path) -> List[str]:
    """Return the names of the folders in a folder, without hidden ones, sorted; UsageError for none."""
    names = sorted(p.name for p in folder.iterdir() if p.is_dir() and not is_hidden(p.name))
    if not names:
        raise UsageError(f"{folder} has no class folder. {LAYOUT}")
    return names


def read_classes(folder: Path, names: List[str], reading: Reading) -> FileSplit:
    """Return the images in FOLDER/CLASS; UsageError for a class without one, or an unreadable image."""
    files_by_class = [images_in(folder / name, reading) for name in names]
    files = [file for files in files_by_class for file in files]
    labels = np.repeat(np.arange(len(names)), [len(files) for files in files_by_class])
    usable = reading.usable(files)
    for label, name in enumerate(names):
        if not usable[labels == label].any():
            raise UsageError(
                f"{folder / name} holds no image that can be read. Add some, or remove the class."
            )
    return FileSplit(np.array([str(file) for file in files])[usable], labels[usable])


def images_in(folder: Path, reading: Reading) -> List[Path]:
    """Return the image files directly in a class folder, without hidden ones, sorted; UsageError for none."""
    present = [p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and not is_hidden(p.name)]
    gone = [file for file in map(Path, reading.damaged) if file.parent == folder and not file.exists()]
    files = sorted(present + gone)
    if not files:
        raise UsageError(f"{folder} holds no image. {LAYOUT}")
    return files
