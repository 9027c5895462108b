"""The planner of a run: what comes next, by what is left of its time. Pure functions, no TensorFlow."""

from dataclasses import dataclass, replace
from typing import List, NamedTuple, Optional, Protocol

import numpy as np

from elastictrainer.errors import UsageError
from elastictrainer.profiler.profile import Profile

PLAIN_INTERVAL = 4  # epochs between two selections where nothing is cached; the paper has 3 to 4
_FEWEST_EPOCHS, _MOST_EPOCHS = 3.0, 8.0  # of an interval: more than the most add nothing
_MOST_INTERVALS = 4
_EPOCH = 4 / 3  # of a pass over the images: an epoch of cached training, where the clock ends the run
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
        scoring: whether there is time for the scores that the scheme asks for; else the late layers train.
        epochs: by which the time of its steps is planned.
        end_epoch: number of finished epochs with which it ends; None: `end_s` decides.
        end_s: seconds of the run's clock at which it is to end; None: steps end the run.
        epoch_s: planned for an epoch; 0 where steps end the run.
        note: what the user should know of it, a line; empty: nothing.
    """

    trains: bool = True
    scoring: bool = True
    epochs: float = 1.0
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


class Scheme(Protocol):
    """What is asked of a scheme, which may load TensorFlow: see `selection.schemes`."""

    trains: bool
    importance_metric: Optional[str]

    @property
    def selects(self) -> bool: ...

    @property
    def needs_scores(self) -> bool: ...


class HeadWork(NamedTuple):
    """What it takes to solve the head.

    Attributes:
        sample: minibatches that it is solved on before tensors are scored.
        solving_s: of solving it on the features of all images.
    """

    sample: int
    solving_s: float


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


@dataclass(frozen=True)
class Planner:
    """Plans a run, by what it has to do and how it stands.

    Attributes:
        scheme: says whether layers train, whether tensors are selected for that, and whether by scores.
        profile: the model's profile; None: little is predicted.
        epochs, steps_per_epoch: of the run; one by the clock decides itself how many epochs it makes.
        batch_size: examples in a minibatch.
        rho: share of full training's time that a step may take where it does all work; 1: any.
        ends_by: what ends the run: "steps", that "share" of full training's time, or a "deadline".
        interval: epochs between two selections, as the user asks; None: by the rule in `next_stage`.
        cached: whether activations are cached.
        head_work: of a head that is solved before the first step; None: it stays as it is.
        intervals, epoch: how many have begun, are finished.
        spent_s, end_s: of the clock; `end_s`: when the last step must be done, None: steps end the run.
        ending_s: kept for what comes after the last step.
        full_ms: a full step takes on this device; None: what the profile says.
        image_s: evaluating an image takes, in the format of steps; None: not known.
    """

    scheme: Scheme
    profile: Optional[Profile]
    epochs: int
    steps_per_epoch: int
    batch_size: int = 1
    rho: float = 1.0
    ends_by: str = "steps"
    interval: Optional[int] = None
    cached: bool = True
    head_work: Optional[HeadWork] = None
    intervals: int = 0
    epoch: int = 0
    spent_s: float = 0.0
    end_s: Optional[float] = None
    ending_s: float = 0.0
    full_ms: Optional[float] = None
    image_s: Optional[float] = None

    def next_stage(self) -> Optional[Stage]:
        """Return what comes next in a run; None: what goes on goes on.

        A pass over the images that writes the cache costs about a forward pass, whatever trains. The rule: an
        epoch of cached training takes four thirds of that pass. Cheaper epochs would reach few tensors,
        dearer ones would be too few. So the epochs that fit into a run are its training time over that, three
        at least; beyond eight a new interval begins, whose selection knows what was learned and whose cache
        holds the images augmented in another way.

        Less is prepared in less time: where there is none for scores the late layers train. Where even the
        graphs for these would take the head's time, it is solved alone.
        """
        scheme = self.scheme
        if not scheme.trains:
            return Stage(trains=False)
        count = self._intervals_left()
        if not count:
            return None
        if not self._time_decides:
            return self._interval(count, scheme.needs_scores)
        assert self.end_s is not None
        unscored, asked = (self.parts(count, scored) for scored in (False, scheme.needs_scores))
        selects = scheme.selects and self.profile is not None
        if selects and self.intervals and unscored.training_s < unscored.pass_s:
            return None
        scoring = not selects or asked.training_s >= asked.pass_s
        stage = self._interval(count, scheme.needs_scores and scoring)
        left_s = self.end_s - self.spent_s - unscored.passes_s
        head_first = self._head_to_come is not None and not (scoring and scheme.selects)
        if head_first and GRAPH_STEPS * self._full_s > left_s:
            note = "the time allows the head alone, which is solved on the features of images"
            return replace(stage, trains=False, note=note)
        note = "there is no time to score tensors: the late layers train"
        return replace(stage, scoring=scoring, note="" if scoring or not scheme.importance_metric else note)

    def steps_fit(self, share: float, cached: bool, again: bool = False) -> bool:
        """Return whether steps follow now that the head is solved: there is time for enough of them.

        Args:
            share: time of a step over a full one's by the profile; 0: not known.
            cached: whether steps read the cache.
            again: whether another pass over the images, and graphs, come before the first step.
        """
        if not self._time_decides:
            return True
        assert self.end_s is not None
        # A share of full training's time is worth an epoch at least, which then is made in any case.
        steps = (_LEAST_EPOCH if self.ends_by == "deadline" else 1.0) * self.steps_per_epoch
        needed_s = steps * (share or (_CACHED if cached and self.cached else 1.0)) * self._full_s
        if again:
            needed_s += GRAPH_STEPS * self._full_s + self._pass_s
        return self.end_s - self.spent_s >= needed_s

    def step_share(self, stage: Stage, cached: bool, graphs_s: float) -> float:
        """Return the time that a step of the stage may take, over a full step's; negative: none is left.

        A cached step: so long that the planned epochs fit into the time, after the cache is written. A step
        that does all work: the share that was asked for.

        Args:
            stage: which begins; its tensors are scored.
            cached: whether its steps read the cache.
            graphs_s: known of building its graphs; the first ones take what is usual at least.
        """
        profile = self.profile
        if not cached or profile is None:
            return self.rho
        steps = stage.epochs * self.steps_per_epoch
        if stage.end_s is None:  # where steps end the run the profile alone decides
            full_s = 1e-3 * profile.full_ms
            left_s = self.rho * full_s * steps
        else:
            full_s = self._full_s
            usual_s = 0.0 if self.intervals else GRAPH_STEPS * full_s
            left_s = stage.end_s - self.spent_s - max(graphs_s, usual_s)
            left_s -= self._head_to_come.solving_s if self._head_to_come else 0.0
        # Caching a minibatch takes a forward pass, and writing the cut of the middle tensor.
        write_ms = float(profile.forward.amount.sum())
        if profile.cache is not None:
            write_ms += float(np.median(profile.cache.cache_write_ms))
        write_s = self.steps_per_epoch * full_s * write_ms / profile.full_ms
        return (left_s - write_s) / steps / full_s

    def parts(self, intervals: int, scored: bool) -> Parts:
        """Divide the time that is left among `intervals` selections and the rest; 0: the head alone.

        `scored`: the selections score the tensors.
        """
        assert self.end_s is not None
        pass_s, work = self._pass_s, self._head_to_come
        passes_s = intervals * pass_s if self.cached else 0.0
        if work:  # on the features of the first such pass, or of one of its own
            passes_s = max(passes_s, pass_s) + work.solving_s
            if scored:
                passes_s += work.sample / self.steps_per_epoch * pass_s
        selection = (GRAPH_STEPS if self.scheme.selects else 0.0) + (_SCORING_STEPS if scored else 0.0)
        selections_s = intervals * self._full_s * selection
        return Parts(passes_s, selections_s, self.end_s - self.spent_s - passes_s - selections_s, pass_s)

    def lines(self, stage: Stage) -> List[str]:
        """Return how the time of a run by the clock is divided, a line for each part."""
        assert self.end_s is not None
        count = self._intervals_left() if stage.trains else 0
        parts = self.parts(count, self.scheme.needs_scores and stage.trains and stage.scoring)
        intervals = {0: "", 1: ", in one interval"}.get(count, f", in {count} intervals")
        return [
            f"plan: {self.end_s + self.ending_s:.0f} s, of these {self.spent_s:.0f} s so far",
            f"  head and cache      {parts.passes_s:6.0f} s",
            f"  selection           {parts.selections_s:6.0f} s",
            f"  training            {max(0.0, parts.training_s):6.0f} s{intervals}"
            + (f"; then {self.ending_s:.0f} s to evaluate and write the model" if self.ending_s else ""),
        ]

    def _intervals_left(self) -> int:
        """Return how many intervals are to begin from now on; 0: the present one stays to the end."""
        least, fitting = 0 if self.intervals else 1, self._fitting(self.scheme.needs_scores)
        if not self._by_rule:
            if self.end_s is None or fitting is None:  # asked where one is over
                return 1
            interval = self.interval or PLAIN_INTERVAL
            return max(least, round(fitting / (interval + self._selects_cached)))  # and its pass
        assert fitting is not None
        count = min(_MOST_INTERVALS - self.intervals, round(fitting / _MOST_EPOCHS))
        if self.end_s is None:
            count = min(count, self.epochs // 2)  # one epoch would never read its cache
        return max(least, count)

    def _interval(self, count: int, scored: bool) -> Stage:
        """Return the interval that begins now, of `count` to come; `scored`: tensors are scored for it."""
        if self.end_s is None:
            if self._by_rule:
                epochs = (self.epochs - self.epoch) / count
            elif self.interval:
                epochs = float(self.interval)
            else:  # alike, of about four epochs
                epochs = self.epochs / max(1, round(self.epochs / PLAIN_INTERVAL))
            return Stage(epochs=epochs, end_epoch=self.epoch + epochs)
        time_s = self._left_s / count
        end_s = self.end_s - (count - 1) * time_s
        if not self._by_rule:
            epochs = float(self.interval or PLAIN_INTERVAL)
            return Stage(epochs=epochs, end_epoch=self.epoch + epochs, end_s=end_s, epoch_s=time_s / epochs)
        fitting = self._fitting(scored)
        assert fitting is not None
        epochs = min(_MOST_EPOCHS, max(_FEWEST_EPOCHS, fitting / count))
        return Stage(epochs=epochs, end_s=end_s, epoch_s=time_s / epochs)

    def _fitting(self, scored: bool) -> Optional[float]:
        """Return how many epochs fit into what is left, as long as the rule has them; None: not known."""
        profile = self.profile
        if profile is None:
            return None
        if self.end_s is not None and self._by_rule:
            parts = self.parts(1, scored)
            return max(0.0, parts.training_s) / (_EPOCH * parts.pass_s)
        epoch = profile.forward_share if self._selects_cached else self.rho  # in epochs of full training
        if self.end_s is None:
            return (self.epochs - self.epoch) * self.rho / epoch
        return max(0.0, self._left_s) / (self._full_s * self.steps_per_epoch * epoch)

    @property
    def _selects_cached(self) -> bool:
        return self.cached and self.scheme.selects

    @property
    def _by_rule(self) -> bool:
        """Return whether the rule says how long an interval is; else a number of epochs does."""
        return self._selects_cached and self.interval is None and self.profile is not None

    @property
    def _head_to_come(self) -> Optional[HeadWork]:
        return None if self.intervals else self.head_work

    @property
    def _left_s(self) -> float:
        """Return the seconds to divide into intervals; a share of full training's time as a whole."""
        assert self.end_s is not None
        return self.end_s - (0.0 if self.ends_by == "share" and not self.intervals else self.spent_s)

    @property
    def _full_s(self) -> float:
        """Return the seconds of a full step; 0: not known."""
        image_ms = 1e3 * (self.image_s or 0.0) / EVALUATION / _FORWARD
        known_ms = self.full_ms or (self.profile.full_ms if self.profile else None)
        return 1e-3 * float(known_ms or self.batch_size * image_ms)

    @property
    def _pass_s(self) -> float:
        """Return the seconds of a pass over the images."""
        forward = self.profile.forward_share if self.profile else _FORWARD
        return self.steps_per_epoch * self._full_s * forward

    @property
    def _time_decides(self) -> bool:
        """Return whether less is prepared in less time; nobody waits for a share of a short training."""
        full_s = 1e-3 * self.profile.full_ms if self.profile else 0.0
        training_s = full_s * (self.epochs * self.steps_per_epoch + GRAPH_STEPS)
        return self.end_s is not None and (self.ends_by == "deadline" or training_s >= _WORTH_S)


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
