"""Train in the conventions of Keras: compile, then fit."""

import contextlib
import dataclasses
import inspect
import time
from typing import Any, Callable, List, Optional, Tuple, Union

import tensorflow as tf

from elastictrainer.cache import costs
from elastictrainer.cache.settings import CacheSettings
from elastictrainer.errors import UsageError
from elastictrainer.profiler.profile import Profile
from elastictrainer.profiler.profile_model import profile_model
from elastictrainer.registry import HEAD
from elastictrainer.runs import resident
from elastictrainer.runs.log import LOG, printed
from elastictrainer.selection import schemes
from elastictrainer.steps import optimizers, requirements
from elastictrainer.steps.compiled_step import CompiledSteps
from elastictrainer.steps.keras_compat.fitting import validation_split_off
from elastictrainer.steps.objective import Minibatch, make_variables
from elastictrainer.steps.rates import RateSchedule
from elastictrainer.steps.snapshot import digest
from elastictrainer.training.cached_steps import CachedSteps
from elastictrainer.training.callbacks import TrainerCallback, require_supported_callbacks
from elastictrainer.training.checkpoints import Checkpointing
from elastictrainer.training.clock import BUILDING, CALIBRATION, Clock, Deadline, Stopwatch
from elastictrainer.training.feed import Feed, Probe
from elastictrainer.training.fit_data import effective_cache, run_data
from elastictrainer.training.graphs import Graphs, check_tensors, make_graphs, make_selector
from elastictrainer.training.head import HeadPass
from elastictrainer.training.loop import Loop
from elastictrainer.training.memory import limited
from elastictrainer.training.planner import PLAIN_INTERVAL, Planner, require_reachable
from elastictrainer.training.stages import Stages
from elastictrainer.training.state import RunState, Values, summary_of

_FULL_STEPS_FIRST = 48  # full steps before the first selection where the head is not solved


@dataclasses.dataclass
class _Left:
    """What a call of `fit` leaves to the next, besides graphs and profile. JSON values only.

    Attributes:
        policy: the state of the selector; None: nothing was selected, or it holds no more.
        steps: steps made since the latest selection.
        weights: digest of the model's variables, as the latest call left them; 0: not known.
        timed_full_ms: times of full steps measured for comparison.
    """

    policy: Optional[Values] = None
    steps: int = 0
    weights: int = 0
    timed_full_ms: List[float] = dataclasses.field(default_factory=list)


class Trainer:
    """Trains a Keras model by one of the schemes, where `Model.fit` would train all of it.

    Keras' data formats, callbacks, metrics and validation work as in `Model.fit`; loop and step are others.

    `fit` prints its decisions, unless it has verbose=0. Where the logger "elastictrainer" has a handler of
    yours, that gets them instead, as records of level INFO.

    Examples:
        >>> trainer = Trainer(model, rho=0.5, interval=3)  # doctest: +SKIP
        >>> trainer.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])  # doctest: +SKIP
        >>> history = trainer.fit(train, validation_data=test, epochs=12)  # doctest: +SKIP
        >>> history.history["ratio"], history.elastic["rho_achieved"]  # doctest: +SKIP
    """

    def __init__(
        self,
        model: tf.keras.Model,
        *,
        scheme: Union[str, schemes.Scheme] = "elastic",
        profile: Optional[Profile] = None,
        probe: Optional[Probe] = None,
        activation_cache: Union[str, CacheSettings] = "auto",
        head: str = "keep",
        rates: Optional[RateSchedule] = None,
        deadline: Optional[Deadline] = None,
        memory: Optional[float] = None,
        rho: float = 0.5,
        interval: Optional[int] = None,
        importance_batches: int = 5,
        deterministic: bool = False,
        fold: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ):
        """
        Args:
            model: any Keras model that is trained with the default `train_step`; frozen layers stay frozen.
            scheme: a name that `et-train --scheme` takes, or a `Scheme`.
            profile: the model's profile, from `profile_model` or an earlier `fit` (`trainer.profile`); None:
                made at the first minibatch, which takes a minute or more (less in a short run).
            probe: from the number of an interval to the minibatches that tensors are scored on and full steps
                timed with; None: the first ones of the data.
            activation_cache: "auto": at the start of an interval a pass over the data caches the activations
                of frozen layers, and the steps read them, where the data is known to give the same examples
                in every epoch. "always": you know that a tf.data.Dataset does. "off": they are computed in
                every step, as in the paper. A CacheSettings says where and how it is stored.
            head: "solve": before the first step the last layer gets the weights of a classifier solved on the
                features of the network as it is; it must be a linear Dense layer, and the loss a
                cross-entropy from logits. Norms that train their statistics then may end the run below it:
                call them with training=False. "keep": it stays as it is.
            rates: the learning rate over the run; None: the optimizer has its own, which should not depend on
                the number of steps in a run by the clock.
            deadline: the time that the whole process may take; None: `rho` decides, or the epochs do.
            memory: bytes that this process may have resident in all; None: as many as it takes. Tensors are
                then selected within time and memory, full steps take fewer examples where they would not fit,
                and a cache beyond its share goes into a file. Malloc then gives large blocks back
                at once for as long as the process lasts. On x86 set TF_ONEDNN_USE_SYSTEM_ALLOCATOR=1 in the
                environment: TensorFlow's own pool never gives back what the largest step took. Making a
                profile counts for nothing: pass `profile`.
            rho: training time asked for, over that of full training of the `epochs` given to `fit`; how many
                epochs the run makes in it is a result.
            interval: epochs between two selections; None: as the time allows.
            importance_batches: minibatches that tensors are scored on.
            deterministic: the profile alone decides what trains, and the run makes the `epochs` given to
                `fit`; measured times decide nothing.
            fold: compute batch norms that keep their statistics inside the layers before them: the same
                gradients in less time.
            clock: tells the seconds that the steps of a run take.

        Raises:
            UsageError: an argument out of range, an unknown scheme, a model without anything to train, the
                profile of another model.
        """
        self.model = model
        self.scheme = schemes.create(scheme) if isinstance(scheme, str) else scheme
        self.scheme_name = scheme if isinstance(scheme, str) else schemes.name_of(scheme)
        self.profile = profile
        self._owns_profile = profile is None  # `fit` makes the profile
        for name, value in (("interval", interval), ("importance_batches", importance_batches)):
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, not {value}.")
        if not 0 < rho <= 1:
            raise UsageError(f"rho must be above 0 and at most 1, not {rho:g}.")
        self.rho, self.importance_batches = rho, importance_batches
        self._interval, self._deterministic, self._fold = interval, deterministic, fold
        if memory is not None and not self.scheme.selects:
            raise UsageError(
                f"memory: the scheme {self.scheme_name} selects nothing, so nothing can be left out."
            )
        if memory is not None and deterministic:
            raise UsageError("memory: what fits differs from run to run, which excludes deterministic=True.")
        HEAD.check(head)
        if head != "solve" and not self.scheme.trains:
            raise UsageError(f"the scheme {self.scheme_name} solves the head: it takes head='solve'.")
        self.head, self.rates, self.deadline = head, rates, deadline
        self._memory = memory
        if memory is not None:
            resident.give_back_freed_memory()
        self.activation_cache = (
            CacheSettings(activation_cache) if isinstance(activation_cache, str) else activation_cache
        )
        self._probe, self._clock = probe, clock
        self._graphs: Optional[Graphs] = None  # made by the first call of `fit`
        self._left = _Left()
        if model.built:
            self._check_model()

    def _check_model(self) -> None:
        """Refuse a model with nothing to train, and a profile of another one or of too slow a device."""
        requirements.require_trainable(self.model)
        if self.profile is None:
            return
        check_tensors(self.profile, len(self.model.trainable_variables))
        if self.scheme.selects and self.deadline is None:
            require_reachable(self.rho, self.profile, self.activation_cache.mode != "off")

    def compile(self, *arguments: Any, **options: Any) -> None:
        """Compile as `Model.compile` does, but without XLA; a compiled model need not be compiled again.

        A profile that an earlier `fit` made is forgotten: other layers may train now, or another optimizer.
        """
        if self._owns_profile:
            self.profile = None
        self._left = _Left(weights=self._left.weights)
        self._graphs = None
        given = inspect.signature(self.model.compile).bind(*arguments, **options).arguments
        if "jit_compile" not in given:  # Keras 3 decides by itself otherwise
            options = {"jit_compile": False, **options}
        self.model.compile(*arguments, **options)

    def fit(self, *arguments: Any, **options: Any) -> tf.keras.callbacks.History:
        """Train; the arguments are those of `Model.fit`.

        The data may also be a function of (epoch, first): a tf.data.Dataset of the minibatches from number
        `first` of that epoch on, the same whenever it is called, through all epochs to come. Pass
        `steps_per_epoch` with it. A run can only be resumed on such data; see `Checkpointing`. With
        shuffle=True cached epochs make up new minibatches of its examples; else they have its own.

        Returns:
            Keras' History, with three additions. `history["ratio"]` has each epoch's median step time over
            that of a full step, `history["selected"]` how many tensors were in training at its end;
            `elastic` is a dict of the run's figures, as in summary.json; `selections` lists what `et-train`
            writes to selections.jsonl. docs/run-folder.md has every key of both. Both are empty where
            `initial_epoch` has reached `epochs`: then nothing is trained, as by `Model.fit`.

        Raises:
            UsageError: a model or an argument that leaves no room for this, each with what to change.
            RunError: the data cannot be read, and what callbacks raise.
        """
        selects = self.scheme.selects
        requirements.require_supported(self.model, selects)
        given = dict(inspect.signature(self.model.fit).bind(*arguments, **options).arguments)
        callbacks = _as_list(given.pop("callbacks", None))
        ours = [callback for callback in callbacks if isinstance(callback, TrainerCallback)]
        savers = [callback for callback in ours if isinstance(callback, Checkpointing)]
        if len(savers) > 1:
            raise UsageError("callbacks has more than one Checkpointing: leave one.")
        saver = savers[0] if savers else None
        ours.sort(key=lambda callback: callback is saver)  # last: it saves what the others have done
        require_supported_callbacks(callbacks, self.model.optimizer, saver is not None, self.rates)
        epochs, first_epoch = given.setdefault("epochs", 1), given.get("initial_epoch", 0)
        if epochs <= first_epoch:  # a training that is over is started again
            return _trained_no_epoch(self.model, callbacks)
        if saver and saver.resume and not callable(given.get("x")):
            raise UsageError("to resume, pass the data as a function of (epoch, first): see Trainer.fit.")
        given = validation_split_off(given)
        cache, reason = effective_cache(self.activation_cache, given)
        # A deadline takes the place of rho. Where every step does all work, rho says what a step may take.
        rho = self.rho if selects and (self.deadline is None or cache.mode == "off") else None
        reads_more = cache.mode != "off" or self.head == "solve"
        data = run_data(self.model, given, reads_more)
        clock = Clock(epochs - first_epoch, data.steps, self.deadline, Stopwatch(self._clock))
        state = RunState(self.model, self.scheme_name, rho, clock, rates=self.rates, callbacks=ours)
        for callback in ours:
            callback.run_state = state
        feed = Feed(clock, state.progress, data, self._probe, self.importance_batches, first_epoch)
        state.data_fault = feed.fault
        with contextlib.ExitStack() as stack:
            stack.enter_context(printed(given.get("verbose") != 0))
            if reason:
                LOG.info(f"not cached: {reason}")
            for callback in ours:
                stack.enter_context(callback.fit_context())
            with clock.watch.lap(BUILDING):
                loop = self._prepare(state, feed, cache, saver is not None and saver.trained_layers)
            stack.callback(loop.cache.free_cache)
            self.model.stop_training = False
            if saver and saver.resume:
                saver.restore_run()
            # Saved last: with what other callbacks have done after a step.
            history = loop.run(given, sorted(callbacks, key=lambda callback: callback is saver))
            if not selects and not self._left.timed_full_ms:
                loop.time_full_steps(again=True)  # the machine may have changed since the start
            summary = summary_of(state)
            summary.update(state.tell("conclude"))
            state.tell("on_fit_end", summary)
        history.elastic, history.selections = summary, state.selections
        self.profile = state.selector.profile or self.profile
        self._leave(state)
        return history

    def _prepare(self, state: RunState, feed: Feed, cache: CacheSettings, resumed: bool) -> Loop:
        """Make the loop of a run and what it needs, on its first minibatch: variables, profile, selector.

        What an earlier run has left is used where it still holds.

        Args:
            cache: settings of the activation cache, "off" where the data cannot be cached.
            resumed: whether the run goes on from a checkpoint, with layers that have trained.

        Raises:
            UsageError: nothing to train, an unachievable time, or a head that cannot be solved.
            DataError: the first minibatch cannot be read.
        """
        minibatch, clock, scheme = feed.peek(), state.clock, self.scheme
        first_call = not self._left.weights
        graphs = self._graphs = self._graphs_for(minibatch, feed.spec)
        left, steps = self._left, graphs.steps
        state.progress.timed_full_ms = list(left.timed_full_ms)
        # One epoch would never read its cache, and a head that was solved has learned more since.
        short = clock.epochs == 1 and clock.deadline is None and self.head == "keep"
        wanted = cache.mode != "off" and not (short and scheme.selects)
        profile, cached = self._profile_for(steps, minibatch, feed.spec, clock, wanted)
        solves = self.head == "solve" and (first_call or not scheme.trains)
        if not scheme.trains and not solves:
            raise UsageError(f'the scheme {self.scheme_name} solves the head alone: pass head="solve".')
        head_pass = HeadPass(self.model, clock, feed) if solves else None
        if state.rho is not None and profile is not None:
            require_reachable(state.rho, profile, cached)
        limit = None
        if self._memory is not None and profile is not None:
            limit = limited(self._memory, profile, resident.settled_bytes(), cache.folder)
            for line in limit.lines():
                LOG.info(line)
            profile, cache = dataclasses.replace(profile, memory=limit.step), limit.cache(cache)
            scheme = limit.scheme(scheme, solves and not resumed)
            state.scheme = self.scheme_name if scheme is self.scheme else schemes.name_of(scheme)
            feed.probe_examples = limit.examples
        by_share = cached and scheme.selects and not self._deterministic
        planner = Planner(
            scheme,
            profile,
            clock.epochs,
            clock.steps_per_epoch,
            batch_size=feed.batch_size,
            rho=1.0 if state.rho is None else state.rho,
            ends_by="deadline" if clock.deadline else "share" if by_share else "steps",
            interval=self._interval,
            cached=cached,
            head_work=head_pass.work if head_pass else None,
        )
        state.selector = make_selector(
            scheme, profile, steps, graphs.scorer, feed.probe, state.note_selection, limit
        )
        # With a head that is not solved the importances of the tensors below it mean nothing.
        knows_enough = not scheme.needs_scores or solves or left.steps
        full_steps_first = 0 if knows_enough else max(1, min(_FULL_STEPS_FIRST, clock.steps_per_epoch // 4))
        if short and left.policy is not None and self._still_selected(clock.steps_per_epoch):
            state.selector.restore(left.policy)
            full_steps_first = clock.steps_per_epoch  # all: the selection of the earlier run stays
        cached_steps = CachedSteps(state, feed, steps, cache)
        stages = Stages(state, planner, cached_steps, head_pass, full_steps_first)
        return Loop(state, feed, graphs, cached_steps, stages, limit)

    def _graphs_for(self, minibatch: Minibatch, spec: Any) -> Graphs:
        """Return the graphs of training on minibatches of `spec`; what depends on other ones is forgotten."""
        if self._graphs is not None:
            if self._graphs.hold(self.model, spec):
                return self._graphs
            LOG.info(
                "the model, its optimizer, its loss or the shape of the data has changed: compiling again"
            )
            self._left = _Left()
            self.profile = None if self._owns_profile else self.profile
        requirements.require_labels(self.model, minibatch[1][0])
        make_variables(self.model, *minibatch)
        requirements.require_trainable(self.model)
        optimizers.build(self.model.optimizer, self.model.trainable_variables)
        return make_graphs(self.model, self.scheme, spec, self._fold)

    def _profile_for(
        self, steps: CompiledSteps, minibatch: Minibatch, spec: Any, clock: Clock, cached: bool
    ) -> Tuple[Optional[Profile], bool]:
        """Return the profile of a run, and whether activations are cached, which `cached` asks for.

        What is missing is measured on `minibatch`, for less time in a short run; a line says why nothing can
        be cached. `spec`: of any minibatch.
        """
        profile, model = self.profile, self.model
        if self.scheme.selects and profile is None:
            LOG.info("profiling the model")
            count = clock.epochs * clock.steps_per_epoch
            options: Values = {"metrics": tuple(steps.metrics), "training_steps": count}
            with clock.watch.lap(CALIBRATION):
                profile = profile_model(model, steps.objective, minibatch, model.optimizer, **options)
            LOG.info(f"full step {profile.full_ms:.1f} ms, rho_min {profile.rho_min:.3f}")
        if not cached:
            return profile, False
        parts, why = [part for part in tf.nest.flatten(spec) if part is not None], ""
        if not all(isinstance(part, tf.TensorSpec) for part in parts):
            why = "the data has ragged or sparse parts"
        elif profile is not None and profile.cache is None:
            if self._deterministic:  # times measured in this run must not affect the selections
                why = "the profile does not have the costs of a cache (et-profile measures them)"
            else:
                with clock.watch.lap(CALIBRATION):
                    profile = costs.with_cache_costs(profile, steps.objective, model.optimizer, minibatch)
        if why:
            LOG.info(f"not cached: {why}")
        return profile, not why

    def _still_selected(self, steps_per_epoch: int) -> bool:
        """Return whether the selection of an earlier run is to be trained on; logs why not."""
        if self._left.steps >= PLAIN_INTERVAL * steps_per_epoch:
            return False
        if self._left.weights != digest(self.model.variables):
            LOG.info("weights were changed since the last call of fit: tensors are scored again")
            return False
        return True

    def _leave(self, state: RunState) -> None:
        """Note what a finished run leaves to the next one."""
        selector = state.selector
        made = [record["step"] for record in state.selections if "selected" in record]
        steps = state.progress.step - made[-1] if made else self._left.steps + state.progress.step
        selected, weights = selector.state() if selector.selects else None, digest(self.model.variables)
        self._left = _Left(selected, steps, weights, state.progress.timed_full_ms)

    def state(self) -> Values:
        """Return the state for `restore`, as JSON values: the profile, and the selection with its scores.

        Weights and optimizer are not in it: save the model.
        """
        return {"profile": self.profile and self.profile.to_json(), **dataclasses.asdict(self._left)}

    def restore(self, state: Values) -> None:
        """Go on from `state` of another trainer, of the same model with the same weights, compiled alike.

        With other weights tensors are scored again by the next `fit`. Graphs of this trainer stay.
        """
        values = dict(state)
        profile = values.pop("profile")
        self.profile = Profile.from_json(profile) if profile else self.profile
        self._left = _Left(**values)

    def keep_steps(self, count: int) -> None:
        """Keep the compiled steps of the latest `count` selections, which `restore` may go back to.

        One call of `fit` needs three. Nothing is compiled before the first one.
        """
        if self._graphs is not None:
            self._graphs.steps.size = count


def _trained_no_epoch(model: tf.keras.Model, callbacks: List[Any]) -> tf.keras.callbacks.History:
    """Tell Keras' callbacks that training has begun and ended, as `Model.fit` does; ours see no run."""
    others = [callback for callback in callbacks if not isinstance(callback, TrainerCallback)]
    told = tf.keras.callbacks.CallbackList(others, add_history=True, model=model)
    told.on_train_begin()
    told.on_train_end()
    history = model.history
    history.elastic, history.selections = {}, []
    return history


def _as_list(callbacks: Any) -> List[Any]:
    if isinstance(callbacks, tf.keras.callbacks.CallbackList):
        raise UsageError("callbacks must be a list of callbacks, not a CallbackList.")
    if isinstance(callbacks, tf.keras.callbacks.Callback):
        return [callbacks]
    return list(callbacks or [])
