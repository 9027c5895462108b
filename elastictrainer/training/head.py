"""Solve the head before training: one pass over the images gives the features, a solver the weights."""

import functools
from typing import Any, List, Tuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elastictrainer.errors import DataError, UsageError
from elastictrainer.models.solved_head import SolvableHead, solve, solving_s
from elastictrainer.runs.log import LOG
from elastictrainer.steps.objective import Minibatch, crossentropy_terms, not_finite_part
from elastictrainer.steps.timing import CACHE_WRITE
from elastictrainer.training.clock import HEAD, Clock
from elastictrainer.training.feed import Feed
from elastictrainer.training.planner import HeadWork
from elastictrainer.training.state import Values

# Images that a provisional head is solved on, where tensors are scored before the pass over all of them:
# so many for a class, but no more than this share of the images.
_PER_CLASS, _LEAST, _MOST_SHARE = 4, 200, 0.25


class HeadPass:
    """Collects features and labels, and gives the model's last layer the weights of a solved classifier.

    Where activations are cached, that pass computes the features as well (`add`); otherwise `finish` reads
    the images itself.

    Attributes:
        latest: labels with sample weights, and the outputs of the solved head, of the latest minibatch.
    """

    def __init__(self, model: tf.keras.Model, clock: Clock, feed: Feed):
        """Take a compiled model.

        Raises:
            UsageError: the model's last layer cannot be solved, its loss is another one, or the data can be
                read once only.
        """
        if not feed.repeatable:
            raise UsageError(
                "the head cannot be solved: the data can be read once only. Pass arrays, or a "
                "tf.data.Dataset of known length."
            )
        self.head = SolvableHead(model)
        self._smoothing, self._class_weights = crossentropy_terms(model.loss)
        self._clock, self._feed = clock, feed
        self._collected: List[Tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float64]]] = []

    def solve_on_sample(self) -> None:
        """Solve on the first images, so that the head knows enough for tensors to be scored."""
        self._read(self.work.sample)
        self._solve()
        self.clear()

    @functools.cached_property
    def work(self) -> HeadWork:
        """Return what solving takes, at most."""
        size, steps, classes = self._feed.batch_size, self._clock.steps_per_epoch, self.head.classes
        sample = max(1, min(-(-max(_LEAST, _PER_CLASS * classes) // size), int(_MOST_SHARE * steps)))
        return HeadWork(sample, solving_s(size * steps, int(self.head.kernel.shape[0]), classes))

    def clear(self) -> None:
        """Drop what was collected so far."""
        self._collected.clear()

    def add(self, features: tf.Tensor, minibatch: Minibatch) -> None:
        """Collect the (batch, width) features of a minibatch."""
        labels, weights = minibatch[1]
        wrong = not_finite_part(minibatch)  # oneDNN's ReLU makes zeros of NaNs: features do not tell
        if wrong or not np.isfinite(np.sum(np.asarray(features, np.float64))):
            raise DataError(
                f"the head cannot be solved: the {wrong or 'features'} of minibatch "
                f"{len(self._collected) + 1} hold NaN or infinite values. Correct them, or leave them out."
            )
        targets = self._as_targets(np.asarray(labels))
        self._labels = minibatch[1]
        counts = np.ones(len(targets)) if weights is None else np.asarray(weights, np.float64).reshape(-1)
        if self._class_weights is not None:
            counts = counts * (targets @ np.asarray(self._class_weights))
        self._collected.append((np.asarray(features, np.float32), targets, counts))

    def finish(self, earlier: Tuple[int, float] = (0, 0.0)) -> Values:
        """Solve on the features collected, or on a pass over the images; returns figures of the solved head.

        `images`: how many it was solved on; `loss`: their mean, in nats; `seconds`: of pass and solving.
        A run that is given a little more time may read fewer images than the head was solved on before:
        `earlier` says on how many, and their loss. That head stays then.
        """
        if not self._collected:
            self._read(self._clock.steps_per_epoch)
        minibatches, read = len(self._collected), sum(len(targets) for _, targets, _ in self._collected)
        stays = read < earlier[0]
        images, loss = earlier if stays else self._solve()
        self.latest: Tuple[Any, tf.Tensor] = self._labels, self.head.layer(self._collected[-1][0])
        self.clear()
        seconds = self._clock.watch.of(HEAD, CACHE_WRITE)
        steps = self._clock.steps_per_epoch
        part = "" if minibatches >= steps else f" on {images} of {self._feed.batch_size * steps} images"
        if stays:
            LOG.info(f"the head of {images} images stays: there is time for {read}")
        else:
            LOG.info(f"head solved{part} in {seconds:.1f} s, loss {loss:.3f}")
        return {"images": images, "loss": loss, "seconds": seconds}

    def _read(self, count: int) -> None:
        """Collect the features of the first `count` minibatches, or as many as there is time for."""
        for minibatch in self._feed.one_pass(count, head_pass=self):
            self.add(self.head.features(minibatch[0]), minibatch)

    def _solve(self) -> Tuple[int, float]:
        """Solve, and set the layer's weights; returns the number of images and their mean loss."""
        features, targets, weights = map(np.concatenate, zip(*self._collected))
        if self._smoothing:
            targets = targets * (1 - self._smoothing) + self._smoothing / targets.shape[1]
        counted = None if (weights == 1).all() else weights
        with_bias, held = bool(self.head.layer.use_bias), self.head.held_columns()
        kernel, bias, loss = solve(features, targets, counted, with_bias, held)
        self.head.assign(kernel, bias)
        return len(features), loss

    def _as_targets(self, labels: NDArray[Any]) -> NDArray[np.float32]:
        """Return (batch, classes) targets of labels (batch,) or (batch, 1), or of such targets."""
        classes = self.head.classes
        if labels.ndim == 2 and labels.shape[1] == classes > 1:
            return labels.astype(np.float32)
        flat = labels.reshape(-1).astype(np.int64)
        if len(flat) and not 0 <= flat.min() <= flat.max() < classes:
            raise UsageError(
                f"the head cannot be solved: the labels go from {flat.min()} to {flat.max()}, the last layer "
                f"has {classes} units: 0 to {classes - 1}."
            )
        return np.eye(classes, dtype=np.float32)[flat]
