"""Invented costs of frozen work done once."""

import dataclasses

import numpy as np


def with_reuse(profile, random=None, once=1.0):
    """`profile` with costs of a cache.

    Args:
        random: NumPy's generator, of the sizes and of what is computed again; None: one MB, nothing.
        once: share of the forward work that can be done once.
    """
    from elastictrainer.profiler.cost_groups import CacheCosts

    n = len(profile)
    costs = CacheCosts(
        once=profile.forward.scaled(once),
        once_flops=profile.forward,
        cut_mb=np.ones(n) if random is None else random.random(n),
        recompute_ms=np.zeros(n) if random is None else random.random(n) / 10,
        write_ms=0.02,
        write_ms_per_mb=0.05,
        read_ms=0.01,
        read_ms_per_mb=0.03,
    )
    return dataclasses.replace(profile, cache=costs)


def reusable_chain(profile, once=0.95):
    """A chain whose forward work depends on the tensors nearer the input, and on these alone."""
    from elastictrainer.profiler.cost_groups import CostGroups

    n = len(profile)
    always, rest = profile.forward_ms / 6, profile.forward_ms * 5 / 6
    groups = [(), *(range(k + 1) for k in range(n))]
    forward = CostGroups.from_sets(n, groups, [always, *np.full(n, rest / n)])
    return with_reuse(dataclasses.replace(profile, forward=forward), once=once)
