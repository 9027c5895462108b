"""Loss and accuracy on held-out images after an epoch or every few; the best weights by a validation part."""

import functools
import json
import math
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.errors import RunError, UsageError
from elastictrainer.models.user_models import activation_of
from elastictrainer.runs.log import LOG
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.steps import optimizers
from elastictrainer.steps.keras_compat.layers import computing_in_float32
from elastictrainer.steps.keras_compat.model_files import save_model
from elastictrainer.steps.keras_compat.variables import random_states
from elastictrainer.steps.objective import Objective, classification_loss
from elastictrainer.steps.snapshot import digest, preserve_variables
from elastictrainer.training.callbacks import TrainerCallback
from elastictrainer.training.clock import VALIDATION
from elastictrainer.training.state import Values

_SHARE = 0.1  # of a run by the clock, for evaluations that nobody asked for: its epochs may be short
_LEAST, _WORTH = 16, 1000  # images of a sample; of a solved head's: of fewer it tells less than training
_PACE = 64  # images that tell what one takes: of two minibatches, of which the first compiles
_Z = 1.96  # standard deviations to both sides of a mean hold 95 %
PARTS = {"test": "test", "val": "validation"}  # of the data, by short name
_WEIGHTS = "model.weights.h5"  # in a Keras archive

Minibatches = Iterable[Tuple[Any, ...]]  # images, labels, and perhaps whether they are old


class Score(NamedTuple):
    """How good a classifier is on some images."""

    epoch: int  # of a run after which it was evaluated, from 1; 0: with the solved head
    accuracy: float  # 0..1
    loss: float  # mean cross-entropy, in nats
    weights: int = 0  # their digest; 0: not known
    old_and_new: Dict[str, float] = {}  # `accuracy_old` and `accuracy_new` (0..1); empty without both
    images: int = 0  # how many it is of; 0: not known
    error: float = 0.0  # how far it may be from the accuracy of all images: see `sampling_error`

    def is_better_than(self, other: "Score") -> bool:
        """Return whether more of the images are right, or as many at a lower loss."""
        return (self.accuracy, -self.loss) > (other.accuracy, -other.loss)


def sampling_error(accuracy: float, images: int, of: int) -> float:
    """Return half the width of the interval that holds the accuracy on all `of` images with 95 %.

    By Agresti and Coull (1998), which also holds at 0 and 1, for a part of a finite number: `accuracy` (0..1)
    is that of `images`, 1 at least. A sample with the same share of every class is at least as good as the
    random one of the formula.
    """
    trials = images + _Z**2
    share = (accuracy * images + _Z**2 / 2) / trials
    return _Z * math.sqrt(share * (1 - share) / trials * max(0, of - images) / max(1, of - 1))


class Evaluator:
    """Scores a classifier, which gives logits, or probabilities if it ends in a softmax; compiled once."""

    def __init__(self, model: tf.keras.Model, clock: Callable[[], float] = time.perf_counter):
        self._clock = clock
        self._objective = Objective(model, _cross_entropy)
        self.image_s = 0.0  # of the latest evaluation, without compiling; 0: not known yet
        self._function: Any = None

    def _minibatch(self, x: tf.Tensor, y: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
        """Return the mean loss, and how many images are right, as they are when the network is used.

        In bfloat16 1 to 2 % of MobileNetV2's predictions are others: accuracy was up to 0.3 points off.
        """
        with computing_in_float32(self._objective.model):
            outputs, loss = self._objective(x, y, training=False)
        correct = tf.equal(tf.argmax(outputs, axis=-1), y)
        return loss, tf.reduce_sum(tf.cast(correct, tf.int32))

    def __call__(self, minibatches: Minibatches, before_each: Callable[[], None] = lambda: None) -> Score:
        """Score all images of `minibatches`; `before_each` may raise. UsageError where there are none."""
        sums = np.zeros((2, 3))  # of new and old images: loss, correct, count
        took: List[Tuple[int, float]] = []  # count and seconds of each minibatch, reading it included
        began, compiled = self._clock(), self._function is None
        for x, y, *is_old in minibatches:
            before_each()
            x, y = tf.convert_to_tensor(x), tf.reshape(tf.cast(y, tf.int64), (-1,))  # some labels are (n, 1)
            if self._function is None:  # of any number of images: it is compiled once
                spec = tf.TensorSpec((None, *x.shape[1:]), x.dtype), tf.TensorSpec((None,), tf.int64)
                self._function = tf.function(self._minibatch, input_signature=spec)
            loss, correct = self._function(x, y)
            count = int(y.shape[0])
            sums[int(any(is_old))] += float(loss) * count, int(correct), count
            took.append((count, self._clock() - began))
            began = self._clock()
        if took[compiled:]:
            images, seconds = np.sum(took[compiled:], axis=0)
            self.image_s = float(seconds) / int(images)
        (_, new, new_count), (_, old, old_count) = sums.tolist()
        both = old_count and new_count
        old_and_new = {"accuracy_old": old / old_count, "accuracy_new": new / new_count} if both else {}
        loss_sum, correct, count = sums.sum(axis=0).tolist()
        if not count:
            raise UsageError(
                "there is no minibatch to evaluate on: what makes them must give them again at each call."
            )
        return Score(0, correct / count, loss_sum / count, 0, old_and_new, int(count))


def _cross_entropy(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """Return the mean loss (a scalar) of integer labels and a graph's logits, or a softmax of them."""
    return classification_loss(activation_of(outputs) != "softmax")(labels, outputs)


class Evaluation(TrainerCallback):
    """Evaluates a classifier after an epoch: `val_loss` (nats) and `val_accuracy` (0..1) in the epoch's logs.

    The last weights are kept: test images are never used to choose weights (see `BestWeights`). A loss that
    is not finite ends the run: RunError.

    Attributes:
        part: of the data, that it evaluates on: "test" or "val".
    """

    part = "test"

    def __init__(
        self,
        test: Callable[..., Minibatches],
        before_each: Callable[[], None] = lambda: None,
        every: Optional[int] = None,
        images: int = 0,
    ) -> None:
        """
        Args:
            test: makes the minibatches (images, integer labels) to evaluate on. Unless the model ends in a
                softmax, its outputs are logits.
            before_each: called before each minibatch; what it raises ends the evaluation.
            every: evaluate after so many epochs, and after the last one; None: after each, in a run by the
                clock as often as a tenth of its time allows.
            images: how many `test` gives. Where a deadline leaves no time for all, it is called with the
                numbers of the first and after the last, in an order that mixes the classes. 0: it takes none,
                and all are evaluated.
        """
        super().__init__()
        self._minibatches, self._before_each, self._every, self._images = test, before_each, every, images
        self._later = 0  # images to evaluate after these at the end
        self._results: List[Score] = []
        self._began_s = self._took_s = 0.0  # of the latest evaluation: training seconds before it, its own

    @functools.cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator(self.run_state.model)

    def on_train_begin(self, logs: Optional[Values] = None) -> None:
        """Measure what evaluating an image takes, where that decides how long the run may train."""
        clock = self.run_state.clock
        if self._images and clock.deadline and clock.image_s is None:
            with clock.watch.lap(VALIDATION):
                for _ in range(2):  # once more where there was one minibatch only, which compiled
                    if not self._evaluator.image_s:
                        self._evaluator(self._minibatches(0, _PACE))
            clock.image_s = self._evaluator.image_s

    def evaluate(self, epoch: int) -> Values:
        """Evaluate where it is time to; a solved head where enough images fit into little of the time."""
        self.run_state.evaluated, ending = {}, self._is_ending(epoch)
        if epoch and not (ending or self._is_due(epoch)):
            return {}
        limit_s = self._limit_s(ending, of_head=not epoch)
        if not epoch and limit_s < min(_WORTH, self._images) * (self.run_state.clock.image_s or 0.0):
            return {}
        score = self._score(epoch, limit_s)
        self.run_state.evaluated = {"evaluated_images": score.images, "accuracy_error": score.error}
        return {"val_loss": score.loss, "val_accuracy": score.accuracy}

    def _limit_s(self, ending: bool, of_head: bool = False) -> float:
        """Return the seconds that there are for an evaluation now: see `Clock.evaluation_s`."""
        if not self._images:
            return np.inf
        share = self._images / (self._images + self._later) if ending else 1.0
        return share * self.run_state.clock.evaluation_s(ending, of_head)

    def _is_ending(self, epoch: int) -> bool:
        state = self.run_state
        stopping = bool(getattr(state.model, "stop_training", False))  # Keras 3 sets it in `fit`
        return stopping or (not state.clock.by_clock and epoch == state.clock.epochs)

    def _is_due(self, epoch: int) -> bool:
        """Return whether `epoch`, which ends before the run does, is to be evaluated."""
        state = self.run_state
        if self._every is not None or not state.clock.by_clock:
            return epoch % (self._every or 1) == 0
        return (
            state.clock.deadline is None
            and _SHARE * (state.clock.watch.training() - self._began_s) > self._took_s
        )

    def _score(self, epoch: int, limit_s: float) -> Score:
        """Return the score of the weights, evaluated now if they were not yet: in so many seconds."""
        state, weights = self.run_state, digest(self.run_state.model.variables)
        known = [result for result in self._results if result.weights == weights]
        if known:
            return known[-1]
        with state.clock.watch.lap(VALIDATION):
            self._began_s, began = state.clock.watch.training(), time.perf_counter()
            score = self._score_on(self._minibatches, self._images, limit_s)
            if not math.isfinite(score.loss):
                raise state.diverged(f"the {PARTS[self.part]} loss is {score.loss}")
            score = score._replace(epoch=epoch, weights=weights)
            if epoch or not score.error:
                self._note(score)
            self._took_s = time.perf_counter() - began
        return score

    def _score_on(self, read: Callable[..., Minibatches], count: int, limit_s: float) -> Score:
        """Return the score on as many of the `count` images of `read` as there are `limit_s` seconds for."""
        score = self._evaluator(self._within(read, count, limit_s), self._before_each)
        self.run_state.clock.image_s = self._evaluator.image_s or self.run_state.clock.image_s
        return score._replace(error=sampling_error(score.accuracy, score.images, count))

    def _within(self, read: Callable[..., Minibatches], count: int, limit_s: float) -> Minibatches:
        """Read as many of `count` images as can be evaluated in so many seconds, the least at least.

        They come in parts, each a sample: how much fits is decided by how long the part before it took.
        """
        clock = self.run_state.clock
        if not count or limit_s >= 2 * count * (clock.image_s or 0.0):
            yield from read()
            return
        ends_s, done, image_s = clock.spent_s() + limit_s, 0, 0.0
        while done < count:
            fitting = int((ends_s - clock.spent_s()) / image_s) if done else 0
            if done and fitting < min(_LEAST, count - done):
                return
            # The rest where there is time to spare, else half of what there is time for.
            more = count if fitting > 1.5 * (count - done) else max(_LEAST, fitting // 2 // _LEAST * _LEAST)
            began_s, end = clock.spent_s(), min(count, done + more)
            yield from read(done, end)
            image_s, done = max(1e-9, (clock.spent_s() - began_s) / (end - done)), end

    def _note(self, result: Score) -> None:
        self._results.append(result)

    def _of_last_weights(self) -> Optional[Score]:
        """Return the score of the weights as they are, evaluated now if they were not yet.

        A callback may have ended the run after an epoch whose turn it was not, or put other weights back.
        Before the end of an epoch: that of the solved head; None where it is not known.
        """
        if not self.run_state.progress.epoch:
            return self._results[-1] if self._results else None
        return self._score(self.run_state.progress.epoch, self._limit_s(ending=True))

    def state(self) -> List[List[Any]]:
        return [list(result) for result in self._results]

    def restore(self, state: Optional[List[Any]]) -> None:
        self._results = [Score(*result) for result in state or []]

    def conclude(self) -> Values:
        """Return accuracy and loss of the kept weights, evaluated now if they were not yet."""
        if not self.run_state.progress.epoch:
            return {}
        kept = self._of_last_weights()
        assert kept is not None
        return {
            "kept_weights": "model.keras",
            "kept_epoch": kept.epoch,
            **_tested(kept, self._images),
            "accuracy_best": max(result.accuracy for result in self._results),
        }


def _tested(score: Score, of: int) -> Values:
    """Return the entries of summary.json on the score of the test images, of which there are so many."""
    return {
        "accuracy": score.accuracy,
        "accuracy_error": score.error,
        "evaluated_images": score.images,
        "test_images": max(of, score.images),
        **score.old_and_new,
        "loss": score.loss,
    }


class BestWeights(Evaluation):
    """Evaluates on the validation part after an epoch, keeps the best weights, and tests them at the end.

    The file of the best weights says itself of which epoch they are: it is written at once or not at all, and
    a run that was killed at any moment goes on with it.
    """

    part = "val"

    def __init__(
        self,
        validation: Callable[..., Minibatches],
        test: Callable[..., Minibatches],
        run: RunFolder,
        patience: Optional[int] = None,
        before_each: Callable[[], None] = lambda: None,
        every: Optional[int] = None,
        images: Tuple[int, int] = (0, 0),
    ) -> None:
        """
        Args:
            validation: makes the minibatches (images, integer labels).
            test: the same of the test images.
            run: its folder.
            patience: end the run after so many epochs without better weights; None: never. A run that has
                ended so and is given more time has them again.
            before_each: called before each minibatch.
            every: see `Evaluation`.
            images: how many each of the two gives; see there.
        """
        super().__init__(validation, before_each, every, images[0])
        self._test, self._run, self._patience, self._later = test, run, patience, images[1]
        self._best: Optional[Score] = None

    def evaluate(self, epoch: int) -> Values:
        """Evaluate where it is time to, keep the best weights, and end the run if it gets no better."""
        state, about = self.run_state, super().evaluate(epoch)
        if about and epoch:
            assert self._best is not None
            since = max(self._best.epoch, state.progress.patient_from)
            waited = epoch - since
            if self._patience is not None and waited >= self._patience and not self._is_ending(epoch):
                state.progress.stopped = (
                    f"no better validation accuracy in {waited} epoch{'s' * (waited > 1)} after epoch {since}"
                )
                state.model.stop_training = True
        return about

    def _note(self, result: Score) -> None:
        super()._note(result)
        if self._best is None or result.is_better_than(self._best):
            self._save(result)

    def restore(self, state: Optional[List[Any]]) -> None:
        """Continue from a checkpoint; the best weights are those in the file, though an epoch may repeat."""
        super().restore(state)
        self._best = described_in(self._run.best_path)
        if self._results and self._best is None:
            LOG.info(
                f"note: {self._run.best_path} is gone or damaged: the best weights are chosen from here on"
            )

    def conclude(self) -> Values:
        """Test the best weights; the model has its last ones afterwards."""
        last = self._of_last_weights()
        if last is None:
            return {}
        if self._best is None:  # its file was lost
            self._save(last)
        assert self._best is not None
        model = self.run_state.model
        optimizer = optimizers.variables_of(model.optimizer)  # the file has it, too
        # The model has its last weights again afterwards.
        held = preserve_variables([*model.variables, *optimizer, *random_states(model)])
        with self.run_state.clock.watch.lap(VALIDATION), held:
            load_weights(model, self._run.best_path)
            score = self._score_on(self._test, self._later, self.run_state.clock.evaluation_s(ending=True))
        return {
            "kept_weights": self._run.best_path.name,
            "kept_epoch": self._best.epoch,
            **_tested(score, self._later),
            "val_accuracy": self._best.accuracy,
            "val_loss": self._best.loss,
            "val_accuracy_last": last.accuracy,
        }

    def _save(self, about: Score) -> None:
        save_model(self.run_state.model, self._run.best_path, json.dumps(about._asdict()))
        self._best = about


def described_in(path: Path) -> Optional[Score]:
    """Read the description of the weights in a file of `BestWeights`; None where there is no whole one."""
    try:
        with zipfile.ZipFile(path) as archive:
            return Score(**json.loads(archive.comment))
    except (OSError, ValueError, TypeError, zipfile.BadZipFile):
        return None


def load_weights(model: tf.keras.Model, path: Path) -> None:
    """Give `model` the weights of a Keras file of the same model; RunError where it is gone or damaged."""
    with tempfile.TemporaryDirectory(prefix="elastictrainer-best-") as folder:
        try:
            with zipfile.ZipFile(path) as archive:  # Keras 2 reads slowly from inside it
                weights = archive.extract(_WEIGHTS, folder)
            model.load_weights(weights)
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise RunError(f"cannot read the best weights from {path}: {error}") from None
