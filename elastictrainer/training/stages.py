"""The stages of a run: planned one after the other, and begun with a selection, a cache and a solved head."""

import dataclasses
from typing import Callable, NamedTuple, Optional, Tuple

from elastictrainer.cache.storage import CacheError
from elastictrainer.errors import NotFinite
from elastictrainer.runs.log import LOG
from elastictrainer.steps.keras_compat.layers import layers_in_bfloat16
from elastictrainer.steps.tensor_kinds import head_mask
from elastictrainer.training import clock as laps
from elastictrainer.training.cached_steps import CachedSteps
from elastictrainer.training.head import HeadPass
from elastictrainer.training.planner import Planner, Stage
from elastictrainer.training.state import RunState, Values

# With MobileNetV2, building the graphs of the first interval takes at most this share of what scoring
# takes with its graphs.
_LIKE_SCORING = 0.4
_ROUNDED = 0.6  # of evaluating an image, which is in float32: the same in a forward pass in bfloat16


class Forecast(NamedTuple):
    """What the profile says of a step of the stage.

    Attributes:
        of: whether it reads the cache, and its mask as bytes: steps alike in these take about as long.
        ratio: its time over a full step's; 0: not known.
        flops: its floating point operations; 0: not known.
    """

    of: Tuple[bool, bytes] = (False, b"")
    ratio: float = 0.0
    flops: float = 0.0


class Stages:
    """Plans the stages of a run, and begins them: selects tensors, writes the cache, solves the head.

    Attributes:
        scheme: of the run.
    """

    def __init__(
        self,
        run_state: RunState,
        planner: Planner,
        cache: CachedSteps,
        head_pass: Optional[HeadPass],
        full_steps_first: int,
    ):
        """Take a run whose selector is made.

        Args:
            planner: knows what the run has to do, not yet how it stands.
            cache: writes the activation cache, where the run has one.
            head_pass: solves the head before the first interval; None: it stays.
            full_steps_first: steps before the first selection.
        """
        self._state, self._initial_planner, self._cache = run_state, planner, cache
        self.scheme, self._head_pass, self._full_steps_first = planner.scheme, head_pass, full_steps_first
        self._mask = run_state.selector.mask  # of a scheme that does not select
        self._forecast = Forecast()
        self._like_evaluation = _ROUNDED if layers_in_bfloat16(run_state.model) else 1.0

    @property
    def head_alone(self) -> Optional[HeadPass]:
        """Return what solves the head where no step follows; None where steps do."""
        stage = self._state.clock.stage
        return self._head_pass if stage is not None and not stage.trains else None

    def start(self) -> None:
        """Plan a run from its beginning, set its budget where that is a share of full training's time, and
        say how its time is divided.
        """
        state, clock, planner = self._state, self._state.clock, self._initial_planner
        if planner.ends_by == "share":
            steps_s = 1e-3 * (state.full_step_ms() or 0.0) * clock.epochs * clock.steps_per_epoch
            clock.budget_s = planner.rho * (steps_s + state.compiling_s())
        self._plan()
        if clock.by_clock and clock.stage:
            for line in self._planner().lines(clock.stage):
                LOG.info(line)

    def resume(self) -> None:
        """Go on with the stage of an interrupted run, or with the next one, where it has more time."""
        clock = self._state.clock
        if clock.deadline and clock.deadline.more_s:
            self._plan()
        if clock.stage_begun or self._state.progress.batch:  # an interval to come writes its own cache
            self._renew_cache()

    def before_step(self) -> None:
        """Begin a stage, or go on with one, if it is time to.

        Stages begin between epochs, but for the first, which follows the first full steps at once.
        """
        progress, clock, first = self._state.progress, self._state.clock, self._full_steps_first
        if progress.step < first or (progress.batch and progress.step != first):
            return
        if clock.stage and clock.stage_begun and clock.stage.is_over(progress.epoch, clock.spent_s()):
            self._plan()
        if clock.stage and not clock.stage_begun:
            self._state.set_rate()  # tensors are scored with it; that of a run with more time was zero
            self._begin(clock.stage)
        elif not progress.batch:
            self._renew_cache()

    def forecast(self) -> Forecast:
        """Return what the profile says of the steps of the stage going on."""
        selector, cached = self._state.selector, self._cache.uses_cache
        of = cached, selector.mask.tobytes()
        if of != self._forecast.of:
            ratio, flops, profile = 0.0, 0.0, selector.profile
            if profile is not None:
                profile = profile.with_cache if cached else profile
                ratio = profile.step_time(selector.mask) / profile.full_ms
                flops = profile.step_flops(selector.mask) or 0.0
            self._forecast = Forecast(of, ratio, flops)
        return self._forecast

    def _begin(self, stage: Stage) -> None:
        """Begin a stage: score and select tensors, write the cache, solve the head. Or solve that alone."""
        state, selector, progress = self._state, self._state.selector, self._state.progress
        head_pass = None if selector.interval else self._head_pass
        self._cache.free_cache()
        if stage.trains:
            self._select(stage, head_pass)
        solved: Values = {}
        if head_pass:
            with state.clock.watch.lap(laps.HEAD):
                solved = head_pass.finish((progress.start_images, progress.start_loss or 0.0))
            progress.start_images, progress.start_loss = solved["images"], solved["loss"]
            if stage.trains and not self._planner().steps_fit(self.forecast().ratio, self._cache.uses_cache):
                LOG.info("there is no time to train layers: the solved head stays")
                self._cache.free_cache()
                stage = dataclasses.replace(stage, trains=False)
                self._take(stage)
        if stage.trains:
            selector.settle(state.progress.step)
        state.clock.stage_begun = True
        if head_pass:
            self._begin_with_head(stage, solved)

    def _select(self, stage: Stage, head_pass: Optional[HeadPass]) -> None:
        """Score and select an interval's tensors, and write its cache; `head_pass` takes the features."""
        state, selector, watch = self._state, self._state.selector, self._state.clock.watch
        caches = self._initial_planner.cached
        knows_head = state.progress.start_images > 0  # solved before the run was given more time
        if head_pass and not knows_head and self.scheme.needs_scores and stage.scoring:
            with watch.lap(laps.HEAD):
                head_pass.solve_on_sample()
        with watch.lap(laps.IMPORTANCE):
            try:
                selector.score(not stage.scoring)
            except NotFinite as error:
                raise state.diverged(str(error).partition(". ")[0]) from None
        share = self._step_share(stage, caches)  # now, for scoring has taken time
        with watch.lap(laps.SELECTION):
            mask = selector.begin(share, caches)
        if caches and not mask.all():
            cached = self._try_to_cache(lambda: self._cache.write_cache(mask, head_pass))
            if head_pass and not cached:
                head_pass.clear()

    def _begin_with_head(self, stage: Stage, solved: Values) -> None:
        """Tell the callbacks of the solved head, and train layers after all where it has left time for that.

        The features of the whole pass have given the head its weights only now: a cache written before holds
        others where the selection leaves the head out.
        """
        state, clock = self._state, self._state.clock
        state.tell("on_head", {**solved, **state.tell("evaluate", 0)})
        self._renew_cache()
        if clock.deadline and clock.deadline.image_s and clock.image_s:  # it was expected: perhaps too much
            clock.image_s = min(clock.image_s, solved["seconds"] / solved["images"])
        if self.scheme.trains and not stage.trains and self._planner().steps_fit(0.0, True, again=True):
            LOG.info("there is time left: layers train as well")
            self._initial_planner = dataclasses.replace(self._initial_planner, head_work=None)
            self._head_pass = None
            self._plan()
            self.before_step()

    def _renew_cache(self) -> None:
        """Go on with an interval, whose cache is written again where it has to be."""
        if not self._try_to_cache(self._cache.renew):
            self._state.selector.settle(self._state.progress.step, again=True)

    def _try_to_cache(self, write: Callable[[], None]) -> bool:
        """Write a cache; where that cannot be, select for steps that do all work, and return False."""
        try:
            write()
        except CacheError as error:  # such as less room, or another device, than there was
            self._cache.free_cache()
            LOG.info(f"not cached: {error}")
            stage = self._state.clock.stage
            assert stage is not None
            with self._state.clock.watch.lap(laps.SELECTION):
                self._state.selector.select(self._step_share(stage, False), False)
            return False
        return True

    def _step_share(self, stage: Stage, cached: bool) -> float:
        """Return the time that a step of the interval may take, over a full step's."""
        watch, planner = self._state.clock.watch, self._planner()
        scoring_s = _LIKE_SCORING * watch.of(laps.IMPORTANCE, laps.FULL_TRACING)
        graphs_s = watch.of(laps.TRACING) / planner.intervals if planner.intervals else scoring_s
        return planner.step_share(stage, cached, graphs_s)

    def _plan(self) -> None:
        """Plan what comes next; what goes on stays where that is nothing."""
        clock, stage = self._state.clock, self._planner().next_stage()
        if stage is None:
            return
        if stage.note and (clock.stage is None or stage.note != clock.stage.note):
            LOG.info(stage.note)
        self._take(stage)
        clock.stage_begun = False

    def _take(self, stage: Stage) -> None:
        state = self._state
        state.clock.stage = stage
        if not stage.trains:
            state.selector.mask = head_mask(state.model)
        elif not self.scheme.selects:
            state.selector.mask = self._mask

    def _planner(self) -> Planner:
        """Return the planner of the run as it stands."""
        state, clock = self._state, self._state.clock
        return dataclasses.replace(
            self._initial_planner,
            epochs=clock.epochs,
            intervals=state.selector.interval,
            epoch=state.progress.epoch,
            spent_s=clock.spent_s(),
            end_s=clock.end_s,
            ending_s=clock.ending_s,
            full_ms=state.full_step_ms(),
            image_s=clock.image_s and self._like_evaluation * clock.image_s,
        )
