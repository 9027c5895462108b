"""The training steps of `Trainer.fit`: what Keras' loop calls for each minibatch and each epoch."""

from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, Iterator, List, Optional, Tuple, Union

import numpy as np
import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.profiler.profile import profile_model
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.selection.elastic import SelectedTensors
from elastictrainer.selection.fixed import FixedTensors
from elastictrainer.selection.schedule import Plan
from elastictrainer.selection.settings import check_tensors
from elastictrainer.steps import compiled, optimizers
from elastictrainer.steps.compiled_step import StepCache
from elastictrainer.steps.keras_compat import without_optionals
from elastictrainer.training.one_step import Stepper
from elastictrainer.training.progress import Progress
from elastictrainer.training.stopwatch import LOOP, Stopwatch

if TYPE_CHECKING:
    from elastictrainer.training.trainer import Trainer


class ElasticSteps(tf.keras.callbacks.Callback):
    """Stands in for a model's `train_function`, and listens to its `fit` as a callback."""

    def __init__(self, trainer: "Trainer", epochs: int, quiet: bool):
        super().__init__()
        self.timings: Optional[TensorTimings] = trainer.timings
        self._trainer, self._epochs, self._quiet = trainer, epochs, quiet
        self._selects = trainer.scheme.importance_metric is not None
        self._watch = Stopwatch()
        self._recent: Deque[Tuple[Any, Any]] = deque(maxlen=trainer.selection.importance_batches)
        self._tensors: Union[FixedTensors, SelectedTensors, None] = None
        self._records: List[Dict[str, Any]] = []
        self._progress = Progress()
        self._first_epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Keras is about to train."""
        if self.params.get("steps") is None:
            raise UsageError(
                "how many minibatches make an epoch cannot be told from the data: pass steps_per_epoch."
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Epoch number `epoch` (from 0) begins."""
        if self._tensors is None:
            self._first_epoch = epoch
        self._progress.epoch = epoch - self._first_epoch

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Add this epoch's figures to its logs."""
        full_ms = self._tensors.full_step_ms()
        epoch_ms = self._progress.epoch_ms
        logs["ratio"] = float(np.median(epoch_ms)) / full_ms if full_ms and epoch_ms else float("nan")
        logs["selected"] = (
            len(self.model.trainable_variables)
            if self._tensors.mask is None
            else int(self._tensors.mask.sum())
        )
        self._progress.epoch_done(self._watch.training())

    def __call__(self, iterator: Iterator[Any]) -> Dict[str, Any]:
        """Train on the next minibatch of `iterator`; returns the metrics so far."""

        def fetch() -> Tuple[Any, compiled.Targets]:
            x, *targets = tf.keras.utils.unpack_x_y_sample_weight(without_optionals(next(iterator)))
            return x, tuple(targets)

        if self._tensors is None:
            first = fetch()
            self._begin(iterator, *first)
            self._train(lambda: first)
        else:
            self._train(fetch)
        if hasattr(self.model, "_train_counter"):
            self.model._train_counter.assign_add(1)
        return self._metrics.results()

    def close(self) -> None:
        """Let go of what is held."""
        if self._tensors is not None:
            self._tensors.close()

    def figures(self) -> Dict[str, Any]:
        """Of the whole `fit`, see `Trainer.fit`."""
        progress = self._progress
        full_s = self._stepper.full_training_s() if self._tensors is not None else None
        seconds = dict(self._watch.seconds)
        return {
            "rho_requested": self._trainer.selection.rho if self._selects else None,
            "rho_predicted": progress.predicted_ratio / progress.step
            if progress.step and self.timings is not None
            else None,
            "rho_achieved": self._watch.training() / full_s if full_s else None,
            "train_seconds": self._watch.training(),
            "seconds": seconds,
            "steps": progress.step,
            "flops_total": progress.flops or None,
            "selections": self._records,
        }

    def _begin(self, iterator: Any, x: Any, y: compiled.Targets) -> None:
        """At the first minibatch: build, profile, and set up."""
        trainer, model = self._trainer, self.model
        compiled.build(model, x, y)
        if not model.trainable_variables:
            raise UsageError("the model has no trainable tensor. Set `trainable = True` on a layer.")
        optimizers.build(model.optimizer, model.trainable_variables)
        objective = compiled.CompiledObjective(model, None, trainer.scheme.penalty(model))
        self._metrics = compiled.CompiledMetrics(model)
        if self._selects and self.timings is None:
            self._say("profiling the model")
            self.timings = profile_model(model, objective, (x, y), model.optimizer, metrics=(self._metrics,))
            self._say(f"full step {self.timings.full_ms:.1f} ms, rho_min {self.timings.rho_min:.3f}")
        steps = StepCache(objective, model.optimizer, [self._metrics])
        self._tensors = self._selected_tensors(steps) if self._selects else self._fixed_tensors()
        x_spec, *others = tf.keras.utils.unpack_x_y_sample_weight(iterator.element_spec)
        self._stepper = Stepper(self._tensors, steps, self._watch, self._progress, (x_spec, tuple(others)))

    def _fixed_tensors(self) -> FixedTensors:
        trainer, model = self._trainer, self.model
        if self.timings is not None:
            check_tensors(self.timings, len(model.trainable_variables))
        return FixedTensors(
            trainer.scheme,
            model,
            model.optimizer,
            trainer.selection.interval,
            self.timings,
            self._records.append,
        )

    def _selected_tensors(self, steps: StepCache) -> SelectedTensors:
        trainer = self._trainer
        trainer.selection.check_profile(self.timings, len(self.model.trainable_variables))
        return SelectedTensors(
            trainer.selection,
            trainer.scheme.importance_metric,
            self.timings,
            Plan(self._epochs - self._first_epoch, self.params["steps"], trainer.selection.interval),
            steps,
            self._watch,
            probe=lambda step: iter(list(self._recent)),
            log=lambda record: self._records.append({"epoch": self._progress.epoch, **record}),
            say=self._say,
            keep_profile=self._keep_profile,
        )

    def _train(self, fetch: Callable[[], Tuple[Any, compiled.Targets]]) -> None:
        with self._watch.lap(LOOP):
            taken = self._stepper.take(fetch)
        if taken.whole:
            self._recent.append(taken.batch)

    def _keep_profile(self, timings: TensorTimings) -> None:
        self.timings = timings

    def _say(self, line: str) -> None:
        if not self._quiet:
            print(line, flush=True)
