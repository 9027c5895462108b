"""Image sets of Hugging Face's `datasets`: of its hub by name, or a copy on this machine."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.data.parts import of_splits
from elastictrainer.data.pictures import MEMORY, decode_content
from elastictrainer.data.reading import Reading, abbreviated
from elastictrainer.data.resizing import resized
from elastictrainer.data.splits import IndexedSplit
from elastictrainer.errors import DamagedImages, UsageError


@dataclass
class HubSplit(IndexedSplit):
    """A split whose images are cells of a table. They are read and decoded when they are needed.

    Attributes:
        name: of the data set and the split, for messages.
        table: a datasets.Dataset.
        column: of its images, encoded.
        rows: (n,) int, their numbers in the table.
        labels: (n,) int.
        memory: bytes that decoding an image may take.
    """

    name: str
    table: Any
    column: str
    rows: np.ndarray
    labels: np.ndarray
    memory: int = MEMORY

    def subset(self, chosen: np.ndarray) -> "HubSplit":
        """Return the examples that `chosen`, (n,) bool, marks."""
        return replace(self, rows=self.rows[chosen], labels=self.labels[chosen])

    def reader(self, size: Tuple[int, int]) -> Callable[[tf.Tensor], tf.Tensor]:
        """Return a function from an image's number to the image."""

        def image(number: tf.Tensor) -> tf.Tensor:
            pixels = tf.numpy_function(lambda at: self._pixels(at, size), [number], tf.uint8)
            return resized(tf.ensure_shape(pixels, (None, None, 3)), size)

        return image

    def _pixels(self, number: Any, size: Tuple[int, int] = (1, 1)) -> np.ndarray:
        cell = self.table[int(self.rows[int(number)])][self.column]
        return decode_content(cell["bytes"] or Path(cell["path"]).read_bytes(), size, self.memory)

    def find_corrupt(self) -> Optional[DamagedImages]:
        """Name the damaged images, after decoding every image of the split."""
        problems = list(self._problems())
        if not problems:
            return None
        return DamagedImages(f"{self.name}: {len(problems)} damaged image(s): {abbreviated(problems)}.")

    def _problems(self) -> Iterator[str]:
        for number, row in enumerate(self.rows):
            try:
                self._pixels(number)
            except Exception as error:  # Pillow raises many kinds
                yield f"row {row} ({error})"

    def fingerprint(self) -> Dict[str, Any]:
        """Return the size of each image and, where it is a file of its own, that file's name."""
        import pyarrow.compute

        cells = self.table.select_columns([self.column]).with_format("arrow")[:][self.column]
        sizes = pyarrow.compute.binary_length(pyarrow.compute.struct_field(cells, "bytes")).to_pylist()
        paths = pyarrow.compute.struct_field(cells, "path").to_pylist()
        files = [file["filename"] for file in self.table.cache_files]
        contents = []
        for row, label in zip(map(int, self.rows), map(int, self.labels)):
            path, size = paths[row] or "", sizes[row]
            if size is None:
                files.append(path)
                size = os.path.getsize(path)
            contents.append((os.path.basename(path), size, label))
        return {"contents": contents, "times": [os.stat(file).st_mtime_ns for file in files]}


def load(source: str, cache_dir: Optional[str], reading: Reading) -> Tuple[List[str], Dict[str, HubSplit]]:
    """Return class names and parts (see `parts.of_splits`). A test split without any label is left out.

    Args:
        source: a folder that `save_to_disk` has written, or with parquet files or images; a .parquet file; or
            a name in the hub, perhaps with a configuration: "owner/name:configuration".
        cache_dir: folder in which `datasets` keeps its downloads and conversions; None: its default.
        reading: says what decoding an image may take, and which column has the labels.

    Raises:
        UsageError: `datasets` is not installed, the data cannot be fetched or read, holds no labelled images,
            or it is not known which column has the labels.
    """
    try:
        import datasets
    except ImportError as error:
        raise UsageError(
            f'hf:{source} needs Hugging Face\'s datasets ({error}): pip install "elastictrainer[hf]"'
        ) from None
    try:
        tables = _read(datasets, source, cache_dir)
    except Exception as error:  # whatever its readers and its downloader meet
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise UsageError(
            f"hf:{source} cannot be had ({reason}). It is a name in Hugging Face's hub, or a folder: one "
            "that save_to_disk has written, or one with .parquet files, or with images."
        ) from None
    return _labelled(f"hf:{source}", tables, reading)


def _read(datasets: Any, source: str, cache_dir: Optional[str]) -> Dict[str, Any]:
    """Return a datasets.Dataset by split. No code comes from the data: builders are those of the package."""
    path = Path(source)
    if path.suffix == ".parquet" and path.is_file():
        read = datasets.load_dataset("parquet", data_files=str(path), cache_dir=cache_dir)
    elif not path.is_dir():
        name, _, configuration = source.partition(":")
        read = datasets.load_dataset(name, configuration or None, cache_dir=cache_dir)
    elif (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
        read = datasets.load_from_disk(str(path))
    else:
        kind = "parquet" if next(path.rglob("*.parquet"), None) else "imagefolder"
        read = datasets.load_dataset(kind, data_dir=str(path), cache_dir=cache_dir)
    return dict(read) if isinstance(read, dict) else {"train": read}


def _labelled(name: str, tables: Dict[str, Any], reading: Reading) -> Tuple[List[str], Dict[str, HubSplit]]:
    """Return class names and splits of tables that hold an image and a label in each row."""
    import datasets

    features = of_splits(name, tables)["train"].features
    images = [key for key, kind in features.items() if isinstance(kind, datasets.Image)]
    classes = [key for key, kind in features.items() if isinstance(kind, datasets.ClassLabel)]
    label = _label_column(name, features, images, classes, reading.label_column)

    def of(table: Any) -> Any:
        return table.select_columns([label])[:][label]

    if "test" in tables and all(value in (None, -1) for value in of(tables["test"])):
        # Some collections keep back the labels of their test images.
        tables = {split: table for split, table in tables.items() if split != "test"}
    parts = of_splits(name, tables)
    values = {part: of(table) for part, table in parts.items()}
    if label in classes:
        names, labels = list(features[label].names), values
    else:
        names = sorted({str(value) for column in values.values() for value in column if value is not None})
        number = {value: k for k, value in enumerate(names)}
        labels = {
            part: [None if value is None else number[str(value)] for value in column]
            for part, column in values.items()
        }
    splits = {}
    for part, table in parts.items():
        numbers = np.array([-1 if value is None else value for value in labels[part]], np.int64)
        if (numbers < 0).any():
            raise UsageError(f"{name}: {(numbers < 0).sum()} images of {part} have no label.")
        plain = table.select_columns([images[0]]).cast_column(images[0], datasets.Image(decode=False))
        splits[part] = HubSplit(
            f"{name}, {part}", plain, images[0], np.arange(len(numbers)), numbers, reading.memory
        )
    return names, splits


def _label_column(
    name: str, features: Any, images: List[str], classes: List[str], asked: Optional[str]
) -> str:
    """Return the column of the labels; UsageError where there is none, or it is not known which."""
    labels = [key for key in features if key not in images]
    if asked is not None and asked not in labels:
        raise UsageError(f"--label-column {asked}: {name} has {', '.join(labels)}.")
    if images and asked is None and "label" not in features and len(classes) > 1:
        raise UsageError(
            f"{name} has labels in the columns {', '.join(classes)}: name one (--label-column {classes[0]})."
        )
    found = asked or ("label" if "label" in features else classes[0] if classes else None)
    if not images or found is None:
        raise UsageError(
            f"{name} has the columns {', '.join(features)}; needed: one of images, and a label (the column "
            "label, the only one of classes, or --label-column NAME)."
        )
    return found
