"""The planner of a run: what comes next, by what is left of its time. Pure functions, no TensorFlow."""

from dataclasses import dataclass
from typing import List, NamedTuple, Optional, Tuple

import numpy as np

from elastictrainer.errors import UsageError
from elastictrainer.profiler.profile import Profile

PLAIN_INTERVAL = 4  # epochs between two selections where nothing is cached; the paper has 3 to 4
_FEWEST_EPOCHS, _MOST_EPOCHS = 1.0, 12.0  # of an interval: more than the most add nothing
_MOST_INTERVALS = 4
_EPOCH = 2 / 3  # of a pass over the images: an epoch of cached training, where the clock ends the run
# What a selection takes, in full steps: to build its graphs; to score the tensors as well. Measured with
# MobileNetV2 at 224x224; smaller networks take more of their own steps.
GRAPH_STEPS, _SCORING_STEPS = 15.0, 35.0
_WORTH_S = 30.0  # seconds of full training: of a shorter one nobody waits for a share
_LEAST_EPOCH = 1 / 3  # that is worth training after a solved head: of less its accuracy falls
EVALUATION = 0.75  # of the forward pass of training, at 224x224: the same to evaluate
_FORWARD, _CACHED = 0.3, 0.3  # of a full step where no profile tells: its forward pass; a cached step


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
        profile: the model's profile; None: little is predicted.
        epochs, steps_per_epoch: of the run; one by the clock decides itself how many epochs it makes.
        batch_size: examples in a minibatch.
        rho: share of full training's time that a step may take where it does all work; 1: any.
        by_share, by_deadline: whether the run ends after that share of full training's time, or in time for
            a deadline; else its steps end it.
        interval: epochs between two selections, as the user asks; None: by the planner's rule.
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
    batch_size: int = 1
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
        image_s: evaluating an image takes; None: not known.
    """

    intervals: int = 0
    epoch: int = 0
    step: int = 0
    spent_s: float = 0.0
    end_s: Optional[float] = None
    ending_s: float = 0.0
    full_ms: Optional[float] = None
    image_s: Optional[float] = None


class Parts(NamedTuple):
    """Seconds of the parts of a run by the clock, from now on.

    Attributes:
        passes_s: the passes over the images that give features and write the cache, and solving the head.
        selections_s: scoring, choosing, and building graphs.
        training_s: what is left for training.
        pass_s: one pass: of less training nothing is selected.
    """

    passes_s: float
    selections_s: float
    training_s: float
    pass_s: float


def next_stage(work: Work, now: Now) -> Optional[Stage]:
    """Return what comes next in a run; None: what goes on goes on.

    A pass over the images that writes the cache costs about a forward pass, whatever trains. The rule: an
    epoch of cached training takes two thirds of that pass. Cheaper epochs would reach few tensors, dearer
    ones would be too few. So the epochs that fit into a run are its training time over that; beyond twelve
    a new interval begins, whose selection knows what was learned and whose cache holds the images augmented
    in another way.

    Less is prepared in less time: where there is none for scores the last layers train. Where even the graphs
    for these would take the head's time, it is solved alone.
    """
    if not work.trains:
        return Stage(trains=False, last_layers=False, epochs=1.0)
    count = _intervals_left(work, now)
    if not count:
        return None
    trains, last_layers, note = True, False, ""
    if now.end_s is not None and (work.by_deadline or _is_long(work)):
        unscored, asked = (parts_of(work, now, count, scored) for scored in (False, work.scores))
        if work.selects and work.profile is not None:
            if now.intervals and unscored.training_s < unscored.pass_s:
                return None
            last_layers = asked.training_s < asked.pass_s
        head = work.solves and not now.intervals and (last_layers or not work.selects)
        left_s = now.end_s - now.spent_s - unscored.passes_s
        if head and 1e-3 * GRAPH_STEPS * _full_ms(work, now) > left_s:
            trains, note = False, "the time allows the head alone, which is solved on the features of images"
        elif last_layers:
            note = "there is no time to score tensors: the last layers train"
    epochs, end_epoch, end_s, epoch_s = _extent(work, now, count, work.scores and not last_layers)
    return Stage(trains, last_layers, epochs, end_epoch, end_s, epoch_s, note)


def goes_on(work: Work, now: Now, share: float, cached: bool, again: bool = False) -> bool:
    """Return whether steps follow now that the head is solved: there is time for enough of them.

    Args:
        work, now: the run.
        share: time of a step over a full one's by the profile; 0: not known.
        cached: whether steps read the cache.
        again: whether another pass over the images, and graphs, come before the first step.
    """
    if now.end_s is None or not (work.by_deadline or _is_long(work)):
        return True
    # A share of full training's time is worth an epoch at least, which then is made in any case.
    steps = (_LEAST_EPOCH if work.by_deadline else 1.0) * work.steps_per_epoch
    steps *= share or (_CACHED if cached and work.cached else 1.0)
    needed_s = 1e-3 * steps * _full_ms(work, now)
    if again:
        needed_s += 1e-3 * GRAPH_STEPS * _full_ms(work, now) + parts_of(work, now, 0, False).pass_s
    return now.end_s - now.spent_s >= needed_s


def step_share(work: Work, now: Now, stage: Stage, cached: bool, graphs_s: float) -> float:
    """Return the time that a step of the stage may take, over a full step's; a negative one: none is left.

    A cached step: so long that the planned epochs fit into the time, after the cache is written. A step that
    does all work: the share that was asked for.

    Args:
        work, now: the run, with the tensors scored for the stage.
        stage: which begins.
        cached: whether its steps read the cache.
        graphs_s: known of building its graphs; the first ones take what is usual at least.
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
        usual_s = 0.0 if now.intervals else GRAPH_STEPS * full_s
        left_s = stage.end_s - now.spent_s - max(graphs_s, usual_s)
        if work.solves and not now.intervals:
            left_s -= work.solving_s
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
    assert now.end_s is not None
    full_s, head = 1e-3 * _full_ms(work, now), work.solves and not now.intervals
    pass_s = work.steps_per_epoch * full_s * (work.profile.forward_share if work.profile else _FORWARD)
    passes_s = intervals * pass_s if work.cached else 0.0
    if head:  # on the features of the first such pass, or of one of its own
        passes_s = max(passes_s, pass_s) + work.solving_s
        if scored:
            passes_s += work.sampled / work.steps_per_epoch * pass_s
    selection = (GRAPH_STEPS if work.selects else 0.0) + (_SCORING_STEPS if scored else 0.0)
    selections_s = intervals * full_s * selection
    return Parts(passes_s, selections_s, now.end_s - now.spent_s - passes_s - selections_s, pass_s)


def plan_lines(work: Work, now: Now, stage: Stage) -> List[str]:
    """Return how the time of a run by the clock is divided, a line for each part."""
    assert now.end_s is not None
    count = _intervals_left(work, now) if stage.trains else 0
    parts = parts_of(work, now, count, work.scores and stage.trains and not stage.last_layers)
    intervals = {0: "", 1: ", in one interval"}.get(count, f", in {count} intervals")
    return [
        f"plan: {now.end_s + now.ending_s:.0f} s, of these {now.spent_s:.0f} s so far",
        f"  head and cache      {parts.passes_s:6.0f} s",
        f"  selection           {parts.selections_s:6.0f} s",
        f"  training            {max(0.0, parts.training_s):6.0f} s{intervals}"
        + (f"; then {now.ending_s:.0f} s to evaluate and write the model" if now.ending_s else ""),
    ]


def _intervals_left(work: Work, now: Now) -> int:
    """Return how many intervals are to begin from now on; 0: the present one stays to the end."""
    least, fitting = 0 if now.intervals else 1, _fitting(work, now, work.scores)
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


def _extent(
    work: Work, now: Now, count: int, scored: bool
) -> Tuple[float, Optional[float], Optional[float], float]:
    """Return epochs, end_epoch, end_s and epoch_s of the `Stage` that begins now, of `count` to come.

    `scored`: tensors are scored for it.
    """
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
    fitting = _fitting(work, now, scored)
    assert fitting is not None
    epochs = min(_MOST_EPOCHS, max(_FEWEST_EPOCHS, fitting / count))
    return epochs, None, end_s, time_s / epochs


def _by_rule(work: Work) -> bool:
    """Return whether the planner decides how long an interval is; else a number of epochs does."""
    return work.cached and work.selects and work.interval is None and work.profile is not None


def _fitting(work: Work, now: Now, scored: bool) -> Optional[float]:
    """Return how many epochs fit into what is left, as long as the rule has them; None: not known."""
    profile = work.profile
    if profile is None:
        return None
    if now.end_s is not None and _by_rule(work):
        parts = parts_of(work, now, 1, scored)
        return max(0.0, parts.training_s) / (_EPOCH * parts.pass_s)
    epoch = profile.forward_share if work.cached and work.selects else work.rho  # in epochs of full training
    if now.end_s is None:
        return (work.epochs - now.epoch) * work.rho / epoch
    return max(0.0, _left_s(work, now)) / (1e-3 * _full_ms(work, now) * work.steps_per_epoch * epoch)


def _left_s(work: Work, now: Now) -> float:
    """Return the seconds to divide into intervals. A share of full training's time is divided as a whole."""
    assert now.end_s is not None
    return now.end_s - (0.0 if work.by_share and not now.intervals else now.spent_s)


def _full_ms(work: Work, now: Now) -> float:
    """Return the ms of a full step; 0: not known."""
    image_ms = 1e3 * (now.image_s or 0.0) / EVALUATION / _FORWARD
    return float(now.full_ms or (work.profile.full_ms if work.profile else work.batch_size * image_ms))


def _is_long(work: Work) -> bool:
    """Return whether full training takes so long that anybody waits for a share of it."""
    full_ms = work.profile.full_ms if work.by_share and work.profile else 0.0
    return 1e-3 * full_ms * (work.epochs * work.steps_per_epoch + GRAPH_STEPS) >= _WORTH_S


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
