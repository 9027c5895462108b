"""The minibatches of a run: fetched, and kept to score tensors on."""

import itertools
from collections import deque
from typing import Any, Callable, Deque, Iterable, Iterator, Optional, Tuple

import tensorflow as tf

from elastictrainer.errors import DataError, UsageError, reason
from elastictrainer.steps.compiled import Targets
from elastictrainer.steps.keras_compat import without_optionals
from elastictrainer.training.state import RunState

Minibatch = Tuple[Any, Targets]  # inputs; labels and sample weights
Probe = Callable[[int], Iterable[Any]]
Stream = Callable[[int, int], tf.data.Dataset]


class Feed:
    """Reads the minibatches to train on, to record, and to score tensors on.

    Attributes:
        endless: whether the data must not end; Keras would end the run there.
    """

    def __init__(self, run_state: RunState, probe: Optional[Probe], kept: int):
        """
        Args:
            run_state: of the run.
            probe: see Trainer.
            kept: how many minibatches are scored on without a `probe`.
        """
        self.endless = False
        self._run_state, self._probe = run_state, probe
        self._kept = kept
        self._recent: Deque[Minibatch] = deque(maxlen=kept)
        self._size: Optional[int] = None  # of a full minibatch
        self._stream: Optional[Stream] = None
        self._first_epoch = 0
        self._own: Optional[Iterator[Any]] = None  # on the stream
        self._again: Optional[Callable[[], Iterator[Any]]] = None
        self._at: Tuple[int, int] = (-1, 0)  # epoch and number of its next minibatch

    def follow(self, stream: Stream, first_epoch: int) -> None:
        """Fetch from `stream`, wherever the run is: what is replayed is not read."""
        self._stream, self._first_epoch = stream, first_epoch

    def read_by(self, again: Optional[Callable[[], Iterator[Any]]]) -> None:
        """Read passes over the data by `again` where no stream is followed; None: it can be read once."""
        self._again = again

    @property
    def can_pass(self) -> bool:
        """Whether the data can be read in passes of their own."""
        return self._stream is not None or self._again is not None

    @property
    def batch_size(self) -> int:
        """The number of examples of a full minibatch."""
        assert self._size is not None, "a minibatch has been seen before"
        return self._size

    def one_pass(self, count: int, first: int = 0, epoch: Optional[int] = None) -> Iterator[Minibatch]:
        """Read minibatches from number `first` up to `count` of an epoch's data, which is not trained on.

        In a run by the clock it ends earlier where half of the time is used up, after one minibatch at least.

        Args:
            count: minibatches, those before `first` included.
            first: number of the first one.
            epoch: whose order; None: of the epoch going on.

        Raises:
            DataError: the data cannot be read.
        """
        state = self._run_state
        if self._stream is not None:
            epoch = state.progress.epoch if epoch is None else epoch
            data = minibatches(self._stream(self._first_epoch + epoch, first).take(count - first))
        else:
            assert self._again is not None
            data = minibatches(itertools.islice(self._again(), first, count))
        ends_s = state.pass_ends_s()
        for number, minibatch in enumerate(data, first + 1):
            yield minibatch
            if number < count and ends_s is not None and state.spent_s() > ends_s:
                state.say(f"the time allows {number} of {count} minibatches in this pass")
                return

    def rest(self) -> None:
        """Read nothing ahead until the next `fetch`."""
        self._own = None

    def fetch(self, iterator: Iterator[Any]) -> Minibatch:
        """The next minibatch, of `iterator` where no stream is followed.

        Raises:
            StopIteration, tf.errors.OutOfRangeError: the data has ended.
            UsageError: it has, and must not.
            DataError: it cannot be read.
        """
        progress, wanted = self._run_state.progress, (0, 0)
        if self._stream is not None:
            wanted = self._first_epoch + progress.epoch, progress.batch
            if self._own is None or self._at != wanted:
                self._own = iter(self._stream(*wanted))
            iterator = self._own
        try:
            minibatch = unpacked(next(iterator))
        except (StopIteration, tf.errors.OutOfRangeError):
            self.check_end()
            raise
        except tf.errors.OpError as error:
            raise _unreadable(error) from error
        epoch, batch = wanted
        last = batch + 1 == self._run_state.steps_per_epoch
        self._at = (epoch + 1, 0) if last else (epoch, batch + 1)
        return minibatch

    def check_end(self) -> None:
        """UsageError where the data has ended, within an epoch, and must not."""
        progress, steps = self._run_state.progress, self._run_state.steps_per_epoch
        if self.endless and progress.batch < steps:
            raise UsageError(
                f"the data ended in epoch {progress.epoch + 1}, before its minibatch {progress.batch + 1} of "
                f"{steps}. What a function gives must go on through all epochs to come: see Trainer.fit."
            ) from None

    def is_full(self, minibatch: Minibatch) -> bool:
        """Whether it has as many examples as the first one; the last of an epoch may have fewer."""
        size = int(tf.nest.flatten(minibatch[0])[0].shape[0])
        self._size = self._size or size
        return size == self._size

    def keep(self, minibatch: Minibatch) -> None:
        """Take note of a full minibatch that was trained on."""
        self._recent.append(minibatch)

    def probe(self, number: int) -> Iterator[Minibatch]:
        """Read the minibatches that tensors are scored on at the start of interval `number`.

        Those of the user's `probe`; else the first of the epoch going on; else, where the data cannot be read
        in passes of their own, the latest ones trained on.
        """
        if self._probe is not None:
            return map(unpacked, self._probe(number))
        if self.can_pass:
            full = filter(self.is_full, self.one_pass(min(self._kept, self._run_state.steps_per_epoch)))
            return iter(list(full) or self._recent)
        return iter(list(self._recent))


def minibatches(data: Iterable[Any]) -> Iterator[Minibatch]:
    """Those of `data`, one after the other; DataError where one cannot be read."""
    try:
        yield from map(unpacked, data)
    except tf.errors.OpError as error:
        raise _unreadable(error) from error


def _unreadable(error: tf.errors.OpError) -> DataError:
    return DataError(f"reading the training data failed: {reason(error)}")


def unpacked(data: Any) -> Minibatch:
    """What Keras takes as a minibatch, or its tf.TensorSpecs: inputs, and labels with sample weights."""
    x, *targets = tf.keras.utils.unpack_x_y_sample_weight(without_optionals(data))
    return x, (targets[0], targets[1])
