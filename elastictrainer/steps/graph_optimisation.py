"""How often TensorFlow optimises a graph before it runs."""

import contextlib
import functools
from typing import Any, Iterator

import tensorflow as tf
from tensorflow.python.eager import context


@contextlib.contextmanager
def optimised(times: int) -> Iterator[None]:
    """Have Grappler go over the graphs that run in this block so many times; 0: not at all.

    It goes twice by itself. Over a step's graph of MobileNetV2 that takes as long as seven steps; the second
    time makes no step faster. Without the first, cache writes take a fifth longer.
    """
    runtime = context.context()
    before = runtime.function_call_options
    runtime.function_call_options = _options(before.executor_type, before.config_proto_serialized, times)
    try:
        yield
    finally:
        # `tf.config.optimizer` cannot be set back exactly: all other graphs would be optimised again.
        runtime.function_call_options = before


@functools.lru_cache
def _options(executor: str, config: bytes, times: int) -> Any:
    changed = tf.compat.v1.ConfigProto.FromString(config)
    rewriting = changed.graph_options.rewrite_options
    rewriting.disable_meta_optimizer = not times
    rewriting.meta_optimizer_iterations = times
    return context.FunctionCallOptions(executor, changed)
