"""Solve a classifier's last layer: multinomial logistic regression on the features that reach it."""

import time
from typing import Any, Callable, Optional, Tuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elastictrainer.errors import UsageError
from elastictrainer.steps.folding import FoldedModel
from elastictrainer.steps.keras_compat.layers import maker_of
from elastictrainer.steps.keras_compat.variables import tf_variable

# Strength of the L2 penalty, times the number of examples, on features whose mean squared norm is 1.
# It was the best of five on three tasks (docs/results.md).
PENALTY = 0.03
_HELD = "held_classes"  # an attribute of the layer; it is not saved
_ITERATIONS = 100
_BESIDES = 1.5  # times the matrix products is all that an iteration does
_MEASURED = 1000  # images, to measure what an iteration takes
_TOLERANCE = 1e-6  # of the objective, relative; the test accuracy no longer changes there


class SolvableHead:
    """The linear `Dense` layer at a model's end, and the network before it."""

    def __init__(self, model: tf.keras.Model):
        """Find the head of a functional model; UsageError, with the reason, where it cannot be solved."""
        outputs = getattr(model, "outputs", None) or []
        last: Any = maker_of(outputs[0]) if len(outputs) == 1 else None
        why = _unsolvable(last)
        if why:
            raise UsageError(f"the head cannot be solved: {why}.")
        self.layer = last
        self.held: int = getattr(last, _HELD, 0)  # first columns that stay as they are (`hold_columns`)
        network = tf.keras.Model(model.inputs, last.input)
        folded = FoldedModel(network)

        def features(inputs: Any) -> tf.Tensor:
            return tf.cast(folded(inputs, training=False), tf.float32)

        # From the model's inputs to what reaches the layer, (batch, width), in inference mode.
        self.features: Callable[[Any], tf.Tensor] = tf.function(features, reduce_retracing=True)

    @property
    def classes(self) -> int:
        return int(self.layer.units)

    def held_columns(self) -> Optional[Tuple[NDArray[np.floating], NDArray[np.floating]]]:
        """Return (width, held) kernel and (held,) bias of the columns that stay; None: no such."""
        if not self.held:
            return None
        kernel, bias = (*self.layer.get_weights(), np.zeros(self.classes, np.float32))[:2]
        return kernel[:, : self.held], bias[: self.held]

    @property
    def kernel(self) -> tf.Variable:
        return tf_variable(self.layer.kernel)

    def assign(self, kernel: NDArray[np.floating], bias: NDArray[np.floating]) -> None:
        """Set the layer's weights; a layer without a bias gets the kernel alone."""
        self.layer.set_weights([kernel, bias][: 1 + bool(self.layer.use_bias)])


def _unsolvable(last: Any) -> str:
    """Say why a model's last layer cannot be solved; empty where it can."""
    if last is None:
        return "the model is no functional model with one output"
    if not isinstance(last, tf.keras.layers.Dense):
        return f"the model ends in {last.name} ({type(last).__name__}), not in a Dense layer of its own"
    if last.activation is not tf.keras.activations.linear:
        activation = getattr(last.activation, "__name__", last.activation)
        return f"{last.name} has the activation {activation}, so that it does not give logits"
    if len(last.input.shape) != 2:
        return f"{last.name} takes inputs of shape {tuple(last.input.shape)}, not (batch, features)"
    if not last.trainable or last.kernel_constraint or last.bias_constraint:
        return f"{last.name} is frozen, or its weights constrained"
    return ""


def hold_columns(model: tf.keras.Model, classes: int) -> None:
    """Let the columns of the first `classes` stay when the head is solved; UsageError where it cannot be.

    They were trained on many images, of which few are left: solved on these again, they are worse.
    """
    setattr(SolvableHead(model).layer, _HELD, classes)


def solving_s(images: int, width: int, classes: int) -> float:
    """Return the seconds that `solve` takes at most, by the time that its matrix products take here."""
    measured = min(images, _MEASURED)
    features = np.ones((measured, width), np.float32)
    kernel, residual = np.ones((width, classes), np.float32), np.ones((measured, classes), np.float32)
    best = np.inf
    for _ in range(3):
        began = time.perf_counter()
        features @ kernel, features.T @ residual
        best = min(best, time.perf_counter() - began)
    return _ITERATIONS * best * images / measured * _BESIDES


def solve(
    features: NDArray[np.floating],
    targets: NDArray[np.floating],
    weights: Optional[NDArray[np.floating]] = None,
    use_bias: bool = True,
    held: Optional[Tuple[NDArray[np.floating], NDArray[np.floating]]] = None,
) -> Tuple[NDArray[np.float32], NDArray[np.float32], float]:
    """Fit a linear classifier by L-BFGS (SciPy).

    Minimises the mean over the examples of weight x cross-entropy, plus an L2 penalty on the kernel whose
    strength falls with the number of examples, as that of a prior does.

    Args:
        features: (n, width) float.
        targets: (n, classes) float; each row adds up to 1. A class without examples gets low logits.
        weights: (n,) of the examples; None: all count alike.
        held: (width, k) kernel and (k,) bias of the first k classes, which are not fitted; None: all are.

    Returns:
        (width, classes) kernel and (classes,) bias, float32; and the mean loss of the examples, without the
            penalty, in nats. UsageError where a feature is not finite.
    """
    from scipy.optimize import minimize

    (count, width), classes = features.shape, targets.shape[1]
    if not np.isfinite(features).all():
        raise UsageError("the head cannot be solved: a feature of the network is not finite.")
    targets = np.asarray(targets, np.float32)
    # Centred features decouple the kernel from the bias, and one scale makes one penalty fit all networks.
    centre = features.mean(axis=0) if use_bias else np.zeros(width, features.dtype)
    centred = np.asarray(features - centre, np.float32)
    scale = max(float(np.sqrt(np.square(centred).sum(axis=1).mean())), 1e-12)
    centred /= scale
    held_kernel, held_bias = held or (np.zeros((width, 0)), np.zeros(0))
    known = (features @ held_kernel + held_bias).astype(np.float32)  # (n, k) logits
    fitted = classes - known.shape[1]
    share = np.full(count, 1 / count) if weights is None else np.asarray(weights, np.float64) / count
    penalty, split = PENALTY / count, width * fitted

    def loss_and_residual(values: NDArray[np.float64]) -> Tuple[float, NDArray[np.floating]]:
        """Return the mean loss, and (n, fitted) its gradient by the logits that are fitted."""
        # logits z = x K + b. Loss: log(sum of exp z) - <target, z>; its gradient by z is softmax(z) - target.
        narrow = values.astype(np.float32)  # half the time of float64, and exact enough for a gradient
        logits = np.hstack([known, centred @ narrow[:split].reshape(width, fitted) + narrow[split:]])
        logits -= logits.max(axis=1, keepdims=True)
        exponentials = np.exp(logits)
        total = exponentials.sum(axis=1, keepdims=True)
        losses = np.log(total[:, 0]) - np.einsum("ij,ij->i", targets, logits)
        residual = (exponentials / total - targets)[:, classes - fitted :]
        return float(losses @ share), residual * share[:, None].astype(np.float32)

    def objective(values: NDArray[np.float64]) -> Tuple[float, NDArray[np.float64]]:
        kernel = values[:split]
        loss, residual = loss_and_residual(values)
        # By the chain rule: X^T residual for the kernel, the residuals' sum for the bias; plus the penalty's.
        gradient = np.concatenate([(centred.T @ residual).ravel(), residual.sum(axis=0) * use_bias])
        gradient = gradient.astype(np.float64)
        gradient[:split] += penalty * kernel
        return loss + 0.5 * penalty * float(kernel @ kernel), gradient

    options = {"maxiter": _ITERATIONS, "ftol": _TOLERANCE, "gtol": 0.0}
    found = minimize(objective, np.zeros(split + fitted), jac=True, method="L-BFGS-B", options=options).x
    # Back to the features as they come: x' = (x - centre) / scale, so K = K' / scale and b = b' - centre K.
    kernel = found[:split].reshape(width, fitted) / scale
    bias = np.concatenate([held_bias, found[split:] - centre @ kernel])
    kernel = np.hstack([held_kernel, kernel])
    return kernel.astype(np.float32), bias.astype(np.float32), loss_and_residual(found)[0]
