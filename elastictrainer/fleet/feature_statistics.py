"""Class statistics of features, which add up over clients, and examples drawn from them. NumPy only."""

from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Tuple

import numpy as np
from numpy.typing import NDArray

_JITTER = 1e-6  # of the mean variance: a covariance of few examples has no root otherwise


@dataclass(frozen=True)
class FeatureStatistics:
    """What a linear head can be solved on without an image leaving its client.

    The statistics of several clients add up to those of all their images, however the classes are spread.

    Attributes:
        counts: (classes,) examples.
        sums: (classes, width) summed features.
        moment: (width, width) sum over the examples of the outer product of the features.
    """

    counts: NDArray[Any]
    sums: NDArray[Any]
    moment: NDArray[Any]

    @classmethod
    def of(cls, features: NDArray[Any], labels: NDArray[Any], classes: int) -> "FeatureStatistics":
        """Return the statistics of (n, width) `features` with (n,) int `labels`."""
        features = np.asarray(features, np.float64)
        sums = np.zeros((classes, features.shape[1]))
        np.add.at(sums, labels, features)
        return cls(np.bincount(labels, minlength=classes), sums, features.T @ features)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "FeatureStatistics":
        """Return the statistics that `arrays` gave."""
        return cls(*(np.asarray(arrays[name], np.float64) for name in ("counts", "sums", "moment")))

    def arrays(self) -> Dict[str, NDArray[Any]]:
        """Return them as arrays by name, float32, to be sent."""
        return {name: getattr(self, name).astype(np.float32) for name in ("counts", "sums", "moment")}

    def __add__(self, other: "FeatureStatistics") -> "FeatureStatistics":
        return FeatureStatistics(
            self.counts + other.counts, self.sums + other.sums, self.moment + other.moment
        )

    def problem(self, classes: int, width: int) -> Optional[str]:
        """Say why they cannot be those of a client's images; None where they can."""
        shapes = (self.counts.shape, self.sums.shape, self.moment.shape)
        expected = ((classes,), (classes, width), (width, width))
        if shapes != expected:
            return f"statistics of the shapes {shapes}, not {expected}"
        if not all(np.isfinite(values).all() for values in (self.counts, self.sums, self.moment)):
            return "statistics that are not finite"
        if (self.counts < 0).any() or (self.counts % 1).any() or self.counts.sum() < 1:
            return "class counts that are no numbers of images"
        diagonal = np.diag(self.moment)
        # No sum may exceed what its squares allow (Cauchy-Schwarz); this refuses made-up magnitudes.
        if (np.square(self.sums.sum(axis=0)) > 1.01 * self.counts.sum() * diagonal + 1e-6).any():
            return "sums of features that do not go with their squares"
        return None

    def examples(self, seed: int) -> Tuple[NDArray[Any], NDArray[Any]]:
        """Draw as many features as there were, of Gaussians with the same class means and shared covariance.

        Returns:
            (n, width) float32 features and (n,) int labels.
        """
        counts = self.counts.astype(np.int64)
        total, width = int(counts.sum()), self.moment.shape[0]
        means = self.sums / np.maximum(counts, 1)[:, None]
        within = (self.moment - means.T @ (means * counts[:, None])) / max(1, total)
        values, vectors = np.linalg.eigh((within + within.T) / 2)
        scale = np.sqrt(np.maximum(values, 0.0) + _JITTER * max(float(values.mean()), 0.0))
        labels = np.repeat(np.arange(len(counts)), counts)
        noise = np.random.default_rng(seed).standard_normal((total, width))
        return (means[labels] + (noise * scale) @ vectors.T).astype(np.float32), labels
