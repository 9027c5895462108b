"""The data of a run: what Keras' `fit` takes, or a function that can begin anywhere."""

import itertools
from typing import Any, Callable, Dict, Iterator, Union

import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.steps.keras_compat.fitting import FitData

Stream = Callable[[int, int], tf.data.Dataset]  # from an epoch and the number of its first minibatch


class StreamData:
    """A function of (epoch, first), which gives the same whenever it is called; see `Trainer.fit`.

    Attributes:
        steps: minibatches of an epoch.
        endless: whether one iterator goes on from epoch to epoch, and must not end.
        repeatable: whether `again` can be called.
    """

    endless = repeatable = True

    def __init__(self, stream: Stream, steps: int):
        """`steps`: minibatches of an epoch."""
        self.steps, self._stream = steps, stream
        self.spec: Any = None

    def read(self, epoch: int, first: int) -> Iterator[Any]:
        """Read minibatches from number `first` of an epoch on."""
        data = self._stream(epoch, first)
        self.spec = data.element_spec
        return iter(data)

    def again(self, epoch: int, count: int) -> Iterator[Any]:
        """Read the first `count` minibatches of an epoch by themselves."""
        return iter(self._stream(epoch, 0).take(count))


class KerasData(FitData):
    """Data in one of Keras' forms. Each epoch begins when it is read, and cannot begin in its middle.

    Attributes are those of `StreamData`.
    """

    endless = False

    def __init__(self, model: tf.keras.Model, given: Dict[str, Any], repeatable: bool):
        """
        Args:
            model, given: as for FitData.
            repeatable: whether the data may be read in passes that do not train.
        """
        super().__init__(model, given)
        self.repeatable, self._model, self._given = repeatable, model, given

    def read(self, epoch: int, first: int) -> Iterator[Any]:
        """Read the next epoch, whatever its number."""
        return self.epoch()

    def again(self, epoch: int, count: int) -> Iterator[Any]:
        """Read the first `count` minibatches by themselves; the order is a new one."""
        return itertools.islice(FitData(self._model, self._given).epoch(), count)


RunData = Union[StreamData, KerasData]  # gives minibatches, as Keras takes them


def run_data(model: tf.keras.Model, given: Dict[str, Any], repeatable: bool) -> RunData:
    """Return the data that `Trainer.fit` was given, by the arguments' names; see `KerasData`.

    Raises:
        UsageError: the data has no length, or a function gives it and there are class weights.
    """
    if not callable(given.get("x")):
        return KerasData(model, given, repeatable)
    if given.get("class_weight") is not None:
        raise UsageError(
            "class_weight cannot go with data that comes from a function: let it give minibatches of "
            "(inputs, labels, sample weights)."
        )
    if not given.get("steps_per_epoch"):
        raise UsageError("data that comes from a function has no length: pass steps_per_epoch.")
    return StreamData(given["x"], given["steps_per_epoch"])
