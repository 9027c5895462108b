"""Walks through a graph and through the functions that its ops call. No TensorFlow."""

from typing import Any, Callable, Dict, Hashable, Iterable, Set, TypeVar

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
LOOPS = ("While", "StatelessWhile")

Item = TypeVar("Item", bound=Hashable)
Functions = Dict[str, Any]  # definitions by name


def reached(starts: Iterable[Item], following: Callable[[Item], Iterable[Item]]) -> Set[Item]:
    """Return `starts`, and all that is reached by going on from an item to those `following` it."""
    found = set(starts)
    pending = list(found)
    while pending:
        new = set(following(pending.pop())) - found
        found |= new
        pending += new
    return found


def called(node: Any) -> Set[str]:
    """Return the names of the functions that a node calls, or runs as branches or in a loop."""
    values = node.attr.values()
    return {value.func.name for value in values if value.HasField("func")}.union(
        f.name for value in values for f in value.list.func
    )


def functions_of(library: Any) -> Functions:
    """Return the definitions of a graph's functions, `GraphDef.library`, by their names."""
    return {function.signature.name: function for function in library.function}


def kinds_in(node: Any, functions: Functions) -> Set[str]:
    """Return the types of the ops that a node runs in functions; none where it calls none."""

    def inner(name: str) -> Set[str]:
        return {f for node in functions[name].node_def for f in called(node) if f in functions}

    names = reached(called(node) & functions.keys(), inner)
    return {node.op for name in names for node in functions[name].node_def}
