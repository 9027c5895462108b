"""Data sets of tensorflow-datasets: by name, and any folder that its builders have prepared."""

import difflib
import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.data import parts
from elastictrainer.data.pictures import Size, decode
from elastictrainer.data.splits import Example, Split, in_graph
from elastictrainer.errors import UsageError, reason

# Classes of the registered data sets, so that a model can be profiled before its data is on the device.
TFDS_CLASSES = {"caltech_birds2011": 200, "oxford_iiit_pet": 37, "stanford_dogs": 120}
_SHUFFLE_BUFFER = 2048


@dataclass
class TfdsSplit(Split):
    """One split of a data set that tensorflow-datasets has prepared.

    Attributes:
        builder, split: of tensorflow-datasets.
        chosen: bool for each example in stored order; None: all.
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

    def fingerprint(self) -> Dict[str, Any]:
        info = self.builder.info
        split = info.splits[self.split]
        about = (info.full_name, split.num_bytes, split.shard_lengths)
        chosen = () if self.chosen is None else (np.packbits(self.chosen).tobytes(),)
        return {"contents": (*about, *chosen)}


def load_named(name: str, data_dir: Optional[str]) -> Tuple[List[str], Dict[str, TfdsSplit]]:
    """Load class names and parts (see `parts.name_parts`); fetch the data set if need be.

    Raises:
        UsageError: tensorflow-datasets has no such name, it holds no labelled images, or cannot be fetched.
    """
    builder = _builder(name, data_dir)
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
    """Return the number of classes of a data set, which is not fetched; UsageError as from `load_named`."""
    return TFDS_CLASSES.get(name) or len(_builder(name, data_dir).info.features["label"].names)


def load_prepared(folder: Path) -> Tuple[List[str], Dict[str, TfdsSplit]]:
    """Load class names and parts of a folder such as `~/tensorflow_datasets/NAME/1.0.0`, as `load_named`."""
    import tensorflow_datasets as tfds

    return _parts(_image_builder(tfds.builder_from_directory, str(folder)), str(folder))


def _builder(name: str, data_dir: Optional[str]) -> Any:
    import tensorflow_datasets as tfds

    try:
        return _image_builder(tfds.builder, name, data_dir=data_dir)
    except tfds.core.registered.DatasetNotFoundError:
        near = difflib.get_close_matches(name, tfds.list_builders(with_community_datasets=False), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UsageError(
            f"tensorflow-datasets has no {name!r}.{hint} Its names: https://www.tensorflow.org/datasets/catalog"
        ) from None


def _image_builder(make: Callable[..., Any], name: str, **options: Any) -> Any:
    """Return a builder of labelled images; DatasetNotFoundError where there is none of that name."""
    import tensorflow_datasets as tfds

    try:
        builder = make(name, **options)
    except tfds.core.registered.DatasetNotFoundError:
        raise
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
    return builder.info.features["label"].names, parts.name_parts(name, splits)
