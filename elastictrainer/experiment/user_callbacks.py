"""Keras callbacks that the user names (`--callback`)."""

from typing import List, Optional

import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.registry import import_object


def create(places: Optional[str]) -> List[tf.keras.callbacks.Callback]:
    """Create the callbacks at `places`, "package.module:name" separated by commas: each a class or a
    function, which is called without arguments.

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
