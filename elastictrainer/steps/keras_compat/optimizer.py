"""The state of an optimizer: its slots, its counters, its learning rate."""

import contextlib
from typing import Any, Iterator, List, Optional, Sequence, Tuple

import tensorflow as tf

from elastictrainer.steps.keras_compat.variables import (
    Optimizer,
    Variable,
    share_zeros,
    tf_variable,
    zeros_like,
)
from elastictrainer.steps.keras_compat.version import KERAS_3

# Lists of variables that an optimizer has, and that are not one slot of each tensor.
_NO_SLOTS = ("_variables", "_trainable_variables")


def is_legacy(optimizer: Optimizer) -> bool:
    """Return whether it is one of Keras' older kind, as TensorFlow Addons' are."""
    return not hasattr(optimizer, "build")


def build(optimizer: Optimizer, variables: Sequence[Variable]) -> None:
    """Create the optimizer's counters, and its slots for `variables`, which share their zeros.

    For all tensors at once: an optimizer that was built for a part refuses the others.
    """
    maker = "add_slot" if is_legacy(optimizer) else "add_variable_from_reference"
    make = getattr(optimizer, maker)

    def made(*arguments: Any, **options: Any) -> Any:
        slot = make(*arguments, **options)
        share_zeros(tf_variable(slot))  # at once: all slots of Adam take twice as much as the weights
        return slot

    if not (KERAS_3 or is_legacy(optimizer)):
        # By itself it has XLA compile updates on a GPU, where the profiler cannot look inside.
        optimizer.jit_compile = False
    build = optimizer._create_all_weights if is_legacy(optimizer) else optimizer.build
    with replaced(optimizer, **{maker: made}):
        build(list(variables))


def built_for(optimizer: Optimizer) -> int:
    return len(optimizer._trainable_variables_indices if KERAS_3 else optimizer._index_dict)


def index_of(optimizer: Optimizer, variable: Variable) -> int:
    """Return the number of `variable` among those that the optimizer was built for."""
    if KERAS_3:
        return int(optimizer._get_variable_index(variable))
    return int(optimizer._index_dict[optimizer._var_key(variable)])


def slots(optimizer: Optimizer, variables: Sequence[Variable]) -> Iterator[Tuple[str, Variable, tf.Variable]]:
    """Yield the slots of `variables`: its name in the optimizer, the variable it is for, and the slot."""
    if is_legacy(optimizer):
        for name in optimizer.get_slot_names():
            for variable in variables:
                yield name, variable, optimizer.get_slot(variable, name)
        return
    numbers = [index_of(optimizer, variable) for variable in variables]
    for name, found in list(vars(optimizer).items()):
        if not isinstance(found, list) or len(found) != built_for(optimizer) or name in _NO_SLOTS:
            continue
        for k, variable in zip(numbers, variables):
            if hasattr(found[k], "assign"):
                yield name, variable, tf_variable(found[k])


def reset_slots(optimizer: Optimizer, variables: Sequence[Variable]) -> None:
    """Give the slots of `variables` the values that they are made with, and count their steps from zero.

    For tensors that are frozen now: their momentum would later push them in an outdated direction, and their
    averages of squared gradients would scale by gradients of long ago.
    """
    free = getattr(tf.keras.optimizers, "ScheduleFreeAdamW", ())  # of later versions of Keras 3
    for name, variable, slot in slots(optimizer, variables):
        if name == "_accumulators" and not is_legacy(optimizer):
            slot.assign(tf.fill(slot.shape, tf.cast(optimizer.initial_accumulator_value, slot.dtype)))
        elif name == "_momentums" and isinstance(optimizer, free):
            slot.assign(tf_variable(variable))
        else:
            slot.assign(zeros_like(slot))
    paused = paused_steps(optimizer)
    if paused is not None:  # own steps = iterations - paused: zero for the chosen tensors from here on
        chosen = {index_of(optimizer, variable) for variable in variables}
        again = [k in chosen for k in range(paused.shape[0])]
        paused.assign(tf.where(again, tf_variable(optimizer.iterations), paused))


def paused_steps(optimizer: Optimizer) -> Optional[tf.Variable]:
    """Return (N,) int: how many steps each tensor is behind the optimizer; None before `count_own_steps`."""
    return getattr(optimizer, "_elastictrainer_paused", None)


def untracked_variables(optimizer: Optimizer) -> List[tf.Variable]:
    """Return state of the optimizer that Keras does not count among its variables."""
    product = None if KERAS_3 else getattr(optimizer, "_u_product", None)  # of Nadam
    found = [product, paused_steps(optimizer)]
    return [variable for variable in found if variable is not None]


def rate_variables(optimizer: Optimizer) -> List[Variable]:
    """Return the variables outside the optimizer's own that a callback may set: Keras 2's learning rate."""
    if KERAS_3:
        return []
    rates = optimizer._hyper.values() if is_legacy(optimizer) else [optimizer._learning_rate]
    return [rate for rate in rates if isinstance(rate, tf.Variable)]


def learning_rate(optimizer: Optimizer) -> Any:
    """Return the optimizer's rate, or its schedule; Keras 2 itself gives the rate of the latest update."""
    kept = getattr(optimizer, "_learning_rate", None)
    schedules = tf.keras.optimizers.schedules
    return kept if isinstance(kept, schedules.LearningRateSchedule) else optimizer.learning_rate


def set_learning_rate(optimizer: Optimizer, rate: float, decay_per_rate: float) -> None:
    """Set the learning rate; and the decay of TensorFlow Addons' optimizers, which does not follow it."""
    if not is_legacy(optimizer):
        optimizer.learning_rate = rate
        return
    for name, value in (("learning_rate", rate), ("weight_decay", rate * decay_per_rate)):
        hyper = optimizer._hyper.get(name)
        if isinstance(hyper, tf.Variable):  # a built optimizer's; setting it through Keras takes far longer
            hyper.assign(value)
        elif hyper is not None:
            optimizer._set_hyper(name, value)


@contextlib.contextmanager
def replaced(owner: Any, **attributes: Any) -> Iterator[None]:
    """Give `owner` other attributes for a while; Keras' own bookkeeping of attributes is passed by."""
    before = {name: vars(owner)[name] for name in attributes if name in vars(owner)}
    for name, value in attributes.items():
        object.__setattr__(owner, name, value)
    try:
        yield
    finally:
        for name in attributes:
            if name in before:
                object.__setattr__(owner, name, before[name])
            else:
                object.__delattr__(owner, name)
