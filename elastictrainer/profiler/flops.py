"""FLOPs of graph ops, by TensorFlow's own op statistics."""

from typing import Any, Sequence

import numpy as np


def flops_of(operations: Sequence[Any]) -> np.ndarray:
    """(ops,) float64: floating point operations of each op; 0 where TensorFlow has no statistics for its type."""
    from tensorflow.python.framework import ops
    from tensorflow.python.profiler.internal import flops_registry  # noqa: F401  (registers the statistics)

    counts = np.zeros(len(operations))
    for k, op in enumerate(operations):
        try:
            counts[k] = ops.get_stats_for_node_def(op.graph, op.node_def, "flops").value or 0
        except (ValueError, AssertionError, TypeError):  # a shape that is only known at run time
            counts[k] = 0
    return counts
