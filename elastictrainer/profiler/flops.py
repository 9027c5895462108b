"""FLOPs of graph ops, by TensorFlow's own op statistics."""

from typing import Any, Callable, Dict, Sequence

import numpy as np


def flops_of(operations: Sequence[Any]) -> np.ndarray:
    """Return (ops,) float64: floating point operations of each op; 0 where there are no statistics for its
    type.

    TensorFlow counts a multiplication and an addition as two. Its statistics lack the gradients of depthwise
    convolutions, which cost what the convolution costs and are counted here, and batch normalisation, which
    is not.
    """
    from tensorflow.python.framework import ops
    from tensorflow.python.profiler.internal import flops_registry  # noqa: F401  (registers the statistics)

    counts = np.zeros(len(operations))
    for k, op in enumerate(operations):
        try:
            if op.type in _LACKING:
                counts[k] = _LACKING[op.type](op)
            else:
                counts[k] = ops.get_stats_for_node_def(op.graph, op.node_def, "flops").value or 0
        except (ValueError, AssertionError, TypeError):  # a shape that is only known at run time
            counts[k] = 0
    return counts


def _depthwise(filter_shape: Any, gradient_shape: Any) -> float:
    """Count two operations for each element of the filter, at each place and channel of the output."""
    height, width = filter_shape.as_list()[:2]
    return 2.0 * height * width * gradient_shape.num_elements()


_LACKING: Dict[str, Callable[[Any], float]] = {
    "DepthwiseConv2dNativeBackpropInput": lambda op: _depthwise(op.inputs[1].shape, op.inputs[2].shape),
    "DepthwiseConv2dNativeBackpropFilter": lambda op: _depthwise(op.outputs[0].shape, op.inputs[2].shape),
}
