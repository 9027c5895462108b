"""Tensor importance: how much each tensor's update lowers the loss, and two simpler metrics."""

import contextlib
import itertools
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elastictrainer.errors import DataError, NotFinite, UsageError, unknown
from elastictrainer.runs import resident
from elastictrainer.steps.compiled_step import CompiledStep, CompiledSteps
from elastictrainer.steps.keras_compat.variables import name_of, tf_variables
from elastictrainer.steps.objective import Minibatch, Objective, not_finite_part
from elastictrainer.steps.optimizers import build, reset_slots, variables_of
from elastictrainer.steps.ordering import computed_in_order, one_by_one
from elastictrainer.steps.snapshot import Snapshot, preserve_variables
from elastictrainer.steps.tensor_kinds import head_mask

Scores = NDArray[np.float64]  # (N,)
Metric = Callable[[List[tf.Tensor], List[tf.Variable]], Any]

OWN_METRICS = ("update", "weight-magnitude")  # they need more, or less, than a minibatch's gradients
METRICS: Dict[str, Metric] = {}  # the others, see `register`


def register(name: str) -> Callable[[Metric], Metric]:
    """Register a user's metric: from a probe minibatch's gradients and the variables to (N,) scores.

    A tensor that matters more must score higher. An elastic scheme uses the metric as `Elastic(name)`.
    """

    def add(metric: Metric) -> Metric:
        METRICS[name] = metric
        return metric

    return add


@register("grad-magnitude")
def _gradient_sizes(gradients: List[tf.Tensor], variables: List[tf.Variable]) -> tf.Tensor:
    return tf.stack([tf.reduce_sum(tf.abs(g)) for g in gradients])


def _weight_sizes(model: tf.keras.Model) -> Scores:
    """Return (N,) sum |w|; a new head has no weights yet, and counts as the largest tensor."""
    sizes = np.array([float(tf.reduce_sum(tf.abs(v))) for v in model.trainable_variables])
    sizes[head_mask(model)] = sizes.max(initial=0.0)
    return sizes


class ImportanceEvaluator:
    """Scores every trainable tensor on probe minibatches, and leaves model and optimizer as they were."""

    def __init__(
        self,
        objective: Objective,
        optimizer: Any,
        metric: str = "update",
        steps: Optional[CompiledSteps] = None,
        momentum: bool = True,
    ):
        """
        Args:
            objective: model and loss.
            optimizer: the one that trains; "update" asks it for the update it would really make.
            metric: "update": -sum over minibatches of <gradient at w + dw, dw_i> (paper Eq. 2 and 6),
                positive where the update lowers the loss; "weight-magnitude": sum |w_i|, for the head's
                tensors that of the largest one, as a new head has no weights yet; "grad-magnitude":
                sum |gradient_i|.
            steps: the training's compiled steps; "update" uses the full one. None: it compiles one.
            momentum: that of all tensors is up to date, as full steps came before. Where it is not, each
                tensor is scored by the first update of a new optimizer: otherwise those in training, with ten
                gradients' worth of momentum, would seem to matter ten times as much as frozen ones.

        Raises:
            UsageError: unknown metric.
        """
        if metric not in (*OWN_METRICS, *METRICS):
            raise unknown("importance metric", metric, [*OWN_METRICS, *METRICS])
        self.objective = objective
        self.optimizer = optimizer
        self.metric = metric
        self._steps = CompiledSteps(objective, optimizer) if steps is None else steps
        self._momentum = momentum
        self.release()

    def release(self) -> None:
        """Free the graphs; the next minibatch builds them again."""
        self._undoing_step: Optional[CompiledStep] = None  # in place of the training's full step
        self._weights_in_file: Optional[Snapshot] = None  # as they were before that step
        # Minibatches of another length, as of texts, are not to build the graph again each time.
        self._gradients = tf.function(self._dense_gradients, reduce_retracing=True)
        self._products = tf.function(self._update_products, reduce_retracing=True)

    def __call__(self, batches: Iterable[Minibatch], folder: Optional[Path] = None) -> Scores:
        """Score each trainable tensor.

        Weights, optimizer slots and counters, batch-norm statistics, metrics and RNG state are bit-identical
        afterwards.

        Args:
            batches: probe minibatches (inputs, labels), all of as many examples.
            folder: take less memory for "update": the weights as they were go into a file in this folder, and
                the steps have graphs of their own, which undo the optimizer's slots and are freed at the end.
                None: both are copied in memory.

        Returns:
            (N,) float64, in the order of `model.trainable_weights`; 0 where the loss does not depend on the
            tensor.

        Raises:
            UsageError: no minibatch.
            DataError, NotFinite: a value that is not finite, in the minibatches or as a score.
        """
        variables = self._variables()
        if self.metric == "weight-magnitude":
            return _weight_sizes(self.objective.model)
        build(self.optimizer, variables)
        batches = iter(batches)
        first = next(batches, None)
        if first is None:
            raise UsageError("importance needs at least one minibatch; the training data gave none.")
        total = np.zeros(len(variables))
        with self._scoring(*first, folder if self.metric == "update" else None) as score:
            for number, (x, y) in enumerate(itertools.chain([first], batches), 1):
                total += score(x, y)
                if not np.all(np.isfinite(total)):
                    part = not_finite_part((x, y))
                    if part:
                        raise DataError(
                            f"the {part} of minibatch {number} that tensors are scored on hold NaN or "
                            "infinite values: correct them, or leave these examples out."
                        )
                    name = name_of(variables[int(np.flatnonzero(~np.isfinite(total))[0])])
                    raise NotFinite(f"the importance of {name} is not finite. Lower the learning rate.")
        return total

    def _variables(self) -> List[tf.Variable]:
        return list(self.objective.model.trainable_variables)

    @contextlib.contextmanager
    def _scoring(self, x: Any, y: Any, folder: Optional[Path]) -> Iterator[Callable[[Any, Any], Scores]]:
        """Yield a function that scores a minibatch like (x, y), always from the state of now.

        All that scoring changes is restored at the end. With a `folder` the weights are in a file of it, and
        a step of its own undoes the slots; `_update_products` reads one weight at a time.
        """
        variables, slots = self._variables(), variables_of(self.optimizer)
        with contextlib.ExitStack() as stack:
            if folder is not None:
                self._undoing_step = CompiledStep(
                    self.objective, self.optimizer, variables, self._steps.metrics, undone=slots
                )
                stack.callback(self.release)
            changed, weights = self._changed_by(x, y), {id(v) for v in tf_variables(variables)}
            weights_before = stack.enter_context(preserve_variables(variables, folder))
            slots_before = stack.enter_context(preserve_variables(slots))
            stack.enter_context(preserve_variables(v for v in changed if id(v) not in weights))
            if folder is not None:
                self._weights_in_file = weights_before

            def score(x: Any, y: Any) -> Scores:
                slots_before.restore()
                weights_before.restore()
                self._start_update()
                if self.metric != "update":
                    return np.asarray(METRICS[self.metric](self._gradients(x, y), variables), np.float64)
                float(self._full_step()(x, y))
                if folder is not None:
                    resident.release_memory()
                    return np.asarray(self._products(x, y))
                return np.asarray(self._products(x, y, [weights_before[k] for k in range(len(variables))]))

            yield score

    def _start_update(self) -> None:
        """Forget the momentum of earlier steps, where it is not that of all tensors."""
        if not self._momentum:
            reset_slots(self.optimizer, self._variables())

    def _full_step(self) -> CompiledStep:
        return self._undoing_step or self._steps.get(np.ones(len(self._variables()), bool))

    def _changed_by(self, x: Any, y: Any) -> List[tf.Variable]:
        """Return every variable that scoring on minibatch (x, y) may change."""
        if self.metric != "update":
            return list(self._gradients.get_concrete_function(x, y).graph.variables)
        step = self._full_step()
        step.trace(x, y)
        return step.state()

    def _dense_gradients(self, x: Any, y: Any) -> List[tf.Tensor]:
        variables = self._variables()
        gradients = self._gradients_of_full_step(x, y)
        if gradients is None:
            _, _, gradients = self.objective.gradients(x, y, variables)
        return [
            tf.zeros_like(v) if g is None else tf.convert_to_tensor(g) for g, v in zip(gradients, variables)
        ]

    @tf.autograph.experimental.do_not_convert
    def _gradients_of_full_step(self, x: Any, y: Any) -> Optional[List[Any]]:
        """Return the gradients that the full step's graph computes; None where there is none yet."""
        full = self._undoing_step or self._steps.full_if_compiled()
        cutter = full.cutter() if full is not None else None
        return cutter.gradients(x, y) if cutter is not None else None

    def _update_products(self, x: Any, y: Any, weights: Optional[List[tf.Tensor]] = None) -> tf.Tensor:
        """Return (N,) -<gradient at w + dw, dw_i> (paper Eq. 6).

        The variables hold w + dw, as a training step made it; `weights` are w, None: they are in a file.
        """
        # An update is made when its gradient is there: all of them at once would take as much as the weights.
        # Added up in double precision: the products of a large tensor's elements differ by orders of
        # magnitude. One tensor is returned: TensorFlow 2.15 leaks 48 bytes for each that it hands to Python.
        variables, gradients = tf_variables(self._variables()), self._dense_gradients(x, y)
        scores: Dict[int, tf.Tensor] = {}
        for k in computed_in_order(gradients):  # TensorFlow keeps the order of calls of Python
            v, g = variables[k], gradients[k]
            with tf.control_dependencies([g]):
                before = weights[k] if weights else tf.numpy_function(self._weight_before, [k], v.dtype)
                scores[k] = -tf.reduce_sum(tf.cast(g * (v - before), tf.float64))
        in_order = [scores[k] for k in range(len(variables))]
        one_by_one(gradients, in_order)
        return tf.stack(in_order)

    def _weight_before(self, number: int) -> np.ndarray:
        assert self._weights_in_file is not None
        return self._weights_in_file[number]
