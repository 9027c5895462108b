"""Loss and accuracy on held-out images, after every epoch or every few."""

import contextlib
import functools
import math
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.models.user_models import activation_of
from elastictrainer.steps.objective import Objective, classification_loss
from elastictrainer.steps.snapshot import digest
from elastictrainer.training.callback import TrainerCallback
from elastictrainer.training.state import RunState
from elastictrainer.training.stopwatch import VALIDATION
from elastictrainer.training.workers import Workers

Minibatches = Iterable[Tuple[Any, ...]]  # images, labels, and perhaps whether they are old


class Evaluating(TrainerCallback):
    """Evaluates the model of a run when it is time to: the base of `Evaluation` and `BestWeights`.

    Attributes:
        part: of the data, which it evaluates on after an epoch: "test" or "val".
    """

    part = "test"

    def __init__(self, before_each: Callable[[], None], every: Optional[int]) -> None:
        super().__init__()
        self._before_each, self._due = before_each, Due(every)

    @functools.cached_property
    def _evaluator(self) -> "Evaluator":
        return Evaluator(self.run_state.model, self.run_state.workers)

    @property
    def image_s(self) -> float:
        """Return the seconds that an image of the latest evaluation took; 0 before the first."""
        return self._evaluator.image_s if hasattr(self, "run_state") else 0.0

    @contextlib.contextmanager
    def _measured(self, part: Callable[[], Minibatches]) -> Iterator[Tuple[float, float]]:
        """Give loss and accuracy on a part of the data; the time of the block counts as evaluation, too.

        Raises:
            RunError: the loss is not finite.
        """
        state = self.run_state
        with state.watch.lap(VALIDATION), self._due.evaluating(state):
            loss, accuracy = self._evaluator(part(), self._before_each)
            if not math.isfinite(loss):
                name = {"test": "test", "val": "validation"}[self.part]
                raise state.diverged(f"the {name} loss is {loss}")
            yield loss, accuracy


class Evaluation(Evaluating):
    """Evaluates a classifier after an epoch: `val_loss` and `val_accuracy` in the epoch's logs.

    The last weights are kept: test images are never used to choose weights (see `BestWeights`). A test loss
    that is not finite ends the run: RunError.
    """

    def __init__(
        self,
        test: Callable[..., Minibatches],
        before_each: Callable[[], None] = lambda: None,
        every: Optional[int] = None,
        one_of: int = 1,
    ) -> None:
        """
        Args:
            test: makes the minibatches (images, integer labels) to evaluate on, or this process' part. Unless
                the model ends in a softmax, its outputs are logits. Called with a number k: every k-th image.
            before_each: called before each minibatch; what it raises ends the evaluation.
            every: evaluate after so many epochs, and after the last one; None: see `Due`.
            one_of: the solved head is evaluated on one of so many images.
        """
        super().__init__(before_each, every)
        self._test, self._one_of = test, one_of
        # Of each evaluation: epoch (from 1), loss, accuracy, digest of the weights, accuracies apart.
        self._results: List[Tuple[int, float, float, int, Dict[str, float]]] = []

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Evaluate, where it is time to."""
        state = self.run_state
        if not self._due.now(state):
            return
        loss, accuracy = self._evaluate(state.progress.epoch + 1)
        assert logs is not None
        logs["val_loss"], logs["val_accuracy"] = loss, accuracy

    def on_head(self, record: Dict[str, Any]) -> None:
        """Evaluate the solved head."""
        record["test_loss"], record["test_accuracy"] = self._evaluate(0, self._one_of)
        record["one_of"] = self._one_of

    def _evaluate(self, epoch: int, one_of: int = 1) -> Tuple[float, float]:
        with self._measured(self._test if one_of == 1 else lambda: self._test(one_of)) as (loss, accuracy):
            if one_of == 1:
                weights, apart = digest(self.run_state.model.variables), self._evaluator.apart
                self._results.append((epoch, loss, accuracy, weights, apart))
        return loss, accuracy

    def state(self) -> List[List[Any]]:
        """Return the state that a checkpoint keeps."""
        return [list(result) for result in self._results]

    def restore(self, state: Optional[List[Any]]) -> None:
        """Continue from the state that a checkpoint kept."""
        self._results = [tuple(result) for result in state or []]

    def conclude(self) -> Dict[str, Any]:
        """Return accuracy and loss of the kept weights, evaluated now if they were not yet."""
        trained = self.run_state.progress.epoch
        if not trained:
            return {}
        # A callback may have ended the run after an epoch whose turn it was not, or put other weights back.
        weights = digest(self.run_state.model.variables)
        if all(result[3] != weights for result in self._results):
            self._evaluate(trained)
        kept, loss, accuracy, _, apart = [result for result in self._results if result[3] == weights][-1]
        return {
            "kept_weights": "model.keras",
            "kept_epoch": kept,
            "accuracy": accuracy,
            **apart,
            "loss": loss,
            "accuracy_best": max(result[2] for result in self._results),
        }


class Due:
    """Decides after which epochs a run is evaluated.

    Attributes:
        cost_s: seconds that the latest evaluation took.
    """

    SHARE = 0.1  # of a run by the clock, for evaluations that nobody asked for: its epochs may be short

    def __init__(self, every: Optional[int] = None):
        """`every`: after so many epochs; None: after each, by the clock as often as `SHARE` allows."""
        self._every, self.cost_s = every, 0.0
        self._evaluated_s = 0.0  # training seconds when the latest evaluation began

    def now(self, state: RunState) -> bool:
        """Return whether the epoch that ends is to be evaluated; the last one always is."""
        epoch = state.progress.epoch + 1
        stopping = getattr(state.model, "stop_training", False)  # Keras 3 sets it in `fit`
        if stopping or (not state.by_clock and epoch == state.epochs):
            return True
        if self._every is not None or not state.by_clock:
            return epoch % (self._every or 1) == 0
        return state.deadline is None and (
            self.SHARE * (state.watch.training() - self._evaluated_s) > self.cost_s
        )

    @contextlib.contextmanager
    def evaluating(self, state: RunState) -> Iterator[None]:
        """Note when the evaluation inside this block began, and what it takes."""
        self._evaluated_s, began = state.watch.training(), time.perf_counter()
        yield
        self.cost_s = time.perf_counter() - began


def _cross_entropy(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """Return the mean loss (a scalar) of integer labels and a graph's logits, or a softmax of them."""
    return classification_loss(activation_of(outputs) != "softmax")(labels, outputs)


class Evaluator:
    """Mean cross-entropy and top-1 accuracy of a classifier; compiled once.

    It gives logits, or probabilities if it ends in a softmax.

    Attributes:
        apart: of the latest evaluation, `accuracy_old` and `accuracy_new` (0..1), of what its minibatches
            called old images and of the others; empty where they call none so.
        image_s: seconds for each image of the latest evaluation, without compiling; 0 before the first.
    """

    def __init__(
        self,
        model: tf.keras.Model,
        workers: Optional[Workers] = None,
        clock: Callable[[], float] = time.perf_counter,
    ):
        """`workers` evaluate together, each its part of the data; None: this process is alone."""
        self._clock = clock
        self._objective = Objective(model, _cross_entropy)
        self._workers = workers
        self.apart: Dict[str, float] = {}
        self.image_s = 0.0
        self._function = tf.function(self._minibatch, reduce_retracing=True)

    def _minibatch(self, x: tf.Tensor, y: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
        y = tf.reshape(tf.cast(y, tf.int64), (-1,))  # some data sets have labels (n, 1)
        outputs, loss = self._objective(x, y, training=False)
        correct = tf.equal(tf.argmax(outputs, axis=-1), y)
        return loss, tf.reduce_sum(tf.cast(correct, tf.int32))

    def __call__(
        self, minibatches: Minibatches, before_each: Callable[[], None] = lambda: None
    ) -> Tuple[float, float]:
        """Return (mean loss, accuracy in 0..1) over all images of `minibatches`; `before_each` may raise."""
        sums = np.zeros((2, 3))  # of new and old images: loss, correct, count
        compiled = bool(self.image_s)
        took: List[Tuple[int, float]] = []  # count and seconds of each minibatch, reading it included
        began = self._clock()
        for x, y, *is_old in minibatches:
            before_each()
            loss, correct = self._function(x, y)
            count = int(y.shape[0])
            sums[int(any(is_old))] += float(loss) * count, int(correct), count
            took.append((count, self._clock() - began))
            began = self._clock()
        # The first minibatch compiles, and so does a smaller last one.
        usual = [(n, s) for n, s in took[not compiled :] if compiled or n == took[0][0]] or took
        images, seconds = np.sum(usual, axis=0) if usual else (0, 0.0)
        self.image_s = float(seconds) / max(1, int(images))
        if self._workers:
            sums = self._workers.gather(sums.ravel().tolist()).sum(axis=0).reshape(2, 3)
        (_, new, new_count), (_, old, old_count) = sums.tolist()
        self.apart = {}
        if old_count and new_count:
            self.apart = {"accuracy_old": old / old_count, "accuracy_new": new / new_count}
        loss_sum, correct, count = sums.sum(axis=0).tolist()
        return loss_sum / count, correct / count
