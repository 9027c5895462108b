"""Published image sets: of tensorflow-datasets by name or in a folder, and of Hugging Face's `datasets`."""

import difflib
import functools
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.data.pictures import Size, decode
from elastictrainer.data.splits import (
    Contents,
    Example,
    IndexedSplit,
    Split,
    as_class_name,
    in_graph,
    name_parts,
)
from elastictrainer.errors import UsageError, reason

# Classes of the registered data sets, so that a model can be profiled before its data is on the device.
TFDS_CLASSES = {"caltech_birds2011": 200, "oxford_iiit_pet": 37, "stanford_dogs": 120}
_SHUFFLE_BUFFER = 2048


@dataclass
class TfdsSplit(Split):
    """A `split` of a data set that the `builder` of tensorflow-datasets has prepared.

    `chosen` is a bool for each example in stored order; None: all.
    """

    builder: Any
    split: str
    chosen: Optional[np.ndarray] = None

    @property
    def count(self) -> int:
        if self.chosen is not None:
            return int(self.chosen.sum())
        return int(self.builder.info.splits[self.split].num_examples)

    @functools.cached_property
    def labels(self) -> np.ndarray:  # type: ignore[override]
        """Return (n,) int, in the stored order; the records are read once."""
        labels = self.ordered()(None).map(lambda example: example["label"])
        return np.fromiter(labels.as_numpy_iterator(), np.int64, self.count)

    def subset(self, chosen: np.ndarray) -> "TfdsSplit":
        if self.chosen is not None:
            within, chosen = chosen, self.chosen.copy()
            chosen[self.chosen] = within
        return replace(self, chosen=chosen)

    def ordered(self) -> Callable[[Optional[tf.Tensor]], tf.data.Dataset]:
        import tensorflow_datasets as tfds

        # Encoded images are shuffled, decoded ones would fill the memory of a small device.
        encoded = self.builder.as_dataset(
            split=self.split, decoders={"image": tfds.decode.SkipDecoding()}, shuffle_files=False
        )
        if self.chosen is not None:
            chosen = tf.constant(self.chosen)
            encoded = encoded.enumerate().filter(lambda k, _: chosen[k]).map(lambda _, example: example)

        def examples(seed: Optional[tf.Tensor]) -> tf.data.Dataset:
            if seed is None:
                return encoded
            # TensorFlow compares the graph's seed and this one with zero, which fails for a tensor where
            # the former is zero.
            tf.compat.v1.set_random_seed(1)
            mixed = tf.random.stateless_uniform((), seed, 0, 2**31 - 1, tf.int64)
            return encoded.shuffle(min(self.count, _SHUFFLE_BUFFER), mixed, reshuffle_each_iteration=False)

        return examples

    def decoder(self, size: Size) -> Callable[[Any], Example]:
        read = in_graph(lambda content: decode(content, size), size)
        return lambda record: (read(record["image"]), record["label"])

    def fingerprint(self) -> Contents:
        info = self.builder.info
        split = info.splits[self.split]
        about = (info.full_name, split.num_bytes, split.shard_lengths)
        chosen = () if self.chosen is None else (np.packbits(self.chosen).tobytes(),)
        return {"contents": (*about, *chosen)}


def load_tfds(name: str, data_dir: Optional[str]) -> Tuple[List[str], Dict[str, TfdsSplit]]:
    """Load class names and parts (see `splits.name_parts`); fetch the data set if need be.

    UsageError for a name that tensorflow-datasets has not, no labelled images, or what cannot be fetched.
    """
    builder = _builder("builder", name, data_dir=data_dir)
    home = data_dir or "~/tensorflow_datasets"
    try:
        builder.download_and_prepare()
    except Exception as error:  # tensorflow-datasets raises whatever its downloader met
        raise UsageError(
            f"{name} is not in {home} and could not be downloaded ({reason(error)}). Copy prepared data to "
            f"{home}/{name}, or its archives to {home}/downloads/manual, or name another place with "
            "--data-dir; --dataset also takes a folder of your own images. For a first look without any "
            "data: bash scripts/demo.sh"
        ) from None
    return _parts(builder, name)


def count_classes(name: str, data_dir: Optional[str] = None) -> int:
    """Return the number of classes of a data set, which is not fetched; UsageError as from `load_tfds`."""
    if name in TFDS_CLASSES:
        return TFDS_CLASSES[name]
    return len(_builder("builder", name, data_dir=data_dir).info.features["label"].names)


def load_prepared(folder: Path) -> Tuple[List[str], Dict[str, TfdsSplit]]:
    """Load class names and parts of a folder such as `~/tensorflow_datasets/NAME/1.0.0`, as `load_tfds`."""
    return _parts(_builder("builder_from_directory", str(folder)), str(folder))


def _builder(maker: str, name: str, **options: Any) -> Any:
    """Return a builder of labelled images, as this function of tensorflow-datasets makes it."""
    import tensorflow_datasets as tfds

    try:
        builder = getattr(tfds, maker)(name, **options)
    except tfds.core.registered.DatasetNotFoundError:
        near = difflib.get_close_matches(name, tfds.list_builders(with_community_datasets=False), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UsageError(
            f"tensorflow-datasets has no {name!r}.{hint} Its names: https://www.tensorflow.org/datasets/catalog"
        ) from None
    except Exception as error:  # whatever is wrong with a builder, a version, or a damaged description
        raise UsageError(f"tensorflow-datasets cannot read {name}: {reason(error)}") from None
    features = builder.info.features
    if not {"image", "label"} <= set(features.keys()) or not getattr(features["label"], "names", None):
        raise UsageError(
            f"{name} has the features {', '.join(sorted(features.keys()))}; needed: an image, and a label "
            "with class names."
        )
    return builder


def _parts(builder: Any, name: str) -> Tuple[List[str], Dict[str, TfdsSplit]]:
    splits = {split: TfdsSplit(builder, split) for split in builder.info.splits}
    # Some collections keep the classes of their test images back.
    first = splits["test"].ordered()(None).take(1) if "test" in splits else ()
    if any(example["label"] < 0 for example in first):
        del splits["test"]
    names = list(map(as_class_name, builder.info.features["label"].names))
    return names, name_parts(name, splits)


@dataclass
class HubSplit(IndexedSplit):
    """A split whose images are cells of a table. They are read and decoded when they are needed."""

    name: str  # of the data set and the split, for messages
    table: Any  # a datasets.Dataset
    column: str  # of its images, encoded
    rows: np.ndarray  # (n,) int, their numbers in the table
    labels: np.ndarray  # (n,) int

    def name_of(self, number: int) -> str:
        return f"{self.name}, row {self.rows[number]}"

    def subset(self, chosen: np.ndarray) -> "HubSplit":
        return replace(self, rows=self.rows[chosen], labels=self.labels[chosen])

    def image(self, number: int, size: Size) -> np.ndarray:
        cell = self.table[int(self.rows[number])][self.column]
        return decode(cell["bytes"] or cell["path"], size)

    def fingerprint(self) -> Contents:
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


def load_hub(
    source: str, cache_dir: Optional[str], label_column: Optional[str]
) -> Tuple[List[str], Dict[str, HubSplit]]:
    """Return class names and parts (see `splits.name_parts`). A test split without any label is left out.

    `source` is a folder that `save_to_disk` has written, or with parquet files or images; a .parquet file; or
    a name in the hub, perhaps with a configuration: "owner/name:configuration". `datasets` keeps its
    downloads in `cache_dir`, None: its default. Labels are in `label_column`; None: `label`, or the only one
    of classes. UsageError where `datasets` is missing, or the data cannot be read, or has no labelled images,
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
    return _read_labels(f"hf:{source}", tables, label_column)


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
    name: str, tables: Dict[str, Any], label_column: Optional[str]
) -> Tuple[List[str], Dict[str, HubSplit]]:
    """Return class names and splits of tables that hold an image and a label in each row."""
    import datasets

    features = name_parts(name, tables)["train"].features
    image, label = _columns(name, features, label_column)
    for split, table in tables.items():
        lacking = [column for column in (image, label) if column not in table.column_names]
        if lacking:
            raise UsageError(f"{name}: the split {split} has no column {lacking[0]}, which train has.")
    values = {split: table.select_columns([label])[:][label] for split, table in tables.items()}
    if any(isinstance(value, (list, dict)) for column in values.values() for value in column):
        raise UsageError(
            f"{name}: the column {label} has several values in a row. An image has one label: name another "
            "column (--label-column NAME)."
        )
    # What has no label is None, or -1 among numbers. Some collections keep back those of their test images.
    if all(value in (None, -1) for value in values.get("test", [0])):
        del tables["test"]
    parts = name_parts(name, {split: (table, values[split]) for split, table in tables.items()})
    if isinstance(features[label], datasets.ClassLabel):
        names = list(map(as_class_name, features[label].names))
        number_of: Dict[Any, int] = {number: number for number in range(len(names))}
    else:
        known = {value for _, labels in parts.values() for value in labels if value is not None}
        name_of = {value: as_class_name(str(value)) for value in known}
        names = sorted(set(name_of.values()))
        number_of = {value: names.index(name) for value, name in name_of.items()}
    splits = {}
    for part, (table, labels) in parts.items():
        numbers = np.array([number_of.get(value, -1) for value in labels], np.int64)
        if (numbers < 0).any():
            raise UsageError(f"{name}: {(numbers < 0).sum()} images of {part} have no label.")
        encoded = table.select_columns([image]).cast_column(image, datasets.Image(decode=False))
        empty = encoded.data.column(image).null_count
        if empty:
            raise UsageError(f"{name}: {empty} rows of {part} have no image. Leave them out of the data.")
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
