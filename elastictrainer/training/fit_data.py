"""The data of a run: what Keras' `fit` takes, or a function that can begin anywhere; whether it repeats."""

import dataclasses
import inspect
import itertools
from typing import Any, Callable, Dict, Iterator, Optional, Set, Tuple, Union

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from elastictrainer.cache.settings import CacheSettings
from elastictrainer.errors import UsageError
from elastictrainer.steps.keras_compat.fitting import FitData, most_steps_per_epoch

Stream = Callable[[int, int], tf.data.Dataset]  # from an epoch and the number of its first minibatch
Given = Dict[str, Any]  # the arguments of `Trainer.fit`, by name

# Steps of a tf.data pipeline, by their classes' names without "Dataset".
_ANY_ORDER = {  # give the same examples in whatever order they get theirs
    *("TensorSlice", "Tensor", "Range", "TextLine", "TextLineV2", "TFRecord", "TFRecordV2"),
    *("FixedLengthRecord", "FixedLengthRecordV2", "SparseTensorSlice"),
    *("Map", "ParallelMap", "Filter", "FlatMap", "Interleave", "ParallelInterleave", "Concatenate", "Repeat"),
    *("Batch", "ParallelBatch", "PaddedBatch", "Unbatch"),
    *("Prefetch", "Options", "Restructured", "IgnoreErrors", "AssertCardinality", "V1Adapter", "Shuffle"),
}
_THEIR_ORDER = {  # give other ones where the order is another
    *("Take", "Skip", "Shard", "TakeWhile", "Zip"),
    *("Window", "GroupByWindow", "Scan", "Unique"),
}
_BATCHES = ("Batch", "ParallelBatch", "PaddedBatch")
_EACH = {"Map", "ParallelMap", "Filter", "Prefetch", "Options", "Restructured", "AssertCardinality"}
# Ops with a state, or that TensorFlow says have one, which always give the same for the same.
_STEADY = {
    *("Assert", "StatefulPartitionedCall", "If", "While", "Case", "StatelessRandomGetAlg"),
    *("LookupTableFindV2", "LookupTableSizeV2", "TensorDataset", "TensorSliceDataset", "RangeDataset"),
    *("TextLineDataset", "TFRecordDataset", "TFRecordDatasetV2"),
    *("FixedLengthRecordDataset", "FixedLengthRecordDatasetV2"),
}
_WORD = 'If every epoch has the same examples, pass activation_cache="always" to Trainer.'


class StreamData:
    """A function of (epoch, first), which gives the same whenever it is called; see `Trainer.fit`."""

    endless = True  # one iterator goes on from epoch to epoch, and must not end
    repeatable = True  # `again` can be called

    def __init__(self, stream: Stream, steps: int):
        self.steps, self._stream = steps, stream
        self.spec: Any = None

    def read(self, epoch: int, first: int) -> Iterator[Any]:
        data = self._stream(epoch, first)
        self.spec = data.element_spec
        return iter(data)

    def again(self, epoch: int, count: int) -> Iterator[Any]:
        return iter(self._stream(epoch, 0).take(count))


class KerasData(FitData):
    """Data in one of Keras' forms. Each epoch begins when it is read, and cannot begin in its middle."""

    endless = False

    def __init__(self, model: tf.keras.Model, given: Given, repeatable: bool):
        """`repeatable`: the data may be read in passes that do not train; others as for FitData."""
        super().__init__(model, given)
        self.repeatable, self._model, self._given = repeatable, model, given

    def read(self, epoch: int, first: int) -> Iterator[Any]:
        return self.epoch()

    def again(self, epoch: int, count: int) -> Iterator[Any]:
        """Read the first `count` minibatches by themselves; the order is a new one."""
        return itertools.islice(FitData(self._model, self._given).epoch(), count)


RunData = Union[StreamData, KerasData]  # gives minibatches, as Keras takes them


def run_data(model: tf.keras.Model, given: Given, reads_more: bool) -> RunData:
    """Return the data that `Trainer.fit` was given, by the arguments' names.

    `reads_more`: the run reads it in passes that do not train as well, where it can be read again. UsageError
    where there is none, it has no length, or a function gives it and there are class weights.
    """
    if given.get("x") is None:
        raise UsageError("there is no data to train on: pass it as x, as to Model.fit.")
    if not callable(given["x"]):
        return KerasData(model, given, reads_more and not is_read_once(given["x"]))
    if given.get("class_weight") is not None:
        raise UsageError(
            "class_weight cannot go with data that comes from a function: let it give minibatches of "
            "(inputs, labels, sample weights)."
        )
    if not given.get("steps_per_epoch"):
        raise UsageError("data that comes from a function has no length: pass steps_per_epoch.")
    return StreamData(given["x"], given["steps_per_epoch"])


def effective_cache(cache: CacheSettings, given: Given) -> Tuple[CacheSettings, str]:
    """Return how data that `fit` was given is cached, and the reason where it is not, or ""."""
    if cache.mode == "off":
        return cache, ""
    reason = _why_not(cache, given)
    if reason:
        return dataclasses.replace(cache, mode="off"), reason
    return cache if _is_mixed(given) else dataclasses.replace(cache, seed=None), ""


def _why_not(cache: CacheSettings, given: Given) -> str:
    data, steps, most = given.get("x"), given.get("steps_per_epoch"), most_steps_per_epoch()
    if most:
        return f"Keras ends every epoch after {most} steps (max_steps_per_epoch)."
    if callable(data):  # it promises to give the same
        return ""
    if isinstance(data, tf.data.Dataset):
        count = int(data.cardinality())
        if count < 0:
            return "how many minibatches the tf.data.Dataset has is not known (see assert_cardinality)."
        if steps not in (None, count):
            return f"steps_per_epoch={steps} is not all {count} minibatches."
        reason, _ = _redrawn(data)
        return f"{reason} {_WORD}" if reason and cache.mode != "always" else ""
    if is_read_once(data):
        return "a generator does not start again in every epoch."
    parts = tf.nest.flatten([data, given.get("y"), given.get("sample_weight")])
    others = [type(part).__name__ for part in parts if not _is_array(part)]
    if others:
        return (
            f"{others[0]} may give other examples in every epoch. Where it does not, pass arrays, "
            "a tf.data.Dataset or a function of (epoch, first): see Trainer.fit."
        )
    return "" if steps is None else "with steps_per_epoch an epoch need not be all the data."


def is_read_once(data: Any) -> bool:
    """Return whether `data` cannot be read again from its beginning, as a generator cannot."""
    return inspect.isgenerator(data) or (hasattr(data, "__next__") and not hasattr(data, "shape"))


def _is_array(part: Any) -> bool:
    home = type(part).__module__.partition(".")[0]
    plain = home in ("numpy", "tensorflow", "pandas", "scipy") and hasattr(part, "shape")
    return plain or part is None or isinstance(part, (int, float))


def _is_mixed(given: Given) -> bool:
    """Return whether every epoch makes up its minibatches of examples in a new order."""
    data = given.get("x")
    if not isinstance(data, tf.data.Dataset):
        # A function says nothing of how it makes its minibatches up.
        return given.get("shuffle", not callable(data)) is True  # Keras 2 shuffles minibatches by "batch"
    batched = False
    while True:
        kind = _kind(data)
        if kind == "Shuffle" and batched:
            return bool(data._reshuffle_each_iteration)
        if kind not in (*_EACH, "Shuffle", *(() if batched else _BATCHES)):
            return False
        batched = batched or kind in _BATCHES
        (data,) = data._inputs()


def _redrawn(data: tf.data.Dataset) -> Tuple[str, bool]:
    """Return why another epoch may have other examples, or "", and whether their order is another."""
    kind, inputs = _kind(data), data._inputs()
    if kind == "Cache":
        in_file = bool(data._filename.numpy())
        return ("A cache in a file cannot be read twice before it is complete." if in_file else ""), False
    before = [_redrawn(part) for part in inputs]
    moved = any(moved for _, moved in before)
    if kind not in _ANY_ORDER | _THEIR_ORDER:
        return f"{kind}Dataset may give other examples in every epoch.", moved
    drawing = _drawing(data)
    reason = next((reason for reason, _ in before if reason), "")
    if drawing:
        reason = f"{kind} of the tf.data.Dataset runs {drawing}, which may give other values in every epoch."
    elif moved and _depends_on_order(data, kind):
        reason = f"{kind} after a shuffle gives other examples in every epoch."
    return reason, moved or kind == "Shuffle" and bool(data._reshuffle_each_iteration)


def _depends_on_order(data: tf.data.Dataset, kind: str) -> bool:
    """Return whether a step of a pipeline gives other examples, or makes others of them, in another order."""
    count = int(data._inputs()[0].cardinality())  # negative: not known
    if kind in ("Take", "Skip", "Shard"):
        return count < 0 or int(data.cardinality()) != count
    if kind in _BATCHES:  # those of a fixed size leave out a rest
        size: Optional[int] = tf.nest.flatten(data.element_spec)[0].shape[0]
        return size is not None and (count < 0 or count % size != 0)
    return kind in _THEIR_ORDER


def _drawing(data: tf.data.Dataset) -> str:
    """Return an op in a step of a pipeline that may give something else each time, or an empty string."""
    for function in data._functions():
        graph = function.function.graph.as_graph_def()
        ops: Set[str] = {node.op for node in graph.node}
        ops |= {node.op for body in graph.library.function for node in body.node_def}
        for op in sorted(ops - _STEADY):
            known = op_def_registry.get(op)
            if known is not None and known.is_stateful:
                return op
    return ""


def _kind(data: tf.data.Dataset) -> str:
    return type(data).__name__.strip("_").replace("Dataset", "")
