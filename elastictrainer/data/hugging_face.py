"""Image sets of Hugging Face's `datasets`: of its hub by name, or a copy on this machine."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from elastictrainer.data.parts import name_parts
from elastictrainer.data.pictures import Size, decode
from elastictrainer.data.reading import Reading
from elastictrainer.data.splits import IndexedSplit
from elastictrainer.errors import UsageError, reason


@dataclass
class HubSplit(IndexedSplit):
    """A split whose images are cells of a table. They are read and decoded when they are needed.

    Attributes:
        name: of the data set and the split, for messages.
        table: a datasets.Dataset.
        column: of its images, encoded.
        rows: (n,) int, their numbers in the table.
        labels: (n,) int.
    """

    name: str
    table: Any
    column: str
    rows: np.ndarray
    labels: np.ndarray

    def name_of(self, number: int) -> str:
        return f"{self.name}, row {self.rows[number]}"

    def subset(self, chosen: np.ndarray) -> "HubSplit":
        return replace(self, rows=self.rows[chosen], labels=self.labels[chosen])

    def image(self, number: int, size: Size) -> np.ndarray:
        cell = self.table[int(self.rows[number])][self.column]
        return decode(cell["bytes"] or cell["path"], size)

    def fingerprint(self) -> Dict[str, Any]:
        """Return the size of each image and, where it is a file of its own, that file's name."""
        import pyarrow.compute

        cells = self.table.select_columns([self.column]).with_format("arrow")[:][self.column]
        sizes = pyarrow.compute.binary_length(pyarrow.compute.struct_field(cells, "bytes")).to_pylist()
        paths = pyarrow.compute.struct_field(cells, "path").to_pylist()
        contents = []
        for row, label in zip(map(int, self.rows), map(int, self.labels)):
            path, size = paths[row] or "", sizes[row]
            contents.append((os.path.basename(path), os.path.getsize(path) if size is None else size, label))
        return {"contents": contents}


def load(source: str, cache_dir: Optional[str], reading: Reading) -> Tuple[List[str], Dict[str, HubSplit]]:
    """Return class names and parts (see `parts.name_parts`). A test split without any label is left out.

    Args:
        source: a folder that `save_to_disk` has written, or with parquet files or images; a .parquet file; or
            a name in the hub, perhaps with a configuration: "owner/name:configuration".
        cache_dir: where `datasets` keeps its downloads and conversions; None: its default.
        reading: says which column has the labels.

    Raises:
        UsageError: `datasets` is not installed, the data cannot be fetched or read, holds no labelled images,
            or it is not known which column has the labels.
    """
    try:
        import datasets
    except ImportError as error:
        raise UsageError(
            f"hf:{source} needs Hugging Face's datasets ({error}): pip install '.[hf]' in the folder of the "
            "clone"
        ) from None
    try:
        tables = _read(datasets, source, cache_dir)
    except Exception as error:  # whatever its readers and its downloader meet
        raise UsageError(
            f"hf:{source} cannot be loaded ({reason(error)}). It is a name in Hugging Face's hub, or a "
            "folder: one that save_to_disk has written, or one with .parquet files, or with images."
        ) from None
    return _read_labels(f"hf:{source}", tables, reading)


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


def _read_labels(
    name: str, tables: Dict[str, Any], reading: Reading
) -> Tuple[List[str], Dict[str, HubSplit]]:
    """Return class names and splits of tables that hold an image and a label in each row."""
    import datasets

    features = name_parts(name, tables)["train"].features
    image, label = _columns(name, features, reading.label_column)
    # What has no label is None, or -1 among numbers. Some collections keep back those of their test images.
    values = {split: table.select_columns([label])[:][label] for split, table in tables.items()}
    if all(value in (None, -1) for value in values.get("test", [0])):
        del tables["test"]
    parts = name_parts(name, {split: (table, values[split]) for split, table in tables.items()})
    if isinstance(features[label], datasets.ClassLabel):
        names = list(features[label].names)
        number_of: Dict[Any, int] = {number: number for number in range(len(names))}
    else:
        known = {value for _, labels in parts.values() for value in labels if value is not None}
        names = sorted(map(str, known))
        number_of = {value: names.index(str(value)) for value in known}
    splits = {}
    for part, (table, labels) in parts.items():
        numbers = np.array([number_of.get(value, -1) for value in labels], np.int64)
        if (numbers < 0).any():
            raise UsageError(f"{name}: {(numbers < 0).sum()} images of {part} have no label.")
        encoded = table.select_columns([image]).cast_column(image, datasets.Image(decode=False))
        rows = np.arange(len(numbers))
        splits[part] = HubSplit(f"{name}, {part}", encoded, image, rows, numbers)
    return names, splits


def _columns(name: str, features: Any, asked: Optional[str]) -> Tuple[str, str]:
    """Return the columns of images and labels; UsageError where there is none, or it is not known which."""
    import datasets

    images = [key for key, kind in features.items() if isinstance(kind, datasets.Image)]
    classes = [key for key, kind in features.items() if isinstance(kind, datasets.ClassLabel)]
    labels = [key for key in features if key not in images]
    if asked is not None and asked not in labels:
        raise UsageError(f"--label-column {asked}: {name} has {', '.join(labels)}.")
    found = [asked] if asked else ["label"] if "label" in features else classes
    if not images or not found:
        raise UsageError(
            f"{name} has the columns {', '.join(features)}; needed: one of images, and a label (the column "
            "label, the only one of classes, or --label-column NAME)."
        )
    if len(found) > 1:
        raise UsageError(
            f"{name} has labels in the columns {', '.join(found)}: name one (--label-column {found[0]})."
        )
    return images[0], found[0]
