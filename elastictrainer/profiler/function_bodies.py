"""Inside the functions that a graph calls: which of their ops each output needs."""

from collections import defaultdict
from typing import Any, Dict, List, Tuple

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
LOOPS = ("While", "StatelessWhile")

Labels = Dict[str, int]


class Functions:
    """The functions of a graph, for asking what their outputs depend on.

    Labels are sets as bits: what an output is wanted for. Sources are the functions' definitions, `GraphDef.library`.
    """

    def __init__(self, library: Any):
        self._by_name = {function.signature.name: function for function in library.function}

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def labelled(self, name: str, outputs: List[int]) -> Tuple[List[int], Labels]:
        """What a function's inputs and ops are wanted for.

        Args:
            name: of the function.
            outputs: a label for each output.

        Returns:
            A label for each input; and for each op by name, those in called functions under their bare names, those in
            loops as `LOOP/body/OP` and `LOOP/cond/OP`; 0 for what no labelled output needs.
        """
        function = self._by_name[name]
        nodes = {node.name: node for node in function.node_def}
        arguments = [argument.name for argument in function.signature.input_arg]
        argument_labels: Labels = dict.fromkeys(arguments, 0)
        labels: Labels = dict.fromkeys(nodes, 0)
        of_output: Dict[str, Dict[int, int]] = defaultdict(lambda: defaultdict(int))  # of calls and loops
        returned = [function.ret[argument.name] for argument in function.signature.output_arg]
        pending = [(tensor, label) for tensor, label in zip(returned, outputs) if label]
        while pending:
            tensor, label = pending.pop()
            if tensor.startswith("^"):  # an order, not a value
                continue
            base, *rest = tensor.split(":")
            if base in argument_labels:
                argument_labels[base] |= label
                continue
            node = nodes[base]
            if self._inside(node):
                index = int(rest[-1]) if rest else 0
                if of_output[base][index] | label == of_output[base][index]:
                    continue
                of_output[base][index] |= label
                labels[base] |= label
                inputs, _ = self._through(node, of_output[base])
                pending += [(source, wanted) for source, wanted in zip(node.input, inputs) if wanted]
            elif labels[base] | label != labels[base]:
                labels[base] |= label
                pending += [(source, labels[base]) for source in node.input]
        for base, node in nodes.items():
            if self._inside(node):
                for inner, label in self._through(node, of_output[base])[1].items():
                    labels[inner] = labels.get(inner, 0) | label
        return [argument_labels[argument] for argument in arguments], labels

    def _inside(self, node: Any) -> bool:
        if node.op in CALLS:
            return node.attr["f"].func.name in self
        return node.op in LOOPS and node.attr["body"].func.name in self

    def _through(self, node: Any, of_output: Dict[int, int]) -> Tuple[List[int], Labels]:
        """`labelled` of the function that a node calls, or runs in a loop."""
        if node.op in CALLS:
            outputs = [of_output.get(k, 0) for k in range(len(node.attr["Tout"].list.type))]
            return self.labelled(node.attr["f"].func.name, outputs)
        wanted = [of_output.get(k, 0) for k in range(len(node.attr["T"].list.type))]
        found: Labels = {}
        while True:  # what an iteration hands to the next is wanted for what that one is wanted for
            inputs, body = self.labelled(node.attr["body"].func.name, wanted)
            anything = 0
            for label in wanted:
                anything |= label
            read, condition = self.labelled(node.attr["cond"].func.name, [anything])
            merged = [a | b | c for a, b, c in zip(wanted, inputs, read)]
            if merged == wanted:
                break
            wanted = merged
        for part, names in (("body", body), ("cond", condition)):
            found.update({f"{node.name}/{part}/{name}": label for name, label in names.items()})
        return wanted, found
