"""Several processes that train one model, each on its share of every minibatch, through tf.distribute."""

import contextlib
import json
import signal
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence

import numpy as np
import tensorflow as tf

from elastictrainer.errors import RunError, UsageError, reason
from elastictrainer.registry import STRATEGY
from elastictrainer.runs.log import LOG
from elastictrainer.steps.keras_compat.variables import random_states, tf_variables
from elastictrainer.training.cluster import read_cluster, require_addresses
from elastictrainer.training.interruption import HandledSignals


class Workers:
    """The processes that train together, as this one sees them; TF_CONFIG names them.

    Every process keeps its own variables. Gradients are averaged by all-reduce, so that all make the same
    updates and come to the same importances. Make it before anything else of TensorFlow's runs.

    Attributes:
        rank: of this process, from 0.
        count: of processes.
    """

    def __init__(self) -> None:
        """
        Raises:
            UsageError: TF_CONFIG is wrong, or something of TensorFlow's has run before.
            RunError: the others did not come.
        """
        cluster = read_cluster()
        require_addresses(cluster)
        self.rank, self.count = cluster.rank, len(cluster.addresses)
        if self.count > 1:
            LOG.info(f"waiting for {', '.join(a for k, a in enumerate(cluster.addresses) if k != self.rank)}")
        try:
            with HandledSignals(signal.SIG_DFL):  # TensorFlow waits unaware of them
                self._strategy = tf.distribute.MultiWorkerMirroredStrategy()
        except RuntimeError as error:
            raise UsageError(
                f"several workers must be set up before anything else of TensorFlow's runs: {error}"
            ) from None
        except tf.errors.OpError as error:
            raise RunError(
                f"the {self.count} workers of TF_CONFIG did not come together ({reason(error)}). Start each "
                "with an index of its own, and let its port through."
            ) from None
        if self._strategy.num_replicas_in_sync != self.count:
            raise UsageError(
                f"{self.count} workers have {self._strategy.num_replicas_in_sync} devices together. Start "
                "one process for each device, and show it that one only (CUDA_VISIBLE_DEVICES)."
            )
        self._sum = tf.function(lambda values: self._reduced(values, tf.distribute.ReduceOp.SUM))

    def mean(self, values: List[Any]) -> List[Any]:
        """Average each of `values` (tensors, IndexedSlices) over the processes; only in a tf.function."""
        return self._reduced(values, tf.distribute.ReduceOp.MEAN)

    def gather(self, values: Sequence[float]) -> np.ndarray:
        """Gather the values of each process, by rank: (count, len(values)) float64. All processes must call
        this.
        """
        rows = np.zeros((self.count, len(values)))
        rows[self.rank] = values
        return self._sum([tf.constant(rows)])[0].numpy()

    def gather_rows(self, rows: np.ndarray) -> np.ndarray:
        """Gather the rows of each process, (n, width) float32, by rank: (count x n, width); all pass as many
        rows.
        """
        everyone = np.zeros((self.count, *rows.shape), np.float32)
        everyone[self.rank] = rows
        gathered: np.ndarray = self._sum([tf.constant(everyone)])[0].numpy()
        return gathered.reshape(-1, rows.shape[1])

    def broadcast(self, make: Callable[[], Any]) -> Any:
        """Return the JSON value that the first process makes, in every process; the others wait for it."""
        made = json.dumps(make()).encode() if self.rank == 0 else b""
        text = np.zeros(int(self.gather([len(made)])[0, 0]))
        text[: len(made)] = list(made)
        return json.loads(self._sum([tf.constant(text)])[0].numpy().astype(np.uint8).tobytes())

    def broadcast_variables(self, variables: Iterable[Any]) -> None:
        """Give every process the values that the first one's variables have."""
        floating = [v for v in tf_variables(variables) if v.dtype.is_floating]
        values = self._sum([v.read_value() if self.rank == 0 else tf.zeros_like(v) for v in floating])
        for variable, value in zip(floating, values):
            variable.assign(value)

    @contextlib.contextmanager
    def explaining_lost_peers(self) -> Iterator[None]:
        """Turn TensorFlow's errors about a lost process into a RunError."""
        try:
            yield
        except (
            tf.errors.UnavailableError,
            tf.errors.AbortedError,
            tf.errors.CancelledError,
            tf.errors.DeadlineExceededError,
        ) as error:
            raise RunError(
                f"another process of the {self.count} that train together is gone ({type(error).__name__}). "
                "Start all of them again, each with --resume and its run folder."
            ) from None

    def _reduced(self, values: List[Any], how: tf.distribute.ReduceOp) -> List[Any]:
        def reduce() -> Any:
            # On this replica's device.
            here = tf.nest.map_structure(tf.identity, values, expand_composites=True)
            return tf.distribute.get_replica_context().all_reduce(how, here)

        return list(self._strategy.run(reduce)) if values else []


def decorrelate(model: tf.keras.Model, rank: int) -> None:
    """Draw other random numbers (augmentation, dropout) in each process, whose models have equal states."""
    for state in random_states(model):
        values = state.numpy()
        state.assign(values + values.dtype.type(rank))


def create(strategy: str) -> Optional[Workers]:
    """Create the processes of a strategy; None where this one is alone.

    Raises:
        UsageError: an unknown strategy, a TF_CONFIG that is missing or wrong.
    """
    STRATEGY.check(strategy)
    return Workers() if strategy != "none" else None


class StopTogether(tf.keras.callbacks.Callback):
    """Ends training in all processes after the epoch in which a callback of one of them has asked for it.

    A process that left its epoch alone would leave the others waiting for its gradients. Comes after the
    callbacks that may ask.
    """

    def __init__(self, workers: Workers) -> None:
        super().__init__()
        self._workers = workers
        self._asked = False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Put off what was asked for."""
        self._asked |= bool(self.model.stop_training)
        self.model.stop_training = False

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Agree."""
        asked = self._asked or bool(self.model.stop_training)
        self.model.stop_training = bool(self._workers.gather([asked]).any())
        self._asked = False
