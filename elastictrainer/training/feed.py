"""The minibatches of a run: fetched, and remembered to score tensors on."""

import itertools
from collections import deque
from typing import Any, Callable, Deque, Iterable, Iterator, Optional, Tuple

import tensorflow as tf

from elastictrainer.errors import DataError, UsageError, reason
from elastictrainer.runs.log import LOG
from elastictrainer.steps.keras_compat.fitting import without_optionals
from elastictrainer.steps.objective import Minibatch, examples_in, not_finite_part
from elastictrainer.training.clock import Clock
from elastictrainer.training.fit_data import RunData
from elastictrainer.training.state import Progress

Probe = Callable[[int], Iterable[Any]]


class Feed:
    """Reads the minibatches to train on, to cache, and to score tensors on."""

    def __init__(
        self,
        clock: Clock,
        progress: Progress,
        data: RunData,
        probe: Optional[Probe],
        probe_count: int,
        first_epoch: int = 0,
    ):
        """Without a `probe` tensors are scored on `probe_count` minibatches; `progress` has the next one."""
        self.first_epoch = first_epoch  # the run's, as Keras and the data count
        self.probe_examples: Optional[int] = None  # that fit into the memory; None: all of a minibatch
        self._clock, self._progress, self._data = clock, progress, data
        self._probe, self._probe_count = probe, probe_count
        self._recent: Deque[Minibatch] = deque(maxlen=probe_count)
        self._size: Optional[int] = None  # of a full minibatch
        self._open: Optional[Iterator[Any]] = None  # reads on
        self._at: Tuple[int, int] = (-1, 0)  # epoch and number of its next minibatch
        self._fault = ""

    @property
    def repeatable(self) -> bool:
        return self._data.repeatable

    @property
    def spec(self) -> Any:
        """Return the tf.TensorSpecs of any minibatch, once one was read."""
        return unpacked(self._data.spec)

    @property
    def batch_size(self) -> int:
        assert self._size is not None, "`peek` comes first"
        return self._size

    def one_pass(self, count: int, epoch: Optional[int] = None, head_pass: Any = None) -> Iterator[Minibatch]:
        """Read the first `count` minibatches of an epoch's data, which are not trained on; or DataError.

        With a deadline it ends earlier where its time is used up: see `Clock.pass_ends_s`. `epoch` is whose
        order, None: the one going on. `head_pass` (HeadPass), if any, takes the features in its own time.
        """
        epoch = self._progress.epoch if epoch is None else epoch
        data = self._data.again(self.first_epoch + epoch, count)
        ends_s = self._clock.pass_ends_s()
        least = -(-head_pass.head.classes // self.batch_size) if head_pass else 1  # an image for each class
        for number, minibatch in enumerate(minibatches(data), 1):
            yield minibatch
            if head_pass is not None:
                ends_s = self._clock.pass_ends_s(head_pass.work.solving_s * number / count)
            if least <= number < count and self._clock.spent_s() > ends_s:
                LOG.info(f"the time allows {number} of {count} minibatches in this pass")
                return

    def close(self) -> None:
        """Read nothing ahead until the next `fetch`."""
        self._open = None

    def peek(self) -> Minibatch:
        """Return the minibatch that `fetch` gives next: the run's first one, which is a full one."""
        minibatch = self.fetch()
        self._size = examples_in(minibatch)
        assert self._open is not None
        self._open, self._at = itertools.chain([minibatch], self._open), self._next()
        self._recent.append(minibatch)
        return minibatch

    def fetch(self) -> Minibatch:
        """Return the minibatch of the step to come.

        StopIteration where the data has ended; UsageError where it must not; DataError if it cannot be read.
        """
        epoch, batch = self._next()
        if self._open is None or self._at != (epoch, batch):
            self._open = minibatches(self._data.read(epoch, batch))
        minibatch = next(self._open, None)
        steps = self._clock.steps_per_epoch
        if minibatch is None:
            if self._data.endless:
                raise UsageError(
                    f"the data ended in epoch {self._progress.epoch + 1}, before its minibatch "
                    f"{batch + 1} of {steps}. What a function gives must go on through all epochs "
                    "to come: see Trainer.fit."
                )
            raise StopIteration
        self._at = (epoch + 1, 0) if batch + 1 == steps else (epoch, batch + 1)
        return minibatch

    def end_epoch(self) -> None:
        """Read on behind an epoch's last minibatch, where each epoch is read by itself."""
        if self._open is not None and not self._data.endless:
            next(self._open, None)
            self.close()

    def _next(self) -> Tuple[int, int]:
        """Return epoch and number of the minibatch of the step to come."""
        return self.first_epoch + self._progress.epoch, self._progress.batch

    def is_whole(self, minibatch: Minibatch) -> bool:
        """Return whether it has as many examples as the first one; the last of an epoch may have fewer."""
        return examples_in(minibatch) == self._size

    def remember(self, minibatch: Minibatch) -> None:
        self._recent.append(minibatch)

    def suspect(self, minibatch: Minibatch) -> None:
        """Look for values that are not finite in the minibatch of the step to come, whose loss is not."""
        self._fault = self._fault or _fault_of(minibatch, *self._next())

    def fault(self) -> str:
        """Say which part of which minibatch of an epoch holds NaN or infinity; empty: none, or not known."""
        if self.repeatable and not self._fault:
            read = enumerate(self.one_pass(self._clock.steps_per_epoch))
            found = (_fault_of(minibatch, self._next()[0], number) for number, minibatch in read)
            self._fault = next(filter(None, found), "")
        return self._fault

    def probe(self, number: int) -> Iterator[Minibatch]:
        """Read the minibatches that tensors are scored on at the start of interval `number`."""
        return itertools.islice(self.endless_probe(number), self._probe_count)

    def endless_probe(self, number: int) -> Iterator[Minibatch]:
        """Read the minibatches of `probe` again and again, each of `probe_examples` examples at most.

        Those of the user's `probe` (UsageError if it gives none); else the first of the epoch going on; else,
        where the data cannot be read in passes of their own, the latest ones trained on.
        """
        while True:
            if self._probe is not None:
                given: Iterator[Minibatch] = map(unpacked, self._probe(number))
            elif self.repeatable:
                count = min(self._probe_count, self._clock.steps_per_epoch)
                given = iter(list(filter(self.is_whole, self.one_pass(count))) or self._recent)
            else:
                given = iter(list(self._recent))
            first = next(given, None)
            if first is None:
                raise UsageError(
                    "the probe gave no minibatch: it must give them again each time it is called."
                )
            yield from map(self._shortened, itertools.chain([first], given))

    def _shortened(self, minibatch: Minibatch) -> Minibatch:
        most = self.probe_examples
        if most is None:
            return minibatch
        return tf.nest.map_structure(lambda part: part if part is None else part[:most], minibatch)


def _fault_of(minibatch: Minibatch, epoch: int, number: int) -> str:
    part = not_finite_part(minibatch)
    return part and f"the {part} of minibatch {number + 1} of epoch {epoch + 1} hold NaN or infinite values"


def minibatches(data: Iterable[Any]) -> Iterator[Minibatch]:
    """Yield the minibatches of `data`; DataError where one cannot be read."""
    try:
        yield from map(unpacked, data)
    except tf.errors.OpError as error:
        raise DataError(f"reading the training data failed: {reason(error)}") from error


def unpacked(data: Any) -> Minibatch:
    """Unpack a minibatch as Keras does, or its tf.TensorSpecs: inputs, and labels with sample weights."""
    x, *targets = tf.keras.utils.unpack_x_y_sample_weight(without_optionals(data))
    return x, (targets[0], targets[1])
