"""Updates of some tensors while others are frozen: each by the steps that this tensor has trained in."""

import contextlib
from typing import Any, Iterator, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.steps.graphs import Gradient
from elastictrainer.steps.keras_compat.fitting import own_methods
from elastictrainer.steps.keras_compat.optimizer import built_for, index_of, is_legacy, paused_steps, replaced
from elastictrainer.steps.keras_compat.variables import Optimizer, Variable, tf_variable
from elastictrainer.steps.keras_compat.version import KERAS_3

# Nadam's momentum factor of step t is beta_1 (1 - 0.96^t / 2): the products of the brackets for 0 steps, 1,
# 2, ... up to those whose bracket is 1 in single precision.
_NADAM = np.cumprod([1.0, *(1 - 0.5 * 0.96 ** np.arange(1, 500))])


def updates_together(optimizer: Optimizer, pauses: bool) -> str:
    """Return why some tensors, changing with `pauses`, cannot be updated without the others, or ""."""
    if isinstance(optimizer, getattr(tf.keras.optimizers, "MultiOptimizer", ())):  # of Keras 3
        return "updates all tensors or none"
    if pauses and any(hasattr(part, "apply_gradients") for part in vars(optimizer).values()):
        return "has another one inside, which corrects all tensors by one count of steps"
    if pauses and is_legacy(optimizer) and not isinstance(optimizer, tf.keras.optimizers.legacy.SGD):
        return "is of Keras' older kind, which corrects all tensors by one count of steps"
    return ""


def apply(
    optimizer: Optimizer, pairs: Sequence[Tuple[Gradient, Variable]], loss: Optional[tf.Tensor] = None
) -> None:
    """Update by (gradient of `loss` or None, variable) pairs, and no other tensor, as `Model.fit` would.

    Without the optimizer's all-reduce over replicas: each process has one replica, and `Objective` averages
    over processes. TensorFlow never frees the function that it registers for each all-reduce it traces, and
    with it every selection's graph would stay in memory.
    """
    used = [pair for pair in pairs if pair[0] is not None]
    if not used:
        return
    own, given = own_methods(optimizer), used
    prefix = "_" if is_legacy(optimizer) else ""
    if own:  # it may go by the place in the list: it gets all pairs, as from Keras
        given = list(pairs)
    if own and not KERAS_3:
        gradients, variables = map(list, zip(*pairs))
        compute = getattr(optimizer, f"{prefix}compute_gradients")
        given = compute(loss, variables, tape=_Computed(loss, gradients))
    reduces = "_all_reduce_sum_gradients" if KERAS_3 else f"{prefix}aggregate_gradients"
    paused = paused_steps(optimizer)
    with contextlib.ExitStack() as stack:
        if not {reduces, "gradient_aggregator"} & set(own):  # an argument is not what every optimizer takes
            stack.enter_context(replaced(optimizer, **{reduces: list}))
        if paused is not None:
            stack.enter_context(_own_steps(optimizer, paused))
        optimizer.apply_gradients(given)
    count_paused(optimizer, [variable for _, variable in used])


class _Computed(tf.GradientTape):
    """A tape that gives gradients which are there."""

    def __init__(self, loss: Optional[tf.Tensor], gradients: Sequence[Gradient]):
        super().__init__()
        self._loss, self._gradients = loss, list(gradients)

    def gradient(self, target: Any, sources: Any, *arguments: Any, **options: Any) -> List[Gradient]:
        if target is not self._loss or len(sources) != len(self._gradients):
            raise UsageError("the optimizer differentiates another loss: change the one that compile gets.")
        return list(self._gradients)


def count_own_steps(optimizer: Optimizer) -> bool:
    """Correct each tensor's averages by the steps that this tensor has trained in; the optimizer is built.

    Keras counts the steps of the optimizer, also for a tensor that was left out of most of them. Learning
    rate schedules follow that count as before. Where every step trains every tensor, nothing changes. Returns
    whether that is new to this optimizer.
    """
    if is_legacy(optimizer) or paused_steps(optimizer) is not None:
        return False
    dtype = tf_variable(optimizer.iterations).dtype
    paused = tf.Variable(tf.zeros(built_for(optimizer), dtype), trainable=False, name="paused_steps")
    object.__setattr__(optimizer, "_elastictrainer_paused", paused)
    return True


def count_paused(optimizer: Optimizer, trained: Sequence[Variable]) -> None:
    """Count a step that updated `trained` alone; `apply` does so by itself."""
    paused = paused_steps(optimizer)
    if paused is not None and len(trained) < paused.shape[0]:
        numbers = {index_of(optimizer, variable) for variable in trained}
        paused.assign_add([int(k not in numbers) for k in range(paused.shape[0])])


@contextlib.contextmanager
def _own_steps(optimizer: Optimizer, paused: tf.Variable) -> Iterator[None]:
    """Update each tensor in this block as if the optimizer had made that tensor's own steps alone."""
    update, own = optimizer.update_step, tf.unstack(tf_variable(optimizer.iterations) - paused)
    product = getattr(optimizer, "_u_product", None)  # Nadam has one for all tensors

    def step(gradient: Gradient, variable: Variable, *rate: Any) -> None:
        # Adam divides its averages by 1 - beta^t: t must be the tensor's own steps, not the optimizer's.
        k = index_of(optimizer, variable)
        attributes = {"_iterations": own[k]}
        if product is not None and KERAS_3:
            attributes["_u_product"] = tf.where(
                paused[k] == 0, product, _nadam_product(optimizer, own[k] + 1, product.dtype)
            )
        elif product is not None:  # Keras 2 adds a factor to it where it has not been counted yet
            product.assign(_nadam_product(optimizer, own[k], product.dtype))
            attributes["_u_product_counter"] = 0
        with replaced(optimizer, **attributes):
            update(gradient, variable, *rate)

    with replaced(optimizer, update_step=step):
        yield


def _nadam_product(optimizer: Optimizer, steps: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    power = tf.pow(tf.cast(optimizer.beta_1, dtype), tf.cast(steps, dtype))
    return power * tf.gather(tf.constant(_NADAM, dtype), tf.minimum(steps, len(_NADAM) - 1))
