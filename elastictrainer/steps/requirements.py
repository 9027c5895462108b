"""The requirements of a model to be trained here."""

from typing import Any, Dict, Sequence

import tensorflow as tf

from elastictrainer.errors import UsageError, reason
from elastictrainer.steps.keras_compat.fitting import (
    PASSED_BY,
    is_compiled,
    lacks_labels,
    own_methods,
    steps_per_execution,
)
from elastictrainer.steps.keras_compat.own_steps import apply, updates_together
from elastictrainer.steps.keras_compat.variables import Variable, tf_variables
from elastictrainer.steps.optimizers import variables_of
from elastictrainer.steps.snapshot import preserve_variables

_ONE_OP = "has XLA make one op of many, of which no tensor's time can be measured"


def require_trainable(model: tf.keras.Model) -> None:
    """Raise UsageError if a built model has no trainable tensor, or XLA hides their times."""
    if tf.config.optimizer.get_jit():
        raise UsageError(f"tf.config.optimizer.set_jit {_ONE_OP}: switch it off with set_jit('').")
    if not model.trainable_variables:
        raise UsageError("the model has no trainable tensor. Set `trainable = True` on a layer.")


def require_labels(model: tf.keras.Model, labels: Any) -> None:
    """Raise UsageError if a minibatch lacks the labels that the model's loss needs."""
    if lacks_labels(model, labels):
        raise UsageError("the model was compiled with a loss, and there are no labels: pass y.")


def require_supported(model: tf.keras.Model, pauses: bool = True) -> None:
    """Raise UsageError, saying what to change, if the model's way of training excludes this one.

    With `pauses` tensors are frozen and unfrozen during the run.
    """
    for owner, kind in ((model, "model"), (getattr(model, "optimizer", None), "optimizer")):
        for names, why in PASSED_BY.items():
            for name in own_methods(owner, names.split()):
                raise UsageError(f"the {kind} {type(owner).__name__} has its own {name}, {why}.")
    if not is_compiled(model):
        raise UsageError("the model is not compiled: call compile(optimizer=..., loss=...) first.")
    if model.run_eagerly:
        raise UsageError("run_eagerly=True runs every op, wanted or not: leave it out.")
    if getattr(model, "jit_compile", False):
        raise UsageError(f"jit_compile=True {_ONE_OP}: compile with jit_compile=False.")
    if steps_per_execution(model) != 1:
        raise UsageError("steps_per_execution must be 1: tensors are chosen between two steps.")
    if model.distribute_strategy.num_replicas_in_sync > 1:
        raise UsageError("the model was made under a distribution strategy; only one device is supported.")
    for option, does in (
        ("gradient_accumulation_steps", "updates weights in some steps only"),  # of Keras 3
        ("use_ema", "averages weights, frozen ones with those of long ago, and puts the averages in"),
    ):
        if getattr(model.optimizer, option, None):
            raise UsageError(f"{option} of the optimizer {does}, whatever trains meanwhile: leave it out.")
    scaled = isinstance(model.optimizer, tf.keras.mixed_precision.LossScaleOptimizer)
    if scaled or getattr(model.optimizer, "loss_scale_factor", None):  # the latter of Keras 3
        raise UsageError("loss scaling is not supported: use float32 or bfloat16, which do not need it.")
    together = updates_together(model.optimizer, pauses)
    if together:
        raise UsageError(
            f"the optimizer {type(model.optimizer).__name__} {together}, and here some tensors pause: "
            "compile with one of tf.keras.optimizers, such as tf.keras.optimizers.Adam(1e-4)."
        )


def require_apart(optimizer: Any, variables: Sequence[Variable], pauses: bool = True) -> None:
    """Raise UsageError where a user's optimizer, built for `variables`, cannot update them, or with `pauses`
    updates a tensor otherwise alone than among all: by its place, or by the norm of all gradients.

    Its updates are taken back.
    """
    own = own_methods(optimizer)
    if not own:
        return
    pairs = [(tf.fill(v.shape, tf.cast(1e6 * (k + 1), v.dtype)), v) for k, v in enumerate(variables)]

    def update(count: int) -> Any:
        function = tf.function(lambda: apply(optimizer, pairs[-count:], tf.constant(1.0)))
        return function, function.get_concrete_function().graph.variables

    def after(function: Any, known: Sequence[tf.Variable]) -> Dict[int, bytes]:
        state = tf_variables([*known, *variables, *variables_of(optimizer)])
        before = {id(v): v.numpy().tobytes() for v in state}
        with preserve_variables(state):
            function()
            values = {id(v): v.numpy().tobytes() for v in state}
        return {key: value for key, value in values.items() if value != before[key]}

    apart, why = False, "depends on other tensors"
    try:
        whole, single = update(len(pairs)), update(1 if pauses else len(pairs))
        alone, together = after(*single), after(*whole)
        # Where equal updates differ, chance has a part in them; rounded, two of a small tensor may be equal.
        drawn = any(after(*single) != alone for _ in range(4))
        apart = drawn or all(together.get(key) == value for key, value in alone.items())
    except Exception as error:
        why = f"fails ({reason(error)})"
    if not apart:
        raise UsageError(
            f"the optimizer {type(optimizer).__name__} has its own {', '.join(own[:3])}, whose update {why}"
            + pauses * ", and here tensors pause: treat each by itself, or use scheme='full'"
        )
