"""A part of a data set in which series of photographs stay together."""

from typing import Sequence

import numpy as np

from elastictrainer.errors import UsageError


def grouped_mask(
    labels: np.ndarray,
    groups: np.ndarray,
    names: Sequence[str],
    wanted: np.ndarray,
    random: np.random.Generator,
    option: str,
) -> np.ndarray:
    """Draw the examples of a part in whole groups, with about `wanted` examples of every class.

    Groups come in random order; one is taken if the counts are then closer to `wanted`. Where each group is
    of one class, the count of a class is off by at most half of its largest group, unless even its smallest
    group is too large. Every class has an example in both parts.

    Args:
        labels, groups: (n,) int of each example.
        names: class names by label.
        wanted: (classes,) int, fewer than the class has.
        random: of the draw.
        option: that asked for it, for the message.

    Returns:
        (n,) bool, True for the part. UsageError where too few groups have a class for both parts.
    """
    ends = np.cumsum(np.unique(groups, return_counts=True)[1])
    by_group = np.split(np.argsort(groups, kind="stable"), ends[:-1])
    order = random.permutation(len(by_group))
    counts, apart = np.zeros(len(names), int), np.zeros(len(labels), bool)
    total = np.bincount(labels, minlength=len(names))

    def contents(group: int) -> np.ndarray:
        return np.bincount(labels[by_group[group]], minlength=len(names))

    def leaves_some(group: int) -> bool:
        return bool((counts + contents(group) < total).all())

    def take(group: int) -> None:
        counts[:] += contents(group)
        apart[by_group[group]] = True

    for group in order:
        before, after = counts - wanted, counts + contents(group) - wanted
        if after @ after < before @ before and leaves_some(group):
            take(group)
    for label, name in enumerate(names):
        if not counts[label]:  # all its groups are larger than twice what is wanted
            fitting = [group for group in order if contents(group)[label] and leaves_some(group)]
            if not fitting:
                raise UsageError(
                    f"{option} cannot divide class {name!r} and keep groups whole: each class needs images "
                    "of at least two groups."
                )
            take(min(fitting, key=lambda group: len(by_group[group])))
    return apart
