"""What `Model.compile` and `Model.fit` are given and call, and the epochs that Keras makes of it."""

import contextlib
import importlib
import sys
from typing import Any, Dict, Iterable, Iterator, List, Optional

import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.steps.keras_compat.optimizer import replaced
from elastictrainer.steps.keras_compat.version import KERAS_3

_KERAS = ("keras", "tf_keras", "tensorflow", "tensorflow_addons")  # packages whose methods are no user's

# What `Model.fit` calls, or reads, of a model and its optimizer, and training here does not; what to say of a
# user's own. All else that it calls of them, of losses and of metrics, is called.
_LOOP = (
    "it decides there which tensors it trains. Move what it adds into the loss or metrics, or use Model.fit"
)
PASSED_BY = {
    "fit train_step make_train_function train_function train_tf_function _make_function": _LOOP,
    "_validate_target_and_loss _validate_and_get_metrics_result _get_metrics_result_or_logs": _LOOP,
    "_should_eval _autoconvert_optionals _symbolic_build _maybe_symbolic_build": _LOOP,
    "compute_metrics": "which would get no inputs here: pass its metrics to compile, or use Model.fit",
    "trainable_variables trainable_weights": "but here layers say what trains: set their `trainable`",
    "minimize _transform_loss _update_step_xla": "not called here: move it into apply_gradients",
    "finalize_variable_values": "which paused weights would get as well: call it after fit",
    "scale_loss": "but loss scaling is not supported: use float32 or bfloat16, which do not need it",
    "iterations learning_rate": "but tensors count their own steps here: give learning_rate a schedule",
}


def own_methods(owner: Any, names: Optional[Iterable[str]] = None) -> List[str]:
    """Return which methods and properties of a model, an optimizer, a loss or a metric are the user's.

    They are of a subclass, or set on the object. `names` to look for; None: all but those that Python itself
    and `get_config` use.
    """
    classes = type(owner).__mro__
    if names is None:
        known = {*vars(owner), *(name for home in classes for name in vars(home))}
        names = sorted(name for name in known - {"get_config"} if not name.startswith("__"))

    def is_own(name: str) -> bool:
        for home in (owner, *classes):
            value = getattr(home, "__dict__", {}).get(name)
            function = getattr(value, "fget", None) or getattr(value, "func", value)  # property, partial
            if callable(function) or isinstance(value, (staticmethod, classmethod)):
                module = getattr(function, "__module__", None) or home.__module__
                return module.partition(".")[0] not in _KERAS
        return False

    return [name for name in names if is_own(name)]


def is_compiled(model: tf.keras.Model) -> bool:
    return bool(getattr(model, "compiled" if KERAS_3 else "_is_compiled", False))


def compilation(model: tf.keras.Model) -> Any:
    """Return an object that each `Model.compile` replaces; None of a model that is not compiled."""
    return getattr(model, "_compile_config", None)


def lacks_labels(model: tf.keras.Model, labels: Any) -> bool:
    """Return whether Keras 2 refuses minibatches with such labels: the model was compiled with a loss."""
    return not KERAS_3 and labels is None and bool(model.loss)


def steps_per_execution(model: tf.keras.Model) -> int:
    """Return the steps per execution of the compiled model; 0 where Keras 2 chooses."""
    if getattr(model, "autotune_steps_per_execution", False):
        return 0
    return int(model.steps_per_execution if KERAS_3 else model._steps_per_execution or 1)


def count_step(model: tf.keras.Model) -> None:
    """Add one to the steps that Keras 2 counts in a model; Keras 3 counts in the optimizer alone."""
    if not KERAS_3:
        model._train_counter.assign_add(1)


def compiled_loss(
    model: tf.keras.Model, x: Any, labels: Any, outputs: Any, weights: Any, training: bool
) -> tf.Tensor:
    """Return the loss a model was compiled with, with layers' regularisation; updates the metric "loss"."""
    if not KERAS_3:
        return model.compute_loss(x, labels, outputs, weights)
    # As Keras' own step does: a model's own compute_loss need not take `training`.
    loss = model._compute_loss(x, labels, outputs, weights, training=training)
    first = next(part for part in tf.nest.flatten(x) if part is not None)
    model._loss_tracker.update_state(loss, sample_weight=tf.shape(first)[0])
    return loss


class FitData:
    """The data that `Model.fit` is given, read epoch after epoch, in minibatches as `fit` makes them."""

    def __init__(self, model: tf.keras.Model, given: Dict[str, Any]):
        """`given` are the arguments of the model's `fit` by name, after `validation_split_off`.

        UsageError where how long an epoch is cannot be told.
        """
        names = ["x", "y", "sample_weight", "batch_size", "steps_per_epoch", "class_weight"]
        if not KERAS_3:
            names += ["max_queue_size", "workers", "use_multiprocessing"]
        options = {name: given[name] for name in names if given.get(name) is not None}
        options["shuffle"] = given.get("shuffle", True)
        self.spec: Any = None  # tf.TensorSpecs of a minibatch, once there was one
        if KERAS_3:
            trainer = importlib.import_module("keras.src.backend.tensorflow.trainer")
            strategy = tf.distribute.get_strategy()
            self._keras = trainer.TFEpochIterator(distribute_strategy=strategy, **options)
            steps: Optional[int] = self._keras.num_batches
        else:
            handlers = importlib.import_module("keras.src.engine.data_adapter")
            self._keras = handlers.get_data_handler(**options, epochs=sys.maxsize, model=model)
            self._epochs, self._ended = self._keras.enumerate_epochs(), False
            steps = self._keras.inferred_steps
        if steps is None:
            raise UsageError(
                "how many minibatches make an epoch cannot be told from the data: pass steps_per_epoch."
            )
        self.steps = steps  # of an epoch

    def epoch(self) -> Iterator[Any]:
        """Read the minibatches of the next epoch, all of them that there are.

        What Keras does between two epochs is done here as well: read on after the last minibatch.
        """
        iterator: Any = None
        if KERAS_3:
            for _, _, iterator in self._keras:
                self.spec = without_optionals(iterator.element_spec)
                yield from _next_of(iterator)
            return
        adapter = self._keras._adapter
        # Keras tells the data of an epoch's end when the next one begins, and here there may be no next one.
        with replaced(adapter, on_epoch_end=lambda: None) if self._ended else contextlib.nullcontext():
            _, iterator = next(self._epochs)
        self._ended, self.spec = False, iterator.element_spec
        for _ in self._keras.steps():
            yield from _next_of(iterator)
        adapter.on_epoch_end()
        self._ended = True


def _next_of(iterator: Iterator[Any]) -> List[Any]:
    """Return the next item, alone in a list; an empty one at the end of the data."""
    try:
        return [next(iterator)]
    except (StopIteration, tf.errors.OutOfRangeError):
        return []


def without_optionals(data: Any) -> Any:
    """Replace empty tf.experimental.Optionals of Keras 3 in a minibatch, or their specs, by None."""
    empty = (tf.experimental.Optional, tf.OptionalSpec)
    return tf.nest.map_structure(lambda part: None if isinstance(part, empty) else part, data)


def validation_split_off(given: Dict[str, Any]) -> Dict[str, Any]:
    """Return the arguments of `Model.fit`, by name, with `validation_data` in place of `validation_split`."""
    share = given.get("validation_split")
    if not share or given.get("validation_data") is not None:
        return given
    home = "trainers.data_adapters.array_slicing" if KERAS_3 else "engine.data_adapter"
    split = importlib.import_module(f"keras.src.{home}").train_validation_split
    names = ("x", "y", "sample_weight")
    train, validation = split(tuple(given.get(name) for name in names), share)
    return {**given, **dict(zip(names, train)), "validation_data": validation}


def initial_epoch(model: tf.keras.Model, epoch: int, steps: int) -> int:
    """Return the epoch to begin with: the one given, or where BackupAndRestore has put the model back to."""
    if KERAS_3:
        return int(getattr(model, "_initial_epoch", None) or epoch)
    return int(model._maybe_load_initial_counters_from_ckpt(steps, epoch)[0])


def most_steps_per_epoch() -> Optional[int]:
    """Return the number of steps after which Keras 3 ends every epoch, as in debugging; None: no limit."""
    limit = getattr(getattr(tf.keras, "config", None), "max_steps_per_epoch", None)
    return limit() if limit else None
