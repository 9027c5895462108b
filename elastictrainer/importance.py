"""Tensor importance: how much each tensor's update lowers the loss, and the two simpler metrics of the paper's Fig. 20."""

from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.errors import RunError, UsageError, unknown
from elastictrainer.objective import Objective
from elastictrainer.optimizers import build, variables_of
from elastictrainer.state import restored

Batch = Tuple[Any, Any]


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
        self._probe: Optional[Callable] = None

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
        variables = self.objective.model.trainable_weights
        if self.metric == "weight-magnitude":
            return np.array([float(tf.reduce_sum(tf.abs(v))) for v in variables])
        build(self.optimizer, variables)
        total = np.zeros(len(variables))
        count = 0
        for x, y in batches:
            if self._probe is None:
                self._probe = tf.function(METRICS[self.metric](self, variables))
            graph = self._probe.get_concrete_function(x, y).graph
            with restored([*graph.variables, *variables, *variables_of(self.optimizer)]):
                total += np.asarray(self._probe(x, y), np.float64)
            count += 1
        if not count:
            raise UsageError("importance needs at least one minibatch; the training data gave none.")
        if not np.all(np.isfinite(total)):
            culprit = variables[int(np.flatnonzero(~np.isfinite(total))[0])].name
            raise RunError(f"the importance of {culprit} is not finite: the loss diverged. Lower --learning-rate.")
        return total

    def _update_probe(self, variables: List[tf.Variable]) -> Callable:
        gradients = tf.function(lambda x, y: self._dense_gradients(x, y, variables))

        def probe(x: Any, y: Any) -> tf.Tensor:
            before = [v.read_value() for v in variables]
            at_w = gradients(x, y)
            self.optimizer.apply_gradients(
                [(g, v) for g, v, used in zip(at_w, variables, self._connected) if used]
            )
            updates = [v.read_value() - w for v, w in zip(variables, before)]
            at_updated = gradients(x, y)
            # Each tensor's own dot product, summed in double precision: they differ by orders of magnitude.
            return tf.stack(
                [
                    -tf.reduce_sum(tf.cast(g, tf.float64) * tf.cast(dw, tf.float64))
                    for g, dw in zip(at_updated, updates)
                ]
            )

        return probe

    def _gradient_probe(self, variables: List[tf.Variable]) -> Callable:
        def probe(x: Any, y: Any) -> tf.Tensor:
            return tf.stack([tf.reduce_sum(tf.abs(g)) for g in self._dense_gradients(x, y, variables)])

        return probe

    def _dense_gradients(self, x: Any, y: Any, variables: List[tf.Variable]) -> List[tf.Tensor]:
        _, _, gradients = self.objective.gradients(x, y, variables)
        self._connected = [g is not None for g in gradients]
        return [tf.zeros_like(v) if g is None else tf.convert_to_tensor(g) for g, v in zip(gradients, variables)]


METRICS: Dict[str, Optional[Callable]] = {
    "update": ImportanceEvaluator._update_probe,
    "weight-magnitude": None,
    "grad-magnitude": ImportanceEvaluator._gradient_probe,
}
