"""Metrics of importance as schemes, for `--scheme study_schemes:NAME` with this folder on PYTHONPATH.

Each selects at every interval as `elastic` does, by another metric: `Fisher` by the sum of squared gradients
(AdaBet), `RelativeGradient` by the norm of a gradient over that of the weights (Auto-RGN), `Size` by
the numbers in a tensor, `Random` by nothing, with the head always (LISA). `ByLayer` is `elastic` that trains
a layer whole or not at all, `Averaged` is `elastic` by the mean of all importances since the run began.
"""

from functools import partial

import numpy as np
import tensorflow as tf

import layers
from elastictrainer import Elastic, select
from elastictrainer.selection import importance

_HEAD = 1e6  # more than all others together: the head's tensors are always chosen


@importance.register("fisher")
def _fisher(gradients, variables):
    return tf.stack([tf.reduce_sum(tf.square(g)) for g in gradients])


@importance.register("relative-gradient")
def _relative_gradient(gradients, variables):
    # A tensor of zeros, as a new head, has all to gain.
    return tf.stack([tf.norm(g) / (tf.norm(v) + 1e-6) for g, v in zip(gradients, variables)])


@importance.register("size")
def _size(gradients, variables):
    return [int(np.prod(v.shape)) for v in variables]


@importance.register("random")
def _random(gradients, variables):
    scores = np.random.random(len(variables))  # of the generator that --seed sets
    scores[-2:] = _HEAD
    return scores


class _Averaging:
    """A solver that selects by the mean of the importances so far, each scaled to a largest one of 1."""

    def __init__(self):
        self._found = []

    def __call__(self, profile, importance, budget_ms):
        scaled = importance / max(np.abs(importance).max(), np.finfo(float).tiny)
        # A correction comes with the importances of the selection that it corrects.
        if not self._found or not any(np.array_equal(scaled, found) for found in self._found):
            self._found.append(scaled)
        return select(
            profile, np.mean(self._found, axis=0), max(profile.rho_min, budget_ms / profile.full_ms)
        ).mask


def Averaged():
    """`elastic` that averages."""
    return Elastic("update", _Averaging())


Fisher = partial(Elastic, "fisher")
RelativeGradient = partial(Elastic, "relative-gradient")
Size = partial(Elastic, "size")
Random = partial(Elastic, "random")
ByLayer = partial(Elastic, "update", layers.select_layers)
