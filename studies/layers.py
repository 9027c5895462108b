"""Tensors by layer: a kernel with the bias and the normalisation behind it; selections of whole layers."""

from dataclasses import replace

import numpy as np


def of(names, shapes):
    """The indices of the tensors of each layer, by the layer's name, from the input to the output.

    Args:
        names, shapes: N of each, in the order of `model.trainable_weights`.
    """
    layers = {}
    for k, (name, shape) in enumerate(zip(names, shapes)):
        if len(shape) > 1 or not layers:
            current = layers.setdefault(name.rpartition("/")[0], [])
        current.append(k)
    return layers


def merged(profile, layers):
    """A profile with the `layers`, from `of`, for tensors: work runs when any tensor of a layer trains."""
    from elastictrainer.profiler.cost_groups import CostGroups

    layer_of = np.zeros(len(profile), int)
    for number, tensors in enumerate(layers.values()):
        layer_of[tensors] = number
    depth = np.argsort(profile.order)  # 0: nearest the output
    deepest = [max(tensors, key=lambda k: depth[k]) for tensors in layers.values()]

    def by_layer(groups):
        return CostGroups.from_sets(
            len(layers), [layer_of[members] for members, _ in groups.sets()], groups.amount
        )

    def of_each(combine, values):
        return np.array([combine(values[tensors]) for tensors in layers.values()])

    costs = profile.cache and replace(
        profile.cache,
        once=by_layer(profile.cache.once),
        once_flops=by_layer(profile.cache.once_flops),
        cut_mb=profile.cache.cut_mb[deepest],
        recompute_ms=profile.cache.recompute_ms[deepest],
    )
    return replace(
        profile,
        names=tuple(layers),
        shapes=((),) * len(layers),
        dw=by_layer(profile.dw),
        dy=by_layer(profile.dy),
        forward=by_layer(profile.forward),
        flops=None,
        t_update=of_each(np.sum, profile.t_update),
        connected=of_each(np.any, profile.connected),
        estimated=of_each(np.any, profile.estimated),
        cache=costs,
        validation=[],
    )


def select_layers(profile, importance, budget):
    """A `Solver`: the layers of the largest summed importance within the budget, each trained whole.

    Where no whole layer fits the budget of ms, it is raised to what the cheapest one takes.
    """
    from elastictrainer import select

    layers = of(profile.names, profile.shapes)
    by_layer = merged(profile, layers)
    summed = np.array([importance[tensors].sum() for tensors in layers.values()])
    rho = min(1.0, max(budget / by_layer.full_ms, by_layer.rho_min))
    mask = np.zeros(len(profile), bool)
    for chosen, tensors in zip(select(by_layer, summed, rho).mask, layers.values()):
        mask[tensors] = chosen
    return mask & profile.connected
