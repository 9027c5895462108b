"""Traced graphs, of which parts go into the graph of another function without being traced again."""

from typing import Any, Callable, Iterable, Iterator, List, Sequence, Set, Tuple, Union

import tensorflow as tf

from elastictrainer.steps.graph_library import reached

# Ops that only read the variable whose handle they take.
READS = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp")
_READ_ONLY = "_read_only_resource_inputs"  # TensorFlow marks with it what a function only reads

Nested = Any  # tensors in lists, tuples and dicts, as a model takes and gives them
Gradient = Union[tf.Tensor, tf.IndexedSlices, None]


class NotAPart(Exception):
    """The reason why a part of a graph cannot stand alone."""


class SourceGraph:
    """The graph of a traced tf.function; `definition` is the same as a tf.GraphDef."""

    def __init__(self, graph: tf.Graph):
        self.graph = graph
        self.definition = graph.as_graph_def()
        # Names of tensors that an op takes; one with "^" is an op that it waits for.
        self._inputs = {node.name: list(map(_tensor, node.input)) for node in self.definition.node}
        self._placeholders = {node.name for node in self.definition.node if node.op == "Placeholder"}

    def inputs(self) -> Iterator[Tuple[str, List[str]]]:
        """Yield each op's name, and the names of the tensors it takes; producers before consumers."""
        for name, sources in self._inputs.items():
            yield name, [source for source in sources if not source.startswith("^")]

    def upstream(self, ends: Iterable[str], given: Iterable[str] = ()) -> Set[str]:
        """Return the names of the ops `ends` and of all whose values they need, through no tensor `given`."""
        stops = set(given)

        def before(name: str) -> Iterator[str]:
            sources = (s for s in self._inputs[name] if not s.startswith("^") and s not in stops)
            return (source.partition(":")[0] for source in sources)

        return reached(ends, before)

    def extract(
        self, feeds: Sequence[tf.Tensor], fetches: Sequence[tf.Tensor], effects: Sequence[tf.Operation] = ()
    ) -> Callable[..., List[tf.Tensor]]:
        """Return a function that computes `fetches` from `feeds`, to be called while a tf.function is traced.

        Both are tensors of this graph; `effects` are ops of it that run for their effect. NotAPart where an
        input is needed that is not fed.
        """
        fed = [feed.name for feed in feeds]
        ends = {fetch.op.name for fetch in fetches if fetch.name not in fed}
        needed = self.upstream(ends | {op.name for op in effects}, fed)
        used = {source for name in needed for source in self._inputs[name]} - set(fed)
        # What this graph captures, such as the handle of a variable, the other one captures again. Any other
        # placeholder is an input, and has to be fed.
        captured = [(outer, inner.name) for outer, inner in self.graph.captures if inner.name in used]
        replaced = {name for _, name in captured}
        for name in sorted(needed & self._placeholders):
            if f"{name}:0" not in replaced and (f"{name}:0" in used or name in ends):
                raise NotAPart(f"it needs {name}")
        definition = self._definition_of(needed - self._placeholders)
        wanted = sorted({fetch.name for fetch in fetches} - set(fed))
        handles = {id(outer) for outer, _ in captured}
        variables = [v for v in self.graph.variables if id(v.handle) in handles]
        # TensorFlow refuses to import a graph with a value for what no op takes.
        taken = {_tensor(source) for node in definition.node for source in node.input}

        def build(*values: tf.Tensor) -> List[tf.Tensor]:
            graph = tf.compat.v1.get_default_graph()
            for variable in variables:  # the graph's `variables` are those that it watches
                graph.watch_variable(variable)
            given = dict(zip(fed, values))
            given.update((name, graph.capture(outer)) for outer, name in captured)
            found = tf.graph_util.import_graph_def(
                definition,
                {name: value for name, value in given.items() if name in taken},
                wanted,
                name="",
            )
            given.update(zip(wanted, found))
            return [given[fetch.name] for fetch in fetches]

        return build

    def _definition_of(self, inside: Set[str]) -> tf.compat.v1.GraphDef:
        """Return the GraphDef of the ops `inside`, which keep their order."""
        part = tf.compat.v1.GraphDef(versions=self.definition.versions, library=self.definition.library)
        for node in self.definition.node:
            if node.name not in inside:
                continue
            copy = part.node.add()
            copy.CopyFrom(node)
            copy.attr.pop("_class", None)  # to be where another op is, which may be outside
            values = [source for source in node.input if not source.startswith("^")]
            copy.input[:] = [*values, *(f"^{name}" for name in sorted(self._waits_for(node.name, inside)))]
        return part

    def _waits_for(self, name: str, inside: Set[str]) -> Set[str]:
        """Return the ops `inside` that the op waits for, also through others that are left out."""

        def waited_for(name: str) -> Set[str]:
            return {source[1:] for source in self._inputs[name] if source.startswith("^")}

        return reached(waited_for(name), lambda op: set() if op in inside else waited_for(op)) & inside


def written_by(op: tf.Operation) -> List[tf.Tensor]:
    """Return the handles that the op may write through."""
    handles = [(k, tensor) for k, tensor in enumerate(op.inputs) if tensor.dtype == tf.resource]
    if not handles or op.type in READS or not op.op_def.is_stateful:
        return []
    try:
        only_read: Tuple[int, ...] = tuple(op.get_attr(_READ_ONLY))
    except ValueError:
        only_read = ()
    return [tensor for k, tensor in handles if k not in only_read]


def _tensor(source: str) -> str:
    """Return a node's input as the name of a tensor: GraphDefs leave out the number of the first output."""
    return source if ":" in source or source.startswith("^") else f"{source}:0"


def values_of(gradient: Gradient) -> Any:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def flat(data: Nested) -> List[tf.Tensor]:
    """Flatten the tensors, or specs, of nested inputs or labels; None is none."""
    return [part for part in tf.nest.flatten(data) if part is not None]
