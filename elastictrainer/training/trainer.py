"""Train in the conventions of Keras: compile, then fit."""

import contextlib
import dataclasses
import inspect
import time
from typing import Any, Callable, Dict, List, Optional, Union

import tensorflow as tf

from elastictrainer.cache.settings import CacheSettings
from elastictrainer.errors import UsageError
from elastictrainer.profiler.profile import Profile
from elastictrainer.registry import HEAD
from elastictrainer.runs.log import LOG, printed
from elastictrainer.selection import schemes
from elastictrainer.selection.plan import require_reachable
from elastictrainer.selection.settings import SelectionSettings, check_tensors
from elastictrainer.steps import requirements
from elastictrainer.steps.keras_compat.fitting import validation_split_off
from elastictrainer.steps.rates import RateSchedule
from elastictrainer.training.between_fits import FitCarryover
from elastictrainer.training.callbacks import TrainerCallback, require_supported_callbacks
from elastictrainer.training.checkpoints import Checkpointing
from elastictrainer.training.deadline import Deadline
from elastictrainer.training.feed import Feed, Probe
from elastictrainer.training.fit_data import effective_cache, run_data
from elastictrainer.training.loop import Loop
from elastictrainer.training.prepared import TrainerRequest, prepare
from elastictrainer.training.state import RunState
from elastictrainer.training.stopwatch import BUILDING, Stopwatch
from elastictrainer.training.summary import summary_of


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
        clock: Callable[[], float] = time.perf_counter,
    ):
        """
        Args:
            model: any Keras model that is trained with the default `train_step`; frozen layers stay frozen.
            scheme: a name that `et-train --scheme` takes, or a `Scheme`.
            profile: the model's profile, from `profile_model` or an earlier `fit` (`trainer.profile`); None:
                made at the first minibatch, which takes a minute or more (a tenth of a short run at most).
            probe: from the number of an interval to the minibatches that tensors are scored on and full steps
                timed with; None: the first ones of the data.
            activation_cache: "auto": at the start of an interval a pass over the data caches the activations
                of frozen layers, and the steps read them, where the data is known to give the same examples
                in every epoch. "always": you know that a tf.data.Dataset does. "off": they are computed in
                every step, as in the paper. A CacheSettings says where and how it is stored.
            head: "solve": before the first step the last layer gets the weights of a classifier solved on the
                features of the untrained network; it must be a linear Dense layer, and the loss a
                cross-entropy from logits. "keep": it stays as it is.
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
            clock: tells the seconds that the steps of a run take.

        Raises:
            UsageError: an argument out of range, an unknown scheme, a model without anything to train, the
                profile of another model.
        """
        self.model = model
        self.scheme = schemes.create(scheme) if isinstance(scheme, str) else scheme
        self.scheme_name = scheme if isinstance(scheme, str) else type(scheme).__name__
        self.profile = profile
        self._owns_profile = profile is None  # `fit` makes the profile
        self.selection = SelectionSettings(rho, interval, importance_batches, deterministic)
        if memory is not None and not self.scheme.selects:
            raise UsageError(
                f"memory: the scheme {self.scheme_name} selects nothing, so nothing can be left out."
            )
        if memory is not None and self.selection.deterministic:
            raise UsageError("memory: what fits differs from run to run, which excludes deterministic=True.")
        HEAD.check(head)
        if head != "solve" and not self.scheme.trains:
            raise UsageError(f"the scheme {self.scheme_name} solves the head: it takes head='solve'.")
        self.head, self.rates, self.deadline = head, rates, deadline
        self._memory = memory
        self.activation_cache = (
            CacheSettings(activation_cache) if isinstance(activation_cache, str) else activation_cache
        )
        self._probe, self._clock = probe, clock
        self._carried = FitCarryover()  # from one call of `fit` to the next
        if model.built:
            self._check_model()

    def _check_model(self) -> None:
        """Refuse a model with nothing to train, and a profile of another one or of too slow a device."""
        requirements.require_trainable(self.model)
        if self.profile is None:
            return
        check_tensors(self.profile, len(self.model.trainable_variables))
        if self.scheme.selects and self.deadline is None:
            require_reachable(self.selection.rho, self.profile, self.activation_cache.mode != "off")

    def compile(self, *arguments: Any, **options: Any) -> None:
        """Compile as `Model.compile` does, but without XLA; a compiled model need not be compiled again.

        A profile that an earlier `fit` made is forgotten: other layers may train now, or another optimizer.
        """
        if self._owns_profile:
            self.profile = None
        self._carried = FitCarryover(weights=self._carried.weights)
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
        require_supported_callbacks(callbacks, self.model.optimizer, bool(savers), self.rates)
        epochs, first_epoch = given.setdefault("epochs", 1), given.get("initial_epoch", 0)
        if epochs <= first_epoch:  # a training that is over is started again
            return _trained_no_epoch(self.model, callbacks)
        if any(saver.resume for saver in savers) and not callable(given.get("x")):
            raise UsageError("to resume, pass the data as a function of (epoch, first): see Trainer.fit.")
        given = validation_split_off(given)
        cache, reason = effective_cache(self.activation_cache, given)
        # A deadline takes the place of rho. Where every step does all work, rho says what a step may take.
        rho = self.selection.rho if selects and (self.deadline is None or cache.mode == "off") else None
        reads_more = cache.mode != "off" or self.head == "solve"
        data = run_data(self.model, given, reads_more)
        state = RunState(
            self.model,
            self.scheme_name,
            rho,
            epochs - first_epoch,
            data.steps,
            self.rates,
            deadline=self.deadline,
            watch=Stopwatch(self._clock),
            callbacks=ours,
        )
        for callback in ours:
            callback.run_state = state
        feed = Feed(state, data, self._probe, self.selection.importance_batches, first_epoch)
        with contextlib.ExitStack() as stack:
            stack.enter_context(printed(given.get("verbose") != 0))
            if reason:
                LOG.info(f"not cached: {reason}")
            for callback in ours:
                stack.enter_context(callback.fit_context())
            request = TrainerRequest(
                self.scheme,
                self.selection,
                self.profile,
                cache,
                self.head,
                self._owns_profile,
                self._memory,
                resumed=any(saver.resumes for saver in savers),
            )
            with state.watch.lap(BUILDING):
                prepared = prepare(state, feed, request, self._carried)
            stack.callback(prepared.cached_steps.free_cache)
            self.model.stop_training = False
            for saver in savers:
                if saver.resume:
                    saver.restore_run()
            # What other callbacks have done after a step is saved with it.
            others = [callback for callback in callbacks if callback not in savers]
            loop = Loop(state, feed, prepared, given, [*others, *savers])
            history = loop.run()
            if not selects and not self._carried.timed_full_ms:
                prepared.budgeting.time_full_steps(again=True)  # the machine may have changed since the start
            summary = summary_of(state)
            for callback in ours:
                summary.update(callback.conclude())
            state.tell("on_fit_end", summary)
        history.elastic, history.selections = summary, state.selections
        self.profile = state.policy.profile or self.profile
        self._carried = FitCarryover.after(prepared.graphs, state, self._carried)
        return history

    def state(self) -> Dict[str, Any]:
        """Return the state for `restore`, as JSON values: the profile, and the selection with its scores.

        Weights and optimizer are not in it: save the model.
        """
        carried = dataclasses.replace(self._carried, graphs=None)
        return {"profile": self.profile and self.profile.to_json(), **dataclasses.asdict(carried)}

    def restore(self, state: Dict[str, Any]) -> None:
        """Go on from `state` of another trainer, of the same model with the same weights, compiled alike.

        With other weights tensors are scored again by the next `fit`. Graphs of this trainer stay.
        """
        values = {**state, "graphs": self._carried.graphs}
        profile = values.pop("profile")
        self.profile = Profile.from_json(profile) if profile else self.profile
        self._carried = FitCarryover(**values)

    def keep_steps(self, count: int) -> None:
        """Keep the compiled steps of the latest `count` selections, which `restore` may go back to.

        One call of `fit` needs three. Nothing is compiled before the first one.
        """
        if self._carried.graphs is not None:
            self._carried.graphs.steps.size = count


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
