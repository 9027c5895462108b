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
from elastictrainer.steps.keras_compat.model_files import save_model
from elastictrainer.steps.keras_compat.variables import random_states
from elastictrainer.steps.objective import Objective, classification_loss
from elastictrainer.steps.snapshot import digest, preserve_variables
from elastictrainer.training.callbacks import TrainerCallback
from elastictrainer.training.clock import VALIDATION
from elastictrainer.training.state import Values

_SHARE = 0.1  # of a run by the clock, for evaluations that nobody asked for: its epochs may be short
PARTS = {"test": "test", "val": "validation"}  # of the data, by short name
_WEIGHTS = "model.weights.h5"  # in a Keras archive

Minibatches = Iterable[Tuple[Any, ...]]  # images, labels, and perhaps whether they are old


class Score(NamedTuple):
    """How good a classifier is on some images.

    Attributes:
        epoch: of a run after which it was evaluated, from 1; 0: with the solved head.
        accuracy: 0..1.
        loss: mean cross-entropy, in nats.
        weights: their digest; 0: not known.
        old_and_new: `accuracy_old` and `accuracy_new` (0..1), of the old images and of the others; empty
            without both.
    """

    epoch: int
    accuracy: float
    loss: float
    weights: int = 0
    old_and_new: Dict[str, float] = {}

    def is_better_than(self, other: "Score") -> bool:
        """Return whether more of the images are right, or as many at a lower loss."""
        return (self.accuracy, -self.loss) > (other.accuracy, -other.loss)


class Evaluator:
    """Scores a classifier, which gives logits, or probabilities if it ends in a softmax; compiled once.

    Attributes:
        image_s: seconds for each image of the latest evaluation, without compiling; 0 before the first.
    """

    def __init__(self, model: tf.keras.Model, clock: Callable[[], float] = time.perf_counter):
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
        return Score(0, correct / count, loss_sum / count, old_and_new=old_and_new)

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
        one_of: int = 1,
    ) -> None:
        """
        Args:
            test: makes the minibatches (images, integer labels) to evaluate on. Unless the model ends in a
                softmax, its outputs are logits. Called with a number k: every k-th image.
            before_each: called before each minibatch; what it raises ends the evaluation.
            every: evaluate after so many epochs, and after the last one; None: after each, in a run by the
                clock as often as a tenth of its time allows.
            one_of: the solved head is evaluated on one of so many images.
        """
        super().__init__()
        self._minibatches, self._before_each, self._every, self._one_of = test, before_each, every, one_of
        self._results: List[Score] = []
        self._began_s = self._took_s = 0.0  # of the latest evaluation: training seconds before it, its own

    @functools.cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator(self.run_state.model)

    @property
    def image_s(self) -> float:
        """Return the seconds that an image of the latest evaluation took; 0 before the first."""
        return self._evaluator.image_s

    def evaluate(self, epoch: int) -> Values:
        """Evaluate where it is time to; of a solved head also say on one of how many images."""
        if epoch and not self._is_due(epoch):
            return {}
        result = self._score(epoch, 1 if epoch else self._one_of)
        about = {"val_loss": result.loss, "val_accuracy": result.accuracy}
        return about if epoch else {**about, "one_of": self._one_of}

    def _is_due(self, epoch: int) -> bool:
        """Return whether `epoch`, which ends, is to be evaluated; the last one always is."""
        state = self.run_state
        stopping = getattr(state.model, "stop_training", False)  # Keras 3 sets it in `fit`
        if stopping or (not state.clock.by_clock and epoch == state.clock.epochs):
            return True
        if self._every is not None or not state.clock.by_clock:
            return epoch % (self._every or 1) == 0
        return (
            state.clock.deadline is None
            and _SHARE * (state.clock.watch.training() - self._began_s) > self._took_s
        )

    def _score(self, epoch: int, one_of: int = 1) -> Score:
        """Return the score of the weights on one of so many images; of all of them it is noted."""
        state = self.run_state
        with state.clock.watch.lap(VALIDATION):
            self._began_s, began = state.clock.watch.training(), time.perf_counter()
            minibatches = self._minibatches() if one_of == 1 else self._minibatches(one_of)
            score = self._evaluator(minibatches, self._before_each)
            if not math.isfinite(score.loss):
                raise state.diverged(f"the {PARTS[self.part]} loss is {score.loss}")
            score = score._replace(epoch=epoch, weights=digest(state.model.variables))
            if one_of == 1:
                self._note(score)
            self._took_s = time.perf_counter() - began
        return score

    def _note(self, result: Score) -> None:
        """Keep the score of the weights that the model has."""
        self._results.append(result)

    def _of_last_weights(self) -> Optional[Score]:
        """Return the score of the weights as they are, evaluated now if they were not yet.

        A callback may have ended the run after an epoch whose turn it was not, or put other weights back.
        Before the end of an epoch: that of the solved head; None where it is not known.
        """
        trained = self.run_state.progress.epoch
        if not trained:
            return self._results[-1] if self._results else None
        weights = digest(self.run_state.model.variables)
        known = [result for result in self._results if result.weights == weights]
        return known[-1] if known else self._score(trained)

    def state(self) -> List[List[Any]]:
        """Return the state that a checkpoint keeps."""
        return [list(result) for result in self._results]

    def restore(self, state: Optional[List[Any]]) -> None:
        """Continue from the state that a checkpoint kept."""
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
            "accuracy": kept.accuracy,
            **kept.old_and_new,
            "loss": kept.loss,
            "accuracy_best": max(result.accuracy for result in self._results),
        }


class BestWeights(Evaluation):
    """Evaluates on the validation part after an epoch, keeps the best weights, and tests them at the end.

    The file of the best weights says itself of which epoch they are: it is written at once or not at all, and
    a run that was killed at any moment goes on with it.
    """

    part = "val"

    def __init__(
        self,
        validation: Callable[[], Minibatches],
        test: Callable[[], Minibatches],
        run: RunFolder,
        patience: Optional[int] = None,
        before_each: Callable[[], None] = lambda: None,
        every: Optional[int] = None,
    ) -> None:
        """
        Args:
            validation: makes the minibatches (images, integer labels).
            test: the same of the test images.
            run: its folder.
            patience: end the run after so many epochs without better weights; None: never. A run that has
                ended so and is given more time has them again.
            before_each: called before each minibatch of the validation part.
            every: see `Evaluation`.
        """
        super().__init__(validation, before_each, every)
        self._test, self._run, self._patience = test, run, patience
        self._best: Optional[Score] = None

    def evaluate(self, epoch: int) -> Values:
        """Evaluate where it is time to, keep the best weights, and end the run if it gets no better."""
        state, about = self.run_state, super().evaluate(epoch)
        if about and epoch:
            assert self._best is not None
            since = max(self._best.epoch, state.progress.patient_from)
            waited = epoch - since
            ended = state.model.stop_training or (not state.clock.by_clock and epoch == state.clock.epochs)
            if self._patience is not None and waited >= self._patience and not ended:
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
            score = self._evaluator(self._test())
        return {
            "kept_weights": self._run.best_path.name,
            "kept_epoch": self._best.epoch,
            "accuracy": score.accuracy,
            **score.old_and_new,
            "loss": score.loss,
            "val_accuracy": self._best.accuracy,
            "val_loss": self._best.loss,
            "val_accuracy_last": last.accuracy,
        }

    def _save(self, about: Score) -> None:
        save_model(self.run_state.model, self._run.best_path, json.dumps(about._asdict()))
        self._best = about


def described_in(path: Path) -> Optional[Score]:
    """Read the description of the weights in a file that `BestWeights` wrote; None where there is no
    whole one.
    """
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
