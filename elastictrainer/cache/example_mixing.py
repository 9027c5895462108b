"""A check of which ops of a step mix the examples of a minibatch: those cannot be cached one by one."""

from dataclasses import replace
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import numpy as np
import tensorflow as tf

from elastictrainer.cache.split import TracedStep
from elastictrainer.cache.storable import is_storable, row_bytes
from elastictrainer.steps.graph_optimisation import optimised
from elastictrainer.steps.snapshot import preserve_variables
from elastictrainer.steps.step_in_graph import flat

# What an op makes of the examples of a minibatch: a row of each one alone; rows that depend on the others;
# or another number of rows.
ALIKE, MIXES, FOLDS = "alike", "mixes", "folds"
_HELD = 64e6  # bytes of tensors that are compared at once: a run may have a limit of memory
_ALIKE = 1e-2  # of the largest number: far more than rounding, far less than another example's features


def stop_where_examples_mix(
    step: TracedStep, minibatch: Any, known: Dict[str, str], held: float = _HELD
) -> None:
    """Leave nothing frozen that depends on how a minibatch is made up, such as its mean.

    The first example must give the same among the others as among copies of itself. What has not one row for
    each example, as where windows or time steps were made rows, stays frozen but is not stored.

    Args:
        step: whose `ops` change.
        minibatch: inputs and labels of a full size.
        known: ALIKE, MIXES or FOLDS of ops by name, from other steps of the same model; new ops are added.
        held: bytes of tensors that are compared at once.
    """
    ops = step.ops
    inputs = [tf.convert_to_tensor(value) for value in flat(minibatch[0])]
    batch = int(inputs[0].shape[0])
    hidden = ops.random - set(ops.random_states)  # their draws cannot be repeated
    new = [
        tensor
        for k in sorted(ops.frozen - ops.downstream(hidden))
        if ops.operations[k].name not in known
        for tensor in ops.operations[k].outputs
        if is_storable(tensor, batch)
    ]
    for tensors in in_parts(new, batch, held) if batch > 1 else ():
        _compare_examples(step, tensors, inputs, known)
    found = {k: known.get(ops.operations[k].name) for k in ops.frozen}
    mixing = {k for k, what in found.items() if what == MIXES}
    folding = {k for k, what in found.items() if what == FOLDS}
    step.ops = replace(ops, frozen=ops.frozen - ops.downstream(mixing), unstored=ops.unstored | folding)


def _compare_examples(
    step: TracedStep, tensors: Sequence[Any], inputs: Sequence[tf.Tensor], known: Dict[str, str]
) -> None:
    """Add to `known` how the ops of `tensors` combine examples: ALIKE, MIXES or FOLDS."""
    batch = int(inputs[0].shape[0])
    every, states = step.prefix(tensors)
    run = tf.function(every, autograph=False)

    def first_rows(values: Sequence[tf.Tensor]) -> Tuple[List[np.ndarray], List[int]]:
        found = run(*values)
        return [value.numpy()[:1].copy() for value in found], [int(value.shape[0]) for value in found]

    # The same random numbers in both runs: only the other examples of the minibatch differ.
    with preserve_variables(states) as restore, optimised(0):
        among_others, rows = first_rows(inputs)
        restore(states)
        among_copies, _ = first_rows([tf.repeat(value[:1], batch, axis=0) for value in inputs])
    for tensor, one, other, count in zip(tensors, among_others, among_copies, rows):
        alike = _alike(one, other)
        what = MIXES if not alike else ALIKE if count == batch else FOLDS
        if known.get(tensor.op.name, ALIKE) == ALIKE or what == MIXES:  # an op may have several outputs
            known[tensor.op.name] = what


def in_parts(tensors: Sequence[Any], batch: int, most: float) -> Iterator[List[Any]]:
    """Divide tensors into parts of so many bytes: a function holds all that it returns until it ends."""
    part: List[Any] = []
    held = 0.0
    for tensor in tensors:
        size = batch * row_bytes(tensor, "float32")
        if part and held + size > most:
            yield part
            part, held = [], 0.0
        part.append(tensor)
        held += size
    if part:
        yield part


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether they are equal up to the order in which kernels add up."""
    if np.array_equal(one, other):  # as nearly always
        return True
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    return np.allclose(one, other, rtol=_ALIKE, atol=_ALIKE * max(1e-30, np.abs(one).max(initial=0.0)))
