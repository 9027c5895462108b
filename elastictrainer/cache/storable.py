"""The tensors of a graph that can be stored example by example, and the dtypes they are stored in."""

from typing import Any

import numpy as np
import tensorflow as tf

from elastictrainer.cache.cache_storage import Column


def is_storable(tensor: Any, batch: int) -> bool:
    """Return whether the tensor of a graph seems to hold a row for each of `batch` examples."""
    shape = tensor.shape
    return (
        (tensor.dtype.is_floating or tensor.dtype.is_integer or tensor.dtype.is_bool)
        and shape.rank is not None
        and shape.rank >= 1
        and shape[0] in (None, batch)
        and shape[1:].is_fully_defined()
    )


def stored_dtype(dtype: tf.DType, floats: str) -> str:
    """Return the dtype that numbers of `dtype` are stored in: wide ones in `floats`; bfloat16 too, which
    NumPy lacks.
    """
    narrowed = dtype in (tf.float32, tf.float64) and floats == "float16"
    return floats if narrowed or dtype == tf.bfloat16 else str(dtype.name)


def row_bytes(tensor: Any, floats: str) -> int:
    """Return bytes of a storable tensor's row as it is stored."""
    return Column(tuple(tensor.shape[1:]), stored_dtype(tensor.dtype, floats)).bytes


def minibatch_mb(tensor: Any, batch: int) -> float:
    """Return the MB of float32 that `batch` rows of the tensor have; infinite where it cannot be stored."""
    return 1e-6 * batch * row_bytes(tensor, "float32") if is_storable(tensor, batch) else np.inf
