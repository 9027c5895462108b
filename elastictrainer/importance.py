"""Tensor importance: how much each tensor's update lowers the loss, and the two simpler metrics of the paper's Fig. 20."""

import contextlib
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.errors import RunError, UsageError, unknown
from elastictrainer.keras_stack import name_of, tf_variables
from elastictrainer.objective import Objective
from elastictrainer.optimizers import apply, build, variables_of
from elastictrainer.state import restored

Batch = Tuple[Any, Any]
Metric = Callable[[List[tf.Tensor], List[tf.Variable]], Any]


class ImportanceEvaluator:
    """Scores every trainable tensor on probe minibatches and leaves no trace of having done so."""

    def __init__(self, objective: Objective, optimizer: Any, metric: str = "update"):
        """
        Args:
            objective: model and loss.
            optimizer: the one that trains; "update" asks it for the update it would really make.
            metric: "update": -sum over minibatches of <gradient at w + dw, dw_i> (paper Eq. 2 and 6), positive where
                the update lowers the loss; "weight-magnitude": sum |w_i|; "grad-magnitude": sum |gradient_i|.

        Raises:
            UsageError: unknown metric.
        """
        if metric not in METRICS:
            raise unknown("importance metric", metric, METRICS)
        self.objective = objective
        self.optimizer = optimizer
        self.metric = metric
        self._score: Optional[Callable] = None

    def __call__(self, batches: Iterable[Batch]) -> np.ndarray:
        """The importance of each trainable tensor.

        Weights, optimizer slots and counters, batch-norm statistics and RNG state are bit-identical afterwards.

        Args:
            batches: probe minibatches (inputs, labels), all of one shape.

        Returns:
            (N,) float64, in the order of `model.trainable_weights`; 0 where the loss does not depend on the tensor.

        Raises:
            UsageError: no minibatch.
            RunError: a value that is not finite.
        """
        variables = list(self.objective.model.trainable_variables)
        if self.metric == "weight-magnitude":
            return np.array([float(tf.reduce_sum(tf.abs(v))) for v in variables])
        build(self.optimizer, variables)
        if self._score is None:
            self._compile(variables)
        total = np.zeros(len(variables))
        count = 0
        with contextlib.ExitStack() as stack:
            for x, y in batches:
                if not count:
                    touched = self._gradients.get_concrete_function(x, y).graph.variables
                    stack.enter_context(restored([*touched, *variables, *variables_of(self.optimizer)]))
                total += METRICS[self.metric](self, x, y)
                count += 1
        if not count:
            raise UsageError("importance needs at least one minibatch; the training data gave none.")
        if not np.all(np.isfinite(total)):
            culprit = name_of(variables[int(np.flatnonzero(~np.isfinite(total))[0])])
            raise RunError(f"the importance of {culprit} is not finite: the loss diverged. Lower --learning-rate.")
        return total

    def _compile(self, variables: List[tf.Variable]) -> None:
        """One graph for both gradients of a probe, which is the costly one to trace, used by the graph of the probe.

        All of a probe runs inside one function with one result: TensorFlow 2.15 keeps 48 bytes of every tensor that it
        hands out to Python, and a probe has several for each variable.
        """

        def gradients(x: Any, y: Any) -> List[tf.Tensor]:
            _, _, found = self.objective.gradients(x, y, variables)
            self._connected = [g is not None for g in found]
            return [tf.zeros_like(v) if g is None else tf.convert_to_tensor(g) for g, v in zip(found, variables)]

        def of_update(x: Any, y: Any) -> tf.Tensor:
            changing = tf_variables([*variables, *variables_of(self.optimizer)])
            before = [v.read_value() for v in changing]
            found = self._gradients(x, y)
            apply(self.optimizer, [(g, v) for g, v, c in zip(found, variables, self._connected) if c])
            updates = [v.read_value() - w for v, w in zip(changing[: len(variables)], before)]
            after = self._gradients(x, y)
            # In double precision: the products of a large tensor's elements differ by orders of magnitude.
            score = [-tf.reduce_sum(tf.cast(g, tf.float64) * tf.cast(dw, tf.float64)) for g, dw in zip(after, updates)]
            for variable, value in zip(changing, before):
                variable.assign(value)
            return tf.stack(score)

        def of_gradient(x: Any, y: Any) -> tf.Tensor:
            return tf.stack([tf.reduce_sum(tf.abs(g)) for g in self._gradients(x, y)])

        self._gradients = tf.function(gradients)
        self._score = tf.function({"update": of_update, "grad-magnitude": of_gradient}.get(self.metric, gradients))

    def _scored(self, x: Any, y: Any) -> np.ndarray:
        """(N,) the metric on a minibatch: for "update" -<gradient at w + dw, dw>, each from the same weights and slots."""
        return self._score(x, y).numpy().astype(np.float64)


METRICS: Dict[str, Optional[Callable]] = {
    "update": ImportanceEvaluator._scored,
    "weight-magnitude": None,
    "grad-magnitude": ImportanceEvaluator._scored,
}


def register(name: str) -> Callable[[Metric], Metric]:
    """Decorator for a metric of one's own: a function of a probe minibatch's gradients and the variables, (N,) each.

    An elastic scheme uses it as `Elastic(name)`; it must be larger for tensors that matter more.
    """

    def keep(metric: Metric) -> Metric:
        METRICS[name] = lambda self, x, y: np.asarray(
            metric(self._gradients(x, y), list(self.objective.model.trainable_variables)), np.float64
        )
        return metric

    return keep
