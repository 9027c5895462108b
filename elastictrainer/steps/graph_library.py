"""Walks through a graph and through the functions that its ops call. No TensorFlow."""

from typing import Any, Callable, Hashable, Iterable, Set, TypeVar

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
LOOPS = ("While", "StatelessWhile")

Item = TypeVar("Item", bound=Hashable)


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


class GraphLibrary:
    """The functions of a graph, their definitions by name."""

    def __init__(self, library: Any):
        """`library`: of the graph, `GraphDef.library`."""
        self.functions = {function.signature.name: function for function in library.function}

    def kinds_in(self, node: Any) -> Set[str]:
        """Return the types of the ops that a node runs in functions; none where it calls none."""
        names = reached(called(node) & self.functions.keys(), self._called_in)
        return {inner.op for name in names for inner in self.functions[name].node_def}

    def _called_in(self, name: str) -> Set[str]:
        return {f for inner in self.functions[name].node_def for f in called(inner) if f in self.functions}
