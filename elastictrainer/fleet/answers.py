"""What clients send to the server, the checks that it must pass, and what it adds up to. NumPy only.

Nothing that a client says is believed unchecked: shapes, counts, magnitudes and times have limits from its
first answer on. No check finds plausible, harmful weights.
"""

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
AnyArray = NDArray[Any]  # of whatever type a client sends

# An element of a tensor may grow to so many times its largest one before the first round, or to this number
# where that is below 1: fine-tuning changes weights by a few percent. The squares of a client's features may
# be as many times those of the server's own, which come from the same network.
_LARGEST_GROWTH = 100.0
_LARGEST_SLOWDOWN = 10.0  # of a round over what was said or allowed: profiles differ between processes
_MOST_DRAWN = 20_000  # examples that a head is solved on; more would take the server's memory
_JITTER = 1e-6  # of the mean variance: a covariance of few examples has no root otherwise


class Refused(ValueError):
    """An answer that must not count. The message says why."""


class Limits(NamedTuple):
    """What a client's images can be."""

    classes: int
    width: int  # of a feature vector
    images: int  # the most of one client
    mean_square: float  # of a feature vector's elements summed, the server's own
    seconds: float  # the most that it may say of a pass over its images, or of training on all of them


@dataclass(frozen=True)
class FeatureStatistics:
    """What a linear head can be solved on without an image leaving its client.

    The statistics of several clients add up to those of all their images, however the classes are spread.
    """

    counts: Floats  # (classes,) examples
    sums: Floats  # (classes, width) summed features
    moment: Floats  # (width, width) sum over the examples of the outer product of the features

    @classmethod
    def of(cls, features: ArrayLike, labels: ArrayLike, classes: int) -> "FeatureStatistics":
        """Return the statistics of (n, width) `features` with (n,) int `labels`."""
        rows: Floats = np.asarray(features, np.float64)
        one_hot = np.eye(classes)[np.asarray(labels)]
        return cls(one_hot.sum(axis=0), one_hot.T @ rows, rows.T @ rows)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray], limits: Limits) -> "FeatureStatistics":
        """Return the statistics that `arrays` gave; Refused where no images within `limits` can have them."""
        classes, width = limits.classes, limits.width
        shapes = {"counts": (classes,), "sums": (classes, width), "moment": (width, width)}
        for name, shape in shapes.items():
            if arrays[name].shape != shape:
                raise Refused(f"statistics of the shape {arrays[name].shape} ({name}), not {shape}")
        counts, sums, moment = (np.asarray(arrays[name], np.float64) for name in shapes)
        if not all(np.isfinite(values).all() for values in (counts, sums, moment)):
            raise Refused("statistics that are not finite")
        if (counts < 0).any() or (counts % 1).any() or counts.sum() < 1:
            raise Refused("class counts that are no numbers of images")
        if counts.sum() > limits.images:
            raise Refused(f"it says that it has {counts.sum():.10g} images; most-images is {limits.images}")
        squares = np.diag(moment)
        # None may exceed what the squares allow (Cauchy-Schwarz): magnitudes are not made up.
        least = (np.square(sums) / np.maximum(counts, 1)[:, None]).sum(axis=0)
        beyond = np.square(moment) > 1.01 * np.outer(squares, squares) + 1e-6
        if sums[counts == 0].any() or (least > 1.01 * squares + 1e-6).any() or beyond.any():
            raise Refused("sums or products of features that do not go with their squares")
        ratio = squares.sum() / counts.sum() / max(limits.mean_square, 1e-12)
        if ratio > _LARGEST_GROWTH:
            raise Refused(f"features whose squares are {ratio:.3g} times those of the server's own images")
        return cls(counts, sums, moment)

    def arrays(self) -> Dict[str, NDArray[np.float32]]:
        return {name: getattr(self, name).astype(np.float32) for name in ("counts", "sums", "moment")}

    @property
    def images(self) -> int:
        """Return the number of examples."""
        return int(self.counts.sum())

    def __add__(self, other: "FeatureStatistics") -> "FeatureStatistics":
        return FeatureStatistics(
            self.counts + other.counts, self.sums + other.sums, self.moment + other.moment
        )

    def examples(self, seed: int) -> Tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Draw (n, width) float32 features of Gaussians with the class means and a shared covariance.

        Their (n,) int labels are as many as there were, or some 20,000 in the same shares.
        """
        means = self.sums / np.maximum(self.counts, 1)[:, None]
        within = (self.moment - means.T @ (means * self.counts[:, None])) / max(1, self.images)
        values, vectors = np.linalg.eigh((within + within.T) / 2)
        scale = np.sqrt(np.maximum(values, 0.0) + _JITTER * max(float(values.mean()), 0.0))
        drawn = np.ceil(self.counts * min(1.0, _MOST_DRAWN / max(1, self.images))).astype(np.int64)
        labels = np.repeat(np.arange(len(drawn)), drawn)
        noise = np.random.default_rng(seed).standard_normal((len(labels), len(scale)))
        return (means[labels] + (noise * scale) @ vectors.T).astype(np.float32), labels


class Description(NamedTuple):
    """What a client says before its first round: the statistics of its images, the seconds of a round of full
    training, and those of a forward pass over its images.
    """

    statistics: FeatureStatistics
    full_s: float
    pass_s: float

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, AnyArray], figures: Mapping[str, float], limits: Limits
    ) -> "Description":
        """Return the description that was sent; Refused where images within `limits` cannot have it."""
        full_s, pass_s = figures["full-seconds"], figures["pass-seconds"]
        if not (0 <= pass_s <= full_s <= limits.seconds and 0 < full_s < np.inf):
            raise Refused(
                f"passes over its images of {pass_s:.3g} s, training of {full_s:.3g} s; at most "
                f"{limits.seconds:.3g} s are allowed, ten times the timeout"
            )
        return cls(FeatureStatistics.from_arrays(arrays, limits), full_s, pass_s)


class Trained(NamedTuple):
    """The result of a client's round: the tensors that trained, by index; its seconds are by the profile."""

    tensors: Mapping[int, AnyArray]
    examples: int
    seconds: float

    def check(self, client: Description, start: Sequence[AnyArray], round_s: float) -> None:
        """Raise Refused where a round of `round_s` cannot give this; the first one began with `start` (N)."""
        if self.tensors and not 0 < self.examples <= client.statistics.images:
            raise Refused(
                f"it says that it trained on {self.examples} examples, and has {client.statistics.images}"
            )
        most_s = _LARGEST_SLOWDOWN * max(round_s, client.full_s)
        if not 0 <= self.seconds <= most_s:
            raise Refused(f"it says that it trained for {self.seconds:.3g} s; at most {most_s:.3g} s can be")
        for index, values in self.tensors.items():
            if not 0 <= index < len(start):
                raise Refused(f"tensor {index}, and the model has {len(start)}")
            name, before = f"tensor {index}", start[index]
            if values.dtype != before.dtype:
                raise Refused(f"{name} is {values.dtype}, not {before.dtype}")
            if values.shape != before.shape:
                raise Refused(f"{name} has the shape {values.shape}, not {before.shape}")
            if not np.isfinite(values).all():
                raise Refused(f"{name} has values that are not finite")
            largest = float(np.abs(values).max(initial=0.0))
            allowed = _LARGEST_GROWTH * max(1.0, float(np.abs(before).max(initial=0.0)))
            if largest > allowed:
                raise Refused(f"{name} has a value of {largest:.3g}; at most {allowed:.3g} is possible")


def average(updates: Sequence[Trained], weights: Sequence[AnyArray]) -> List[AnyArray]:
    """Return the new global values of all N tensors, of `weights`; one that nobody trained keeps its value.

    It is the mean over the clients that trained the tensor, by their examples. All `updates` were checked.
    """
    new = list(weights)
    for index, before in enumerate(weights):
        own = [one for one in updates if index in one.tensors]
        if own:
            # In double precision, so that the order of the clients does not show.
            values = np.array([one.tensors[index] for one in own], np.float64)
            mean = np.average(values, axis=0, weights=[one.examples for one in own])
            new[index] = mean.astype(before.dtype)
    return new
