"""The parts of a data set: those it comes with, and those that are set apart from its training images."""

from typing import Dict, Mapping, Optional, Sequence, Tuple, TypeVar

import numpy as np

from elastictrainer.data.file_split import FileSplit
from elastictrainer.data.groups import grouped_mask
from elastictrainer.data.splits import Split
from elastictrainer.errors import UsageError

PARTS = {"train": "training", "val": "validation", "test": "test"}  # with a word for each
UNSPLIT = "all"  # the only part of data that comes without any
# How a user's folder or column may call the part that chooses the best weights.
VALIDATION_NAMES = ("val", "valid", "validation")


Part = TypeVar("Part")


def name_parts(name: str, splits: Mapping[str, Part]) -> Dict[str, Part]:
    """Return the parts of a data set of a collection, by what is usual there.

    Returns train, test, and val, which is the split validation; where there is no test, validation is that.
    UsageError, with the data's `name`, where there is no split train.
    """
    if "train" not in splits:
        raise UsageError(f"{name} has the splits {', '.join(splits)}; train is needed.")
    validation = "val" if "test" in splits else "test"
    names = {"train": "train", "test": "test", "validation": validation}
    return {part: splits[split] for split, part in names.items() if split in splits}


def split_dataset(
    name: str,
    class_names: Sequence[str],
    parts: Dict[str, Split],
    test_split: Optional[float] = None,
    validation_split: Optional[float] = None,
    seed: int = 0,
) -> Dict[str, Split]:
    """Split a data set into the parts train, val where there is one or it was asked for, and test.

    Data without a test part gets one: of `test_split`, or of `validation_split` where that alone is given.
    Both are shares of every class, the latter of the training images; what is set apart depends on `seed`.

    Raises:
        UsageError: a share for a part that there is, none for the test part that is missing, or too few
            images.
    """
    parts = dict(parts)
    if "test" in parts:
        if test_split is not None:
            raise UsageError(f"{name} has a test part of its own: leave out --test-split.")
    else:
        fraction, option = test_split, "--test-split"
        if fraction is None and "val" not in parts:
            fraction, option, validation_split = validation_split, "--validation-split", None
        if fraction is None:
            raise UsageError(
                f"{name} has no test part: --test-split 0.2 sets a fifth of every class apart for testing."
            )
        whole = parts.pop(UNSPLIT, None) or parts["train"]
        parts["train"], parts["test"] = _set_apart(whole, class_names, fraction, seed, option)
    if validation_split is not None:
        if "val" in parts:
            raise UsageError(f"{name} has a validation part of its own: leave out --validation-split.")
        parts["train"], parts["val"] = _set_apart(
            parts["train"], class_names, validation_split, seed, "--validation-split"
        )
    return {part: parts[part] for part in PARTS if part in parts}


def _set_apart(
    split: Split, class_names: Sequence[str], fraction: float, seed: int, option: str
) -> Tuple[Split, Split]:
    groups = split.groups if isinstance(split, FileSplit) else None
    apart = stratified_mask(split.labels, class_names, fraction, seed, option, groups)
    return split.subset(~apart), split.subset(apart)


def stratified_mask(
    labels: np.ndarray,
    names: Sequence[str],
    fraction: float,
    seed: int,
    option: str = "--test-split",
    groups: Optional[np.ndarray] = None,
) -> np.ndarray:
    """Draw the examples of a part: the same share of every class, at least one and never all of them.

    Args:
        labels: (n,) int; `names` are their classes.
        fraction: share of the examples, between 0 and 1.
        seed: of the draw; the same seed and labels give the same examples.
        option: that asked for it, for the message.
        groups: (n,) int, the series that each is of, which are not divided: shares are then about the same.

    Returns:
        (n,) bool, True for the part. UsageError for a class of fewer than two examples or groups.
    """
    random = np.random.default_rng([seed, len(labels)])
    apart, wanted = np.zeros(len(labels), bool), np.zeros(len(names), int)
    for label, name in enumerate(names):
        members = np.flatnonzero(labels == label)
        if len(members) < 2:
            raise UsageError(
                f"class {name!r} has {len(members)} image(s); {option} needs at least two of each."
            )
        wanted[label] = min(max(1, round(fraction * len(members))), len(members) - 1)
        apart[random.choice(members, wanted[label], replace=False)] = True
    return apart if groups is None else grouped_mask(labels, groups, names, wanted, random, option)
