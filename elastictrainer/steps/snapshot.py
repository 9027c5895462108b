"""Running something on live variables and leaving every bit as it was."""

import contextlib
from typing import Any, Callable, Iterable, Iterator, List

import tensorflow as tf

from elastictrainer.steps.keras_compat import tf_variables


@contextlib.contextmanager
def restored(variables: Iterable[Any]) -> Iterator[Callable[[Iterable[Any]], List[tf.Tensor]]]:
    """Put each variable back to the bits it had, also when the block raises.

    Yields:
        A function that puts some of the variables back at once, and returns the values they have then.
    """
    unique = {id(v): v for v in tf_variables(variables)}
    before = {
        key: v.read_value() for key, v in unique.items()
    }  # TensorFlow copies a buffer on write while a tensor holds it

    def put_back(some: Iterable[Any]) -> List[tf.Tensor]:
        some = tf_variables(some)
        for variable in some:
            variable.assign(before[id(variable)])
        return [before[id(variable)] for variable in some]

    try:
        yield put_back
    finally:
        put_back(unique.values())
