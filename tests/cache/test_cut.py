import itertools

import numpy as np
import pytest

from elastictrainer.cache.cut import least_cost_cut
from elastictrainer.cache.frozen_ops import FrozenOps


class Op:
    """An op of a graph, with outputs that know who reads them."""

    def __init__(self, name, inputs=(), outputs=1, kind="Op"):
        self.name, self.type, self.inputs = name, kind, list(inputs)
        self.outputs = [Tensor(self, k) for k in range(outputs)]
        for tensor in self.inputs:
            tensor.readers.append(self)


class Tensor:
    def __init__(self, op, index):
        self.op, self.name, self.readers = op, f"{op.name}:{index}", []

    def consumers(self):
        return self.readers


def frozen(operations, moving=(), **sets):
    """Make the FrozenOps of a graph whose ops are all frozen but those at `moving`."""
    rest = {name: set(sets.get(name, ())) for name in ("random", "unstored")}
    return FrozenOps(
        operations, set(range(len(operations))) - set(moving), set(moving), **rest, random_states={}
    )


def cheapest_by_brute_force(ops, needed, op_cost, tensor_cost):
    """The least cost of any set of stored tensors, what they do not give being computed again."""
    position = ops.position
    tensors = [t for k in sorted(ops.frozen) for t in ops.operations[k].outputs]
    best = np.inf
    for chosen in itertools.product([False, True], repeat=len(tensors)):
        stored = {t.name for t, kept in zip(tensors, chosen) if kept}
        cost = sum(tensor_cost(t) for t in tensors if t.name in stored)
        again, pending = set(), list(needed)
        while pending:
            for tensor in ops.operations[pending.pop()].inputs:
                k = position[tensor.op.name]
                if k in ops.frozen and tensor.name not in stored and k not in again:
                    again.add(k)
                    pending.append(k)
        if any(ops.operations[k].type == "Placeholder" for k in again):
            continue
        best = min(best, cost + sum(op_cost(ops.operations[k]) for k in again))
    return best


@pytest.mark.parametrize("seed", range(10))
def test_least_cost_cut_costs_as_little_as_the_best_of_all_cuts(seed):
    random = np.random.default_rng(seed)
    operations = [Op("x", kind="Placeholder")]
    for k in range(1, 9):
        tensors = [t for op in operations for t in op.outputs]
        inputs = random.choice(len(tensors), min(len(tensors), random.integers(1, 3)), replace=False)
        operations.append(Op(f"o{k}", [tensors[i] for i in inputs], outputs=random.integers(1, 3)))
    moving = set(random.choice(np.arange(4, 9), 2, replace=False).tolist())
    moving |= {
        k for k in range(9) if any(t.op in [operations[m] for m in moving] for t in operations[k].inputs)
    }
    moving |= {
        k for k in range(9) if any(t.op in [operations[m] for m in moving] for t in operations[k].inputs)
    }
    ops = frozen(operations, moving)
    op_ms = {op.name: float(random.integers(1, 20)) for op in operations}
    tensor_ms = {t.name: float(random.integers(1, 20)) for op in operations for t in op.outputs}
    cut = least_cost_cut(ops, moving, lambda op: op_ms[op.name], lambda t: tensor_ms[t.name])
    cost = sum(tensor_ms[t.name] for t in cut.tensors)
    cost += sum(op_ms[operations[k].name] for k in cut.recomputed)
    expected = cheapest_by_brute_force(ops, moving, lambda op: op_ms[op.name], lambda t: tensor_ms[t.name])
    assert cost == pytest.approx(expected)


def chain(*kinds):
    operations = [Op("x", kind="Placeholder")]
    for k, kind in enumerate(kinds):
        operations.append(Op(f"o{k}", operations[-1].outputs, kind=kind))
    return operations


def names(cut):
    return [tensor.name for tensor in cut.tensors]


def test_small_tensors_are_stored_and_what_is_cheap_is_computed_again():
    operations = chain("Conv", "Relu", "Conv", "Moving")
    sizes = {"x:0": 9.0, "o0:0": 1.0, "o1:0": 1.5, "o2:0": 9.0}
    cut = least_cost_cut(frozen(operations, {4}), {4}, lambda op: 3.0, lambda t: sizes[t.name])
    assert names(cut) == ["o1:0"] and cut.recomputed == {3}, "1.5 and an operation of 3, instead of 1 and two"
    cheap = least_cost_cut(frozen(operations, {4}), {4}, lambda op: 0.1, lambda t: sizes[t.name])
    assert names(cheap) == ["o0:0"]
    assert cheap.recomputed == {2, 3}
    assert cheap.done_once == {1}


def test_a_tensor_that_cannot_be_stored_is_computed_again():
    operations = chain("Conv", "Transpose", "Moving")
    cut = least_cost_cut(
        frozen(operations, {3}), {3}, lambda op: 1.0, lambda t: np.inf if t.name == "o1:0" else 5.0
    )
    assert names(cut) == ["o0:0"]


def test_the_cut_is_never_right_behind_a_dropout():
    operations = chain("Conv", "Dropout", "Moving")
    ops = frozen(operations, {3}, unstored={2})
    cut = least_cost_cut(ops, {3}, lambda op: 1.0, lambda t: 1.0 if t.name == "o1:0" else 100.0)
    assert names(cut) == ["o0:0"]
    assert cut.recomputed == {2}


def test_a_random_draw_is_not_made_for_the_cache_and_again_in_a_cached_step():
    """A shortcut around a layer behind a dropout: both ends must see the same draw."""
    operations = [Op("x", kind="Placeholder"), Op("mask")]
    operations.append(Op("dropout", [operations[0].outputs[0], operations[1].outputs[0]]))
    operations.append(Op("conv", operations[2].outputs))
    operations.append(Op("add", [operations[2].outputs[0], operations[3].outputs[0]]))
    ops = frozen(operations, {1, 4}, random={1}, unstored={2})
    cut = least_cost_cut(ops, {4}, lambda op: 10.0 if op.name == "conv" else 1.0, lambda t: 1.0)
    assert names(cut) == ["x:0"]
    assert cut.recomputed == {2, 3}


def test_shapes_and_masks_are_not_stored():
    operations = chain("Conv", "Shape", "Moving")
    cut = least_cost_cut(frozen(operations, {3}, unstored={2}), {3}, lambda op: 1.0, lambda t: 1.0)
    assert names(cut) == ["o0:0"]
