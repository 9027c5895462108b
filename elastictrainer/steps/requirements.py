"""The requirements of a model to be trained here."""

import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.steps.keras_compat.fitting import is_compiled, steps_per_execution
from elastictrainer.steps.keras_compat.own_steps import updates_together

_ONE_OP = "has XLA make one op of many, of which no tensor's time can be measured"


def require_trainable(model: tf.keras.Model) -> None:
    """Raise UsageError, saying what to change, if a built model has no trainable tensor, or XLA hides their
    times.
    """
    if tf.config.optimizer.get_jit():
        raise UsageError(f"tf.config.optimizer.set_jit {_ONE_OP}: switch it off with set_jit('').")
    if not model.trainable_variables:
        raise UsageError("the model has no trainable tensor. Set `trainable = True` on a layer.")


def require_supported(model: tf.keras.Model, pauses: bool = True) -> None:
    """Raise UsageError, saying what to change, if the model's way of training excludes this one.

    Args:
        model: to be trained.
        pauses: tensors are frozen and unfrozen during the run.
    """
    overridden = [
        name
        for name in ("train_step", "make_train_function")
        if getattr(type(model), name) is not getattr(tf.keras.Model, name)
    ]
    if overridden:
        raise UsageError(
            f"{type(model).__name__} has its own {overridden[0]}: it decides there which tensors it trains. "
            "Move what it adds into the loss, add_loss or metrics, or train it with Model.fit."
        )
    if type(model).compute_metrics is not tf.keras.Model.compute_metrics:
        raise UsageError(
            f"{type(model).__name__} has its own compute_metrics, which would get no inputs here, and what "
            "it gives would not be reported: pass its metrics to compile(metrics=...), or train it with "
            "Model.fit."
        )
    if not is_compiled(model):
        raise UsageError("the model is not compiled: call compile(optimizer=..., loss=...) first.")
    if model.run_eagerly:
        raise UsageError("run_eagerly=True runs every op, wanted or not: leave it out.")
    if getattr(model, "jit_compile", False):
        raise UsageError(f"jit_compile=True {_ONE_OP}: compile with jit_compile=False.")
    if steps_per_execution(model) != 1:
        raise UsageError(
            "steps_per_execution must be 1: tensors are chosen, and times measured, between two steps."
        )
    if model.distribute_strategy.num_replicas_in_sync > 1:
        raise UsageError(
            "the model was made under a distribution strategy; only one device is supported here."
        )
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
