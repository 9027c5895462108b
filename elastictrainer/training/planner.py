"""The planner of a run: what comes next, by what is left of its time. Pure functions, no TensorFlow."""

from dataclasses import dataclass
from typing import List, Optional, Tuple

import numpy as np

from elastictrainer.errors import UsageError
from elastictrainer.profiler.profile import Profile

PLAIN_INTERVAL = 4  # epochs between two selections where nothing is cached; the paper has 3 to 4
_FEWEST_EPOCHS, _MOST_EPOCHS = 1.0, 12.0  # of an interval: more than the most add nothing
_MOST_INTERVALS = 4
# What a selection takes, in full steps: to build its graphs; to score the tensors as well. Measured with
# MobileNetV2 at 224x224; smaller networks take more of their own steps.
GRAPH_STEPS, _SCORING_STEPS = 15.0, 35.0
_WORTH_S = 30.0  # seconds of full training: of a shorter one nobody waits for a share


@dataclass(frozen=True)
class Stage:
    """The next part of a run: an interval of training, or the head alone.

    Attributes:
        trains: whether steps train in it; else the head is solved, and that is all.
        last_layers: whether there is no time for the scores that the scheme asks for: the last layers train.
        epochs: by which the time of its steps is planned.
        end_epoch: number of finished epochs with which it ends; None: `end_s` decides.
        end_s: seconds of the run's clock at which it is to end; None: steps end the run.
        epoch_s: planned for an epoch; 0 where steps end the run.
        note: what the user should know of it, a line; empty: nothing.
    """

    trains: bool
    last_layers: bool
    epochs: float
    end_epoch: Optional[float] = None
    end_s: Optional[float] = None
    epoch_s: float = 0.0
    note: str = ""

    def is_over(self, epoch: int, spent_s: float) -> bool:
        """Return whether it ends after `epoch` epochs and `spent_s` seconds; asked at the start of an epoch.

        Where its end falls into the epoch to come, it ends before or after that, whichever is nearer.
        """
        if self.end_epoch is not None:
            return epoch >= self.end_epoch - 0.5
        return self.end_s is not None and spent_s >= self.end_s - self.epoch_s / 2


@dataclass(frozen=True)
class Work:
    """What a run has to do, in numbers.

    Attributes:
        profile: the model's profile; None: nothing is predicted.
        epochs, steps_per_epoch: of the run; one by the clock decides itself how many epochs it makes.
        rho: share of full training's time that a step may take where it does all work; 1: any.
        by_share, by_deadline: whether the run ends after that share of full training's time, or in time for
            a deadline; else its steps end it.
        interval: epochs between two selections, as the user asks; None: by the planner's rule.
        check_s: of evaluating the solved head, which a run with a deadline counts.
        trains, selects, scores, cached: whether steps follow after the head is solved, tensors are selected
            at every interval, they are scored for that, and activations are cached.
        solves: whether the head is to be solved before the first step.
        sampled: minibatches that it is solved on before tensors are scored.
        solving_s: of solving it on the features of all images.
    """

    profile: Optional[Profile]
    epochs: int
    steps_per_epoch: int
    rho: float = 1.0
    by_share: bool = False
    interval: Optional[int] = None
    by_deadline: bool = False
    check_s: float = 0.0
    trains: bool = True
    selects: bool = True
    scores: bool = True
    cached: bool = True
    solves: bool = False
    sampled: int = 0
    solving_s: float = 0.0


@dataclass(frozen=True)
class Now:
    """A run as it stands.

    Attributes:
        intervals, epoch, step: how many have begun, are finished, are done.
        spent_s, end_s: of the clock; `end_s`: when the last step must be done, None: steps end the run.
        ending_s: kept for what comes after the last step.
        full_ms: a full step takes on this device; None: what the profile says.
    """

    intervals: int = 0
    epoch: int = 0
    step: int = 0
    spent_s: float = 0.0
    end_s: Optional[float] = None
    ending_s: float = 0.0
    full_ms: Optional[float] = None


@dataclass(frozen=True)
class Parts:
    """Seconds of the parts of a run by the clock, from now on.

    Attributes:
        passes_s: the passes over the images that give features and write the cache, and solving the head.
        check_s: evaluating the solved head.
        selections_s: scoring, choosing, and building graphs.
        training_s: what is left for training.
        least_training_s: training that takes less is not worth what comes before it.
    """

    passes_s: float
    check_s: float
    selections_s: float
    training_s: float
    least_training_s: float

    @property
    def lacking_s(self) -> float:
        """Return how much longer the run would have to be; negative: it is long enough."""
        return self.least_training_s - self.training_s


def next_stage(work: Work, now: Now) -> Optional[Stage]:
    """Return what comes next in a run; None: what goes on goes on.

    A pass over the images that writes the cache costs about a forward pass, whatever trains. The rule: an
    epoch of cached training takes as long as that pass. Cheaper epochs would reach few tensors: one epoch
    that reaches further is worth more than four cheap ones (docs/results.md). So the epochs that fit
    into a run are its time over that of a pass; beyond twelve a new interval begins, whose selection knows
    what was learned and whose cache holds the images augmented in another way.

    Less is prepared in less time: where there is none for scores the last layers train, and where there is
    none for steps the head alone is solved.

    Raises:
        UsageError: a deadline leaves no time to begin; the message has the least one.
    """
    if not work.trains:
        return Stage(False, False, 1.0)
    count = _intervals_left(work, now)
    if not count:
        return None
    trains, last_layers, note = True, False, ""
    if now.end_s is not None and work.profile is not None:
        as_asked, unscored = (parts_of(work, now, count, scored) for scored in (work.scores, False))
        head = work.solves and not now.step
        enough = as_asked.lacking_s <= 0 or unscored.lacking_s <= 0
        if work.selects and (work.by_deadline or (head and _full_training_s(work) >= _WORTH_S)):
            last_layers = enough and as_asked.lacking_s > 0
            if not enough and head:
                trains = work.by_deadline and parts_of(work, now, 0, False).lacking_s > 0
            elif not enough and now.intervals:
                return None
        if trains and not enough and work.by_deadline and not now.step:
            raise _too_little(now, as_asked)
        if not trains:
            note = _alone_note(work, now, unscored)
        elif last_layers:
            note = "there is no time to score tensors: the last layers train"
    return Stage(trains, last_layers, *_extent(work, now, count), note)


def step_share(work: Work, now: Now, stage: Stage, cached: bool, graphs_s: float) -> float:
    """Return the time that a step of the stage may take, over a full step's; a negative one: none is left.

    A cached step: so long that the planned epochs fit into the time, after the cache is written. A step that
    does all work: the share that was asked for.

    Args:
        work, now: the run, with the tensors scored for the stage.
        stage: which begins.
        cached: whether its steps read the cache.
        graphs_s: expected for building its graphs.
    """
    profile = work.profile
    if not cached or profile is None:
        return work.rho
    steps = stage.epochs * work.steps_per_epoch
    # Where steps end the run the profile alone decides.
    full_s = 1e-3 * (profile.full_ms if stage.end_s is None else _full_ms(work, now))
    if stage.end_s is None:
        left_s = work.rho * full_s * steps
    else:
        left_s = stage.end_s - now.spent_s - graphs_s
        if work.solves and not now.step:
            left_s -= work.solving_s + work.check_s
    # Caching a minibatch takes a forward pass, and writing the cut of the middle tensor.
    write_ms = float(profile.forward.amount.sum())
    if profile.cache is not None:
        write_ms += float(np.median(profile.cache.cache_write_ms))
    write_s = work.steps_per_epoch * full_s * write_ms / profile.full_ms
    return (left_s - write_s) / steps / full_s


def parts_of(work: Work, now: Now, intervals: int, scored: bool) -> Parts:
    """Divide the time that is left among `intervals` selections and the rest; 0: the head alone.

    `scored`: the selections score the tensors.
    """
    profile, head = work.profile, work.solves and not now.step
    assert profile is not None and now.end_s is not None
    full_s = 1e-3 * _full_ms(work, now)
    forward_s, selects = full_s * profile.forward_share, work.selects and intervals > 0
    passes = intervals if selects and work.cached else int(head)
    passes_s = passes * work.steps_per_epoch * forward_s
    if head:
        passes_s += work.solving_s + (work.sampled * forward_s if scored else 0.0)
    check_s = work.check_s if head else 0.0
    selections_s = intervals * full_s * (GRAPH_STEPS * selects + _SCORING_STEPS * scored)
    # An epoch of the cheapest selection, in epochs of full training. After a solved head that gains nothing:
    # the head is worth its time alone, and the least is an epoch as the rule has it.
    if not selects:
        least = 0.0 if head else 1.0
    elif not work.cached:
        least = profile.rho_min
    else:
        least = profile.with_cache.rho_min
        least = _FEWEST_EPOCHS * max(least, profile.forward_share) if head else least
    training_s = now.end_s - now.spent_s - passes_s - check_s - selections_s
    return Parts(passes_s, check_s, selections_s, training_s, work.steps_per_epoch * full_s * least)


def plan_lines(work: Work, now: Now, stage: Stage) -> List[str]:
    """Return how the time of a run by the clock is divided, a line for each part; none without a profile."""
    if work.profile is None or now.end_s is None:
        return []
    count = _intervals_left(work, now) if stage.trains else 0
    parts = parts_of(work, now, count, work.scores and stage.trains and not stage.last_layers)
    intervals = {0: "", 1: ", in one interval"}.get(count, f", in {count} intervals")
    return [
        f"plan: {now.end_s + now.ending_s:.0f} s, of these {now.spent_s:.0f} s so far",
        f"  head and cache      {parts.passes_s:6.0f} s"
        + (f", and {parts.check_s:.0f} s to evaluate the head" if parts.check_s else ""),
        f"  selection           {parts.selections_s:6.0f} s",
        f"  training            {max(0.0, parts.training_s):6.0f} s{intervals}"
        + (f"; then {now.ending_s:.0f} s to evaluate and write the model" if now.ending_s else ""),
    ]


def _intervals_left(work: Work, now: Now) -> int:
    """Return how many intervals are to begin from now on; 0: the present one stays to the end."""
    least, fitting = 0 if now.intervals else 1, _fitting(work, now)
    if not _by_rule(work):
        if now.end_s is None or fitting is None:  # asked where one is over
            return 1
        interval = work.interval or PLAIN_INTERVAL
        return max(least, round(fitting / (interval + (work.cached and work.selects))))  # and its pass
    assert fitting is not None
    count = min(_MOST_INTERVALS - now.intervals, round(fitting / _MOST_EPOCHS))
    if now.end_s is None:
        count = min(count, work.epochs // 2)  # one epoch would never read its cache
    return max(least, count)


def _extent(work: Work, now: Now, count: int) -> Tuple[float, Optional[float], Optional[float], float]:
    """Return epochs, end_epoch, end_s and epoch_s of the `Stage` that begins now, of `count` to come."""
    if now.end_s is None:
        if _by_rule(work):
            epochs = (work.epochs - now.epoch) / count
        elif work.interval:
            epochs = float(work.interval)
        else:  # alike, of about four epochs
            epochs = work.epochs / max(1, round(work.epochs / PLAIN_INTERVAL))
        return epochs, now.epoch + epochs, None, 0.0
    time_s = _left_s(work, now) / count
    end_s = now.end_s - (count - 1) * time_s
    if not _by_rule(work):
        asked = float(work.interval or PLAIN_INTERVAL)
        return asked, now.epoch + asked, end_s, time_s / asked
    fitting = _fitting(work, now)
    assert fitting is not None
    epochs = min(_MOST_EPOCHS, max(_FEWEST_EPOCHS, fitting / count))
    return epochs, None, end_s, time_s / epochs


def _by_rule(work: Work) -> bool:
    """Return whether the planner decides how long an interval is; else a number of epochs does."""
    return work.cached and work.selects and work.interval is None and work.profile is not None


def _fitting(work: Work, now: Now) -> Optional[float]:
    """Return how many epochs fit into what is left, as long as the rule has them; None: not known."""
    profile = work.profile
    if profile is None:
        return None
    epoch = profile.forward_share if work.cached and work.selects else work.rho  # in epochs of full training
    if now.end_s is None:
        return (work.epochs - now.epoch) * work.rho / epoch
    return max(0.0, _left_s(work, now)) / (1e-3 * _full_ms(work, now) * work.steps_per_epoch * epoch)


def _left_s(work: Work, now: Now) -> float:
    """Return the seconds to divide into intervals. A share of full training's time is divided as a whole."""
    assert now.end_s is not None
    return now.end_s - (0.0 if work.by_share and not now.intervals else now.spent_s)


def _full_ms(work: Work, now: Now) -> float:
    assert work.profile is not None
    return float(now.full_ms or work.profile.full_ms)


def _full_training_s(work: Work) -> float:
    """Return the seconds of full training, its graph included, by the profile."""
    assert work.profile is not None
    return 1e-3 * work.profile.full_ms * (work.epochs * work.steps_per_epoch + GRAPH_STEPS)


def expected_budget_s(work: Work) -> float:
    """Return the budget of a share of full training's time by the profile, before full steps were timed.

    Their graph is built for that first; in full training it is built as well.
    """
    assert work.profile is not None
    return work.rho * _full_training_s(work) - 1e-3 * work.profile.full_ms * GRAPH_STEPS


def _alone_note(work: Work, now: Now, layers: Parts) -> str:
    """Return the note of a head that is solved alone; `layers`: what training the last layers takes."""
    assert now.end_s is not None
    if work.by_deadline:
        more = f"With --time {1.1 * (now.end_s + now.ending_s + layers.lacking_s):.0f}s or more"
    else:
        rho = 1.1 * (work.rho + layers.lacking_s / _full_training_s(work))
        more = f"With rho {rho:.2f} or more" if rho <= 1 else "With more epochs"
    return (
        "the time allows the head alone, which is solved on the features of the images. "
        f"{more} other layers train as well"
    )


def _too_little(now: Now, parts: Parts) -> UsageError:
    """Return the error of a deadline that comes before anything is trained; it has the least time."""
    assert now.end_s is not None
    budget_s = now.end_s + now.ending_s
    return UsageError(
        f"{budget_s:.0f} s are too little: {now.spent_s:.0f} s were spent on loading and profile, the images "
        f"take about {parts.passes_s:.0f} s, a selection {parts.selections_s:.0f} s, evaluating and writing "
        f"{parts.check_s + now.ending_s:.0f} s. "
        f"Give it --time {1.1 * (budget_s + parts.lacking_s):.0f}s or more."
    )


def require_reachable(rho: float, profile: Profile, cached: bool) -> None:
    """Refuse a share of full training's time in which not even the cheapest selection can train.

    Args:
        rho: the time asked for, over full training's.
        profile: the profile.
        cached: whether activations are cached and read.

    Raises:
        UsageError: `rho` is too low; the message has the lowest.
    """
    lowest = profile.with_cache.rho_min if cached else profile.rho_min
    if not lowest <= rho <= 1:
        more = "" if cached else " A lower one needs --activation-cache auto."
        raise UsageError(f"rho {rho:g} is not achievable on this device. Valid: {lowest:.3f} to 1.{more}")
