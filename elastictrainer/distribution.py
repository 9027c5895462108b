"""Several processes that train one model, each on its share of every minibatch, through tf.distribute."""

import json
import os
from typing import Any, Iterable, Iterator, List, Optional, Tuple

import tensorflow as tf

from elastictrainer.errors import UsageError, unknown
from elastictrainer.keras_stack import tf_variables

STRATEGIES = ("none", "multi-worker", "mirrored")
_FORMAT = '{"cluster": {"worker": ["host:port", "host:port"]}, "task": {"type": "worker", "index": 0}}'


class Workers:
    """This process among its fellows, which TF_CONFIG names as TensorFlow defines it.

    Every process keeps variables of its own; gradients are averaged, so that all make the same updates and come to the
    same importances. Make it before anything else of TensorFlow's runs.

    Attributes:
        rank: of this process, from 0.
        count: of processes.
    """

    def __init__(self) -> None:
        self.rank, self.count = task()
        try:
            self._strategy = tf.distribute.MultiWorkerMirroredStrategy()
        except RuntimeError as error:
            raise UsageError(f"several workers must be set up before anything else of TensorFlow's runs: {error}") from None
        if self._strategy.num_replicas_in_sync != self.count:
            raise UsageError(
                f"{self.count} workers have {self._strategy.num_replicas_in_sync} devices together. Start one process for each "
                "device, and show it that one only (CUDA_VISIBLE_DEVICES)."
            )

    def mean(self, values: List[Any]) -> List[Any]:
        """Each of `values` (tensors, IndexedSlices) averaged over the processes; inside a tf.function only."""

        def reduce() -> Any:
            here = tf.nest.map_structure(tf.identity, values, expand_composites=True)  # on this replica's device
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, here)

        return list(self._strategy.run(reduce)) if values else []

    def start_alike(self, variables: Iterable[Any]) -> None:
        """Give every process the values that the first one's variables have."""
        own = [v for v in tf_variables(variables) if v.dtype.is_floating]

        @tf.function
        def from_first() -> List[tf.Tensor]:
            return self.mean([v * tf.cast(self.count if self.rank == 0 else 0, v.dtype) for v in own])

        for variable, value in zip(own, from_first()):
            variable.assign(value)

    def share_of(self, data: Any, batch_size: int) -> "Share":
        """This process' part of `data`, whose minibatches have `batch_size` images; UsageError where that cannot be divided."""
        if batch_size % self.count:
            raise UsageError(f"--batch-size {batch_size} cannot be divided among {self.count} workers.")
        return Share(data, self.rank, self.count)


class Share:
    """One process' part of a data set: every `count`-th image of each training minibatch, and all test images."""

    def __init__(self, data: Any, rank: int, count: int):
        self._data, self._rank, self._count = data, rank, count
        self.steps_per_epoch: int = data.steps_per_epoch

    def train(self, epoch: int, first: int = 0) -> Iterator[Tuple[Any, Any]]:
        """See `session.Data`."""
        for x, y in self._data.train(epoch, first):
            yield x[self._rank :: self._count], y[self._rank :: self._count]

    def test(self) -> Any:
        """See `session.Data`."""
        return self._data.test()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._data, name)


def create(strategy: str) -> Optional[Workers]:
    """The processes of a strategy; None where this one is alone.

    Raises:
        UsageError: an unknown strategy, one that is not supported, a TF_CONFIG that is missing or wrong.
    """
    if strategy not in STRATEGIES:
        raise unknown("strategy", strategy, STRATEGIES)
    if strategy == "mirrored":
        raise UsageError(
            "--strategy mirrored, several devices in one process, is not supported: which tensors train, and what their work costs, "
            "is known for one device a process. Start one process for each device with --strategy multi-worker."
        )
    return Workers() if strategy == "multi-worker" else None


def task() -> Tuple[int, int]:
    """This process' rank and the number of workers, from TF_CONFIG; UsageError where it is missing or wrong."""
    text = os.environ.get("TF_CONFIG", "")
    try:
        config = json.loads(text)
        workers, rank = config["cluster"]["worker"], int(config["task"]["index"])
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"--strategy multi-worker needs TF_CONFIG in the environment, like {_FORMAT}; it is {text!r}.") from None
    if set(config["cluster"]) != {"worker"} or not 0 <= rank < len(workers):
        raise UsageError(f"TF_CONFIG must name workers only, and this process' index among them, like {_FORMAT}.")
    return rank, len(workers)
