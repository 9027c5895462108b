"""Loss and accuracy on held-out images, after every epoch or every few."""

import contextlib
import functools
import math
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.models.user_models import activation_of
from elastictrainer.steps.objective import Objective, classification_loss
from elastictrainer.steps.snapshot import digest
from elastictrainer.training.callback import TrainerCallback
from elastictrainer.training.stopwatch import VALIDATION

_SHARE = 0.1  # of a run by the clock, for evaluations that nobody asked for: its epochs may be short

Minibatches = Iterable[Tuple[Any, ...]]  # images, labels, and perhaps whether they are old


class Score(NamedTuple):
    """The figures of a classifier on some images.

    Attributes:
        loss: mean cross-entropy, in nats.
        accuracy: 0..1.
        old_and_new: `accuracy_old` and `accuracy_new` (0..1), of the old images and of the others; empty
            without both.
    """

    loss: float
    accuracy: float
    old_and_new: Dict[str, float]


class Evaluator:
    """Scores a classifier, which gives logits, or probabilities if it ends in a softmax; compiled once.

    Attributes:
        image_s: seconds for each image of the latest evaluation, without compiling; 0 before the first.
    """

    def __init__(
        self,
        model: tf.keras.Model,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self._clock = clock
        self._objective = Objective(model, _cross_entropy)
        self.image_s = 0.0
        self._function = tf.function(self._minibatch, reduce_retracing=True)

    def _minibatch(self, x: tf.Tensor, y: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
        """Return the mean loss, and how many images are right."""
        y = tf.reshape(tf.cast(y, tf.int64), (-1,))  # some data sets have labels (n, 1)
        outputs, loss = self._objective(x, y, training=False)
        correct = tf.equal(tf.argmax(outputs, axis=-1), y)
        return loss, tf.reduce_sum(tf.cast(correct, tf.int32))

    def __call__(self, minibatches: Minibatches, before_each: Callable[[], None] = lambda: None) -> Score:
        """Score all images of `minibatches`; `before_each` may raise. UsageError where there are none."""
        sums = np.zeros((2, 3))  # of new and old images: loss, correct, count
        took: List[Tuple[int, float]] = []  # count and seconds of each minibatch, reading it included
        began = self._clock()
        for x, y, *is_old in minibatches:
            before_each()
            loss, correct = self._function(x, y)
            count = int(y.shape[0])
            sums[int(any(is_old))] += float(loss) * count, int(correct), count
            took.append((count, self._clock() - began))
            began = self._clock()
        self.image_s = self._usual_s(took)
        (_, new, new_count), (_, old, old_count) = sums.tolist()
        both = old_count and new_count
        old_and_new = {"accuracy_old": old / old_count, "accuracy_new": new / new_count} if both else {}
        loss_sum, correct, count = sums.sum(axis=0).tolist()
        if not count:
            raise UsageError(
                "there is no minibatch to evaluate on: what makes them must give them again at each call."
            )
        return Score(loss_sum / count, correct / count, old_and_new)

    def _usual_s(self, took: List[Tuple[int, float]]) -> float:
        """Return the seconds of an image in minibatches that did not compile, as far as there are some."""
        if not self.image_s:
            # The first minibatch compiles, and so does a smaller last one.
            took = [(count, seconds) for count, seconds in took[1:] if count == took[0][0]] or took
        images, seconds = np.sum(took, axis=0) if took else (0, 0.0)
        return float(seconds) / max(1, int(images))


def _cross_entropy(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """Return the mean loss (a scalar) of integer labels and a graph's logits, or a softmax of them."""
    return classification_loss(activation_of(outputs) != "softmax")(labels, outputs)


class Evaluating(TrainerCallback):
    """Evaluates the model of a run after some epochs: the base of `Evaluation` and `BestWeights`.

    Attributes:
        part: of the data, which it evaluates on after an epoch: "test" or "val".
    """

    part = "test"

    def __init__(self, before_each: Callable[[], None], every: Optional[int]) -> None:
        """`before_each` and `every` are as for `Evaluation`."""
        super().__init__()
        self._before_each, self._every = before_each, every
        self._began_s = self._took_s = 0.0  # of the latest evaluation: training seconds before it, its own

    @functools.cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator(self.run_state.model)

    @property
    def image_s(self) -> float:
        """Return the seconds that an image of the latest evaluation took; 0 before the first."""
        return self._evaluator.image_s

    def _is_due(self) -> bool:
        """Return whether the epoch that ends is to be evaluated; the last one always is."""
        state = self.run_state
        epoch = state.progress.epoch + 1
        stopping = getattr(state.model, "stop_training", False)  # Keras 3 sets it in `fit`
        if stopping or (not state.clock.by_clock and epoch == state.clock.epochs):
            return True
        if self._every is not None or not state.clock.by_clock:
            return epoch % (self._every or 1) == 0
        return (
            state.clock.deadline is None
            and _SHARE * (state.clock.watch.training() - self._began_s) > self._took_s
        )

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Count the time of this block as evaluation."""
        watch = self.run_state.clock.watch
        with watch.lap(VALIDATION):
            self._began_s, began = watch.training(), time.perf_counter()
            yield
            self._took_s = time.perf_counter() - began

    def _score(self, minibatches: Minibatches) -> Score:
        """Return the model's score; RunError where the loss is not finite."""
        score = self._evaluator(minibatches, self._before_each)
        if not math.isfinite(score.loss):
            name = {"test": "test", "val": "validation"}[self.part]
            raise self.run_state.diverged(f"the {name} loss is {score.loss}")
        return score


class _Evaluated(NamedTuple):
    """A score of weights: after `epoch` (from 1), of the digest `weights`."""

    epoch: int
    loss: float
    accuracy: float
    weights: int
    old_and_new: Dict[str, float]


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
            every: evaluate after so many epochs, and after the last one; None: after each, in a run by the
                clock as often as a tenth of its time allows.
            one_of: the solved head is evaluated on one of so many images.
        """
        super().__init__(before_each, every)
        self._test, self._one_of = test, one_of
        self._results: List[_Evaluated] = []

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Evaluate, where it is time to."""
        if not self._is_due():
            return
        result = self._evaluate(self.run_state.progress.epoch + 1)
        assert logs is not None
        logs["val_loss"], logs["val_accuracy"] = result.loss, result.accuracy

    def on_head(self, record: Dict[str, Any]) -> None:
        """Evaluate the solved head; on a part of the images that is no result of the run."""
        with self._evaluating():
            score = self._score(self._test() if self._one_of == 1 else self._test(self._one_of))
            if self._one_of == 1:
                self._keep(0, score)
        record.update(test_loss=score.loss, test_accuracy=score.accuracy, one_of=self._one_of)

    def _evaluate(self, epoch: int) -> _Evaluated:
        with self._evaluating():
            return self._keep(epoch, self._score(self._test()))

    def _keep(self, epoch: int, score: Score) -> _Evaluated:
        weights = digest(self.run_state.model.variables)
        self._results.append(_Evaluated(epoch, score.loss, score.accuracy, weights, score.old_and_new))
        return self._results[-1]

    def state(self) -> List[List[Any]]:
        """Return the state that a checkpoint keeps."""
        return [list(result) for result in self._results]

    def restore(self, state: Optional[List[Any]]) -> None:
        """Continue from the state that a checkpoint kept."""
        self._results = [_Evaluated(*result) for result in state or []]

    def conclude(self) -> Dict[str, Any]:
        """Return accuracy and loss of the kept weights, evaluated now if they were not yet."""
        trained = self.run_state.progress.epoch
        if not trained:
            return {}
        # A callback may have ended the run after an epoch whose turn it was not, or put other weights back.
        weights = digest(self.run_state.model.variables)
        of_these = [result for result in self._results if result.weights == weights]
        kept = of_these[-1] if of_these else self._evaluate(trained)
        return {
            "kept_weights": "model.keras",
            "kept_epoch": kept.epoch,
            "accuracy": kept.accuracy,
            **kept.old_and_new,
            "loss": kept.loss,
            "accuracy_best": max(result.accuracy for result in self._results),
        }
