"""How the clock's ratio of a selected step to a full one follows the predicted one. NumPy only."""

from typing import Dict, Optional

import numpy as np

from elastictrainer.selection.policy import RECORDING

_BOUNDS = 0.5, 2.0  # where little is saved, noise alone makes any response, even a negative one


class ResponseOfSaving:
    """How much of the predicted saving the clock shows: where every step is computed as a whole.

    Attributes:
        value: the change of the measured ratio for a change of the predicted one.
    """

    SMOOTHING = 1 / 3  # how far one measurement moves it: one alone is off by a few percent

    def __init__(self) -> None:
        self._value: Optional[float] = None

    @property
    def value(self) -> float:
        return 1.0 if self._value is None else self._value

    def learn(self, kind: str, predicted: float, measured: float) -> float:
        """What to believe of a kind of step, of which the profile and the clock say these ratios."""
        if predicted < 1:
            value = float(np.clip((1 - measured) / (1 - predicted), *_BOUNDS))
            before = value if self._value is None else self._value
            self._value = before + self.SMOOTHING * (value - before)
        return measured

    def prediction_for(self, target: float) -> float:
        """The predicted ratio at which a step should measure `target`."""
        return 1 - (1 - target) / self.value


class ResponseOfTime:
    """How much longer steps take than predicted, by their kind: where frozen work is done once.

    Steps are a small part of a full one then, so that all of their time counts, not what they save. Full
    steps are few: what was off before will be off by as much again.

    Attributes:
        value: the change of the measured ratio for a change of the predicted one.
    """

    # One measurement counts as much as each before it; a fifth at least, as devices change.
    TRUST = 1 / 5

    def __init__(self) -> None:
        self._off: Dict[str, float] = {}  # measured over predicted ratio, by kind
        self._count: Dict[str, int] = {}  # how many measurements that is the mean of
        self._kind: Optional[str] = None  # the latest that does not record

    @property
    def value(self) -> float:
        return 1.0 if self._kind is None else self._off[self._kind]

    def learn(self, kind: str, predicted: float, measured: float) -> float:
        """What to believe of a kind of step, of which the profile and the clock say these ratios."""
        off = float(np.clip(measured / predicted, *_BOUNDS))
        before, count = self._off.get(kind, off), self._count.get(kind, 0) + 1
        self._off[kind] = before + max(self.TRUST, 1 / count) * (off - before)
        self._count[kind] = count
        if kind != RECORDING:
            self._kind = kind
        return predicted * self._off[kind]

    def prediction_for(self, target: float) -> float:
        """The predicted ratio at which a step should measure `target`."""
        return target / self.value
