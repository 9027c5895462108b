"""Functions of installed Python packages, as token sequences and as graphs: data that needs no download.

The label is the package that a function comes from. Docstrings are left out: they name it.
"""

import ast
import re
import sysconfig
import zlib
from pathlib import Path

import numpy as np

WORDS, LENGTH = 4096, 80  # hashed tokens; tokens of a function
KINDS, NODES = 256, 64  # hashed kinds of syntax nodes; nodes of a graph
_SHORTEST = 8  # lines; below, functions look alike
_TESTED = 3  # every third file is for testing: a file's functions resemble each other


def load(packages, most, encode):
    """Arrays of functions: (x, labels) to train on, and (x, labels) of other files to test on.

    Args:
        packages: folders of the standard library or of site-packages; the classes.
        most: functions of a class.
        encode: `as_tokens` or `as_graph`, or what else makes a dict of arrays of a function.
    """
    parts = {"train": [], "test": []}
    for label, package in enumerate(packages):
        found = {"train": [], "test": []}
        for number, path in enumerate(_files(package)):
            found["train" if number % _TESTED else "test"] += _functions(path)
        if not all(found.values()):
            raise SystemExit(f"{package} has too few functions here; choose another package.")
        for part, functions in found.items():
            share = most * (_TESTED - 1 if part == "train" else 1) // _TESTED
            kept = np.random.default_rng(0).permutation(len(functions))[:share]
            parts[part] += [(encode(functions[k]), label) for k in kept]
    return [_stacked(rows) for rows in parts.values()]


def as_tokens(function):
    """{"tokens": (LENGTH,)} hashed words and signs, from 1; 0 where there are no more."""
    words = re.findall(r"\w+|[^\w\s]", ast.unparse(function))[:LENGTH]
    return {"tokens": _padded([1 + _hashed(word, WORDS - 1) for word in words], LENGTH)}


def as_graph(function):
    """{"kinds": (NODES,)} of syntax nodes, from 1, outermost first; {"edges": (NODES, NODES)}, normalised.

    An edge joins a node to its parent and to itself; its weight is 1 / sqrt(degree x degree).
    """
    nodes, parents = [function], [0]
    for place, node in enumerate(nodes):
        children = list(ast.iter_child_nodes(node))[: NODES - len(nodes)]
        nodes += children
        parents += [place] * len(children)
    edges = np.zeros((NODES, NODES), np.float32)
    for node, parent in enumerate(parents):
        edges[node, parent] = edges[parent, node] = edges[node, node] = 1
    degree = np.maximum(edges.sum(axis=1), 1)
    kinds = [1 + _hashed(type(node).__name__, KINDS - 1) for node in nodes]
    return {"kinds": _padded(kinds, NODES), "edges": edges / np.sqrt(np.outer(degree, degree))}


def _files(package):
    paths = sysconfig.get_paths()
    folders = [Path(paths[place], package) for place in ("stdlib", "purelib")]
    files = sorted(path for folder in folders for path in folder.rglob("*.py"))
    return [
        path for path in files if "test" not in str(path.relative_to(path.parents[-2])).split(package)[-1]
    ]


def _functions(path):
    try:
        module = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # a template
        return []
    found = []
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= _SHORTEST:
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
            found.append(node)
    return found


def _hashed(word, size):
    return zlib.crc32(word.encode()) % size  # Python's own hash differs between processes


def _padded(numbers, length):
    return np.array(numbers + [0] * (length - len(numbers)), np.int32)


def _stacked(rows):
    names = rows[0][0]
    return {name: np.stack([x[name] for x, _ in rows]) for name in names}, np.array([y for _, y in rows])
