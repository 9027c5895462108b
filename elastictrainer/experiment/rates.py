"""The learning rate of a run where its user gives none: measured for each scheme and head."""

from typing import Optional

from elastictrainer.experiment.settings import CommonSettings, TrainSettings
from elastictrainer.selection import schemes
from elastictrainer.steps.rates import RateSchedule

PAPER_RATE = 1e-4  # SGD with momentum 0.9, and Adam (MobiSys'23, Sec. 5)
# With a solved head the layers near the output can learn faster from the first step on: with MobileNetV2 on
# CUB100 at rho 0.1, plans of six epochs gave 87.1 and 87.7 %, at the paper's rate 86.7 %.
SELECTED_RATE = 2e-4
WARMUP_SHARE = 0.1  # of the run, with a solved head: at the full rate its first steps undo what was solved


def learning_rate(settings: CommonSettings) -> float:
    """Return the highest learning rate of a run or profile."""
    if settings.learning_rate is not None:
        return settings.learning_rate
    scheme = getattr(settings, "scheme", "elastic")
    solved = settings.head_init == "solve"
    return SELECTED_RATE if solved and schemes.selects(scheme) and settings.optimizer == "sgd" else PAPER_RATE


def rate_schedule(settings: TrainSettings) -> Optional[RateSchedule]:
    """Return the learning rate as it changes over a run; None where it stays what the optimizer has."""
    shape = settings.schedule or ("constant" if settings.optimizer == "adam" else "cosine")
    warmup = settings.warmup
    if warmup is None:
        warmup = WARMUP_SHARE if settings.head_init == "solve" else 0.0
    if shape == "constant" and not warmup:
        return None  # a callback may set it
    highest = learning_rate(settings)
    # A run of few epochs has no time to recover from what the higher rate does to the head: `--time 95s`
    # ended at 84.0 % with it, at 85.1 % with the paper's; the head had 84.2 %.
    return RateSchedule(highest, shape, warmup, None if settings.learning_rate else min(highest, PAPER_RATE))
