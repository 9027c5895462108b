"""Keras callbacks: the user's (`--callback`), and errors for those that do not fit this loop."""

from typing import Any, List, Optional, Sequence

import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.registry import import_object
from elastictrainer.steps.optimizers import follows_schedule
from elastictrainer.steps.rates import RateSchedule

_SET_RATES = (tf.keras.callbacks.ReduceLROnPlateau, tf.keras.callbacks.LearningRateScheduler)
_SWAPS = getattr(tf.keras.callbacks, "SwapEMAWeights", ())  # of Keras 3


def require_supported(
    callbacks: Sequence[Any], optimizer: Any, checkpointed: bool, rates: Optional[RateSchedule] = None
) -> None:
    """Refuse a callback that would fail in the middle of the run, or do nothing.

    Args:
        callbacks: of Keras, and others.
        optimizer: the one that trains.
        checkpointed: `Checkpointing` saves the run.
        rates: the learning rate that the run sets in every step; None: it does not.

    Raises:
        UsageError: names the callback.
    """
    for callback in callbacks:
        name = type(callback).__name__
        if isinstance(callback, _SET_RATES) and (rates or follows_schedule(optimizer)):
            raise UsageError(
                f"{name} sets the learning rate, and the optimizer follows a schedule: give it a "
                "number as its learning rate (et-train: --schedule constant --warmup 0)."
            )
        if isinstance(callback, _SWAPS):
            raise UsageError(f"{name} needs an optimizer with use_ema, which is not supported: leave it out.")
        if not isinstance(callback, tf.keras.callbacks.BackupAndRestore):
            continue
        if checkpointed:
            raise UsageError(
                f"{name} would overwrite the state that Checkpointing brings back (et-train --resume): leave "
                f"{name} out."
            )
        if callback.save_freq != "epoch":  # Keras 2 would take the rest of an epoch for all of it
            raise UsageError(
                f"{name}(save_freq={callback.save_freq}) would go on within an epoch: use "
                'save_freq="epoch", or Checkpointing, which can.'
            )


def create(places: Optional[str]) -> List[tf.keras.callbacks.Callback]:
    """Make the callbacks at `places`, "package.module:name" separated by commas: each a class or a function,
    which is called without arguments.

    Raises:
        UsageError: one cannot be imported, fails, or gives something else.
    """
    made = []
    for place in places.split(",") if places else []:
        make = import_object("--callback", place)
        try:
            callback = make()
        except Exception as error:  # the user's own code
            reason = " ".join(str(error).split())
            raise UsageError(
                f"--callback {place} failed: {type(error).__name__}: {reason} It is called without "
                "arguments: where it needs some, name a function that returns it."
            ) from error
        if not isinstance(callback, tf.keras.callbacks.Callback):
            raise UsageError(f"--callback {place} gave a {type(callback).__name__}, not a Keras callback.")
        made.append(callback)
    return made
