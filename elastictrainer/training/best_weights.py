"""The best weights of a run, by its validation accuracy: `best.keras` next to the last ones."""

import contextlib
import json
import tempfile
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Optional

import tensorflow as tf

from elastictrainer.errors import RunError
from elastictrainer.runs.log import LOG
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.steps import optimizers
from elastictrainer.steps.keras_compat.model_files import save_model
from elastictrainer.steps.keras_compat.variables import random_states
from elastictrainer.steps.snapshot import preserve_variables
from elastictrainer.training.evaluation import Evaluating, Minibatches
from elastictrainer.training.stopwatch import VALIDATION

_WEIGHTS = "model.weights.h5"  # in a Keras archive


@dataclass(frozen=True)
class Validated:
    """Weights of a run and how good they are.

    Attributes:
        epoch: after which, from 1.
        accuracy, loss: on the validation part.
    """

    epoch: int
    accuracy: float
    loss: float

    def is_better_than(self, other: "Validated") -> bool:
        """Return whether more of the images are right, or as many at a lower loss."""
        return (self.accuracy, -self.loss) > (other.accuracy, -other.loss)


class BestWeights(Evaluating):
    """Evaluates on the validation part after an epoch, keeps the best weights, and tests them at the end.

    `val_loss` (mean cross-entropy in nats) and `val_accuracy` (0..1) are in the epoch's logs. The file of the
    best weights says itself of which epoch they are: it is written at once or not at all, and a run that was
    killed at any moment goes on with it.
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
            validation: makes the minibatches (images, integer labels), or this process' part of them.
            test: the same of the test images.
            run: its folder.
            patience: end the run after so many epochs without better weights; None: never.
            before_each: called before each minibatch of the validation part.
            every: see `Evaluation`.
        """
        super().__init__(before_each, every)
        self._validation, self._test = validation, test
        self._run, self._patience = run, patience
        self._last: Optional[Validated] = None
        self._best: Optional[Validated] = None

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Evaluate where it is time to, keep the best weights, and end the run if it gets no better."""
        state = self.run_state
        if not self._is_due():
            return
        last = self._validate(state.progress.epoch + 1)
        assert logs is not None and self._best is not None
        logs["val_loss"], logs["val_accuracy"] = last.loss, last.accuracy
        waited = last.epoch - self._best.epoch
        ended = state.model.stop_training or (not state.clock.by_clock and last.epoch == state.clock.epochs)
        if self._patience is not None and waited >= self._patience and not ended:
            state.progress.stopped = (
                f"no better validation accuracy in {waited} epoch{'s' * (waited > 1)} after epoch "
                f"{self._best.epoch}"
            )
            state.model.stop_training = True

    def on_head(self, record: Dict[str, Any]) -> None:
        """Validate the solved head, and keep it as the best weights so far."""
        validated = self._validate(0)
        record["val_loss"], record["val_accuracy"] = validated.loss, validated.accuracy

    def _validate(self, epoch: int) -> Validated:
        """Validate the weights after an epoch, and keep them if they are the best so far."""
        with self._evaluating():
            score = self._score(self._validation())
            self._last = Validated(epoch, score.accuracy, score.loss)
            if self._best is None or self._last.is_better_than(self._best):
                self._save(self._last)
        return self._last

    def state(self) -> Optional[Dict[str, Any]]:
        """Return the state that a checkpoint keeps."""
        return asdict(self._last) if self._last else None

    def restore(self, state: Optional[Dict[str, Any]]) -> None:
        """Continue from a checkpoint; the best weights are those in the file, though an epoch may repeat."""
        self._last = Validated(**state) if state else None
        self._best = read(self._run.best_path)
        if self._best is None and state is not None:
            LOG.info(
                f"note: {self._run.best_path} is gone or damaged: the best weights are chosen from here on"
            )

    def conclude(self) -> Dict[str, Any]:
        """Test the best weights; the model has its last ones afterwards."""
        trained = self.run_state.progress.epoch
        if trained and (self._last is None or self._last.epoch < trained):
            self._validate(trained)  # a callback ended the run after an epoch whose turn it was not
        if self._last is None:
            return {}
        if self._best is None:  # its file was lost
            self._save(self._last)
        assert self._best is not None
        with self.run_state.clock.watch.lap(VALIDATION), self._best_in_model():
            score = self._evaluator(self._test())
        return {
            "kept_weights": self._run.best_path.name,
            "kept_epoch": self._best.epoch,
            "accuracy": score.accuracy,
            **score.old_and_new,
            "loss": score.loss,
            "val_accuracy": self._best.accuracy,
            "val_loss": self._best.loss,
            "val_accuracy_last": self._last.accuracy,
        }

    def _save(self, about: Validated) -> None:
        save_model(self.run_state.model, self._run.best_path, json.dumps(asdict(about)))
        self._best = about

    @contextlib.contextmanager
    def _best_in_model(self) -> Iterator[None]:
        """Put the best weights into the model in this block."""
        model = self.run_state.model
        assert self._best is not None
        optimizer = optimizers.variables_of(model.optimizer)  # the file has it, too
        with preserve_variables([*model.variables, *optimizer, *random_states(model)]):
            load_weights(model, self._run.best_path)
            yield


def read(path: Path) -> Optional[Validated]:
    """Read the description of the weights in a file that `BestWeights` wrote; None where there is no
    whole one.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return Validated(**json.loads(archive.comment))
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
