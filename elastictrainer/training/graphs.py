"""What a model's training is made of: its graphs, and the selector that scores tensors with them."""

import functools
import itertools
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elastictrainer.errors import UsageError
from elastictrainer.profiler.profile import Profile
from elastictrainer.runs import resident
from elastictrainer.selection.importance import ImportanceEvaluator
from elastictrainer.selection.run_selector import Selector
from elastictrainer.selection.schemes import Scheme
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import CompiledSteps
from elastictrainer.steps.keras_compat.fitting import compilation, count_step
from elastictrainer.steps.objective import KerasMetrics, KerasObjective
from elastictrainer.steps.requirements import require_apart
from elastictrainer.training.memory import MemoryLimit


@dataclass(frozen=True)
class Graphs:
    """The graphs of a model's training. They hold as long as what they were made from does."""

    steps: CompiledSteps
    count_step: Callable[[], Dict[str, Any]]  # counts where Keras does; returns the metrics so far
    scorer: Optional[ImportanceEvaluator]  # None where the scheme has no metric
    made_from: List[Any]  # objects that these depend on

    def hold(self, model: tf.keras.Model, spec: Any) -> bool:
        """Return whether they are those of `model` as it is now, and of minibatches of `spec`."""

        def same(one: Any, other: Any) -> bool:
            return one is other or (isinstance(one, (int, tf.TypeSpec)) and one == other)

        now = _made_from(model, spec)
        return len(now) == len(self.made_from) and all(map(same, now, self.made_from))


def _made_from(model: tf.keras.Model, spec: Any) -> List[Any]:
    """Return the objects that graphs depend on: variables, compilation, specs of minibatches."""
    trainable = model.trainable_variables
    described = [compilation(model), model.optimizer, *tf.nest.flatten(spec), len(trainable)]
    return [*described, *trainable, *model.non_trainable_variables]


def make_graphs(model: tf.keras.Model, scheme: Scheme, spec: Any, fold: bool) -> Graphs:
    """Prepare the graphs of a built, compiled model's training; each is traced when it first runs.

    The optimizer is built, too. `spec` are tf.TensorSpecs of any minibatch; for `fold` see `Objective`.
    """
    require_apart(model.optimizer, model.trainable_variables, scheme.selects or not all(scheme.mask(model)))
    metrics = KerasMetrics(model)
    objective = KerasObjective(model, penalty=scheme.penalty(model), fold=fold)
    steps = CompiledSteps(objective, model.optimizer, [metrics])

    scorer = None
    if scheme.importance_metric is not None:
        scorer = ImportanceEvaluator(
            objective, model.optimizer, scheme.importance_metric, steps, momentum=False
        )

    def counted() -> Dict[str, Any]:
        count_step(model)
        return metrics.results()

    # A graph takes half the time of the ops one by one; a tf.function would look it up at each call.
    return Graphs(steps, tf.function(counted).get_concrete_function(), scorer, _made_from(model, spec))


def make_selector(
    scheme: Scheme,
    profile: Optional[Profile],
    steps: CompiledSteps,
    scorer: Optional[ImportanceEvaluator],
    probe: Callable[[int], Iterator[Any]],
    log: Callable[[Dict[str, Any]], None],
    limit: Optional[MemoryLimit] = None,
) -> Selector:
    """Make the selector of a run; its model and built optimizer are those of the compiled `steps`.

    The `profile` is None only where the scheme does not select. `probe` leads from the number of the interval
    to the minibatches that tensors are scored on; `log` takes the record of each selection. Within a `limit`
    of memory the graphs of scoring, and those of old selections, are freed. UsageError for no profile where
    one is needed, that of another model, or a scheme's mask that is none.
    """
    model, optimizer = steps.objective.model, steps.optimizer
    variables = model.trainable_variables
    if profile is not None:
        check_tensors(profile, len(variables))
    if not scheme.selects:
        at_interval = functools.partial(scheme.at_interval, model, optimizer)
        return Selector(_checked(scheme, model), profile, at_interval=at_interval, log=log)
    if profile is None:
        raise UsageError(
            "an elastic scheme needs the model's profile: pass profile, from profile_model or et-profile."
        )
    optimizers.prepare_freezing(optimizer, variables)

    def free() -> None:
        if scorer is not None and limit is not None:
            steps.clear()
            scorer.release()
            resident.release_memory()

    def score(interval: int) -> NDArray[np.float64]:
        assert scorer is not None
        free()
        importance = scorer(probe(interval), None if limit is None else limit.weights_folder)
        free()
        return importance

    return Selector(
        np.ones(len(variables), bool),
        profile,
        scheme.solver or "dp",
        None if scheme.importance_metric is None else score,
        on_freeze=lambda mask: optimizers.reset_slots(optimizer, list(itertools.compress(variables, ~mask))),
        log=log,
        memory=None if limit is None else limit.step_bytes,
    )


def check_tensors(profile: Profile, tensors: int) -> None:
    """Refuse, with a UsageError, a profile that has another number of tensors."""
    if len(profile) != tensors:
        raise UsageError(f"the profile has {len(profile)} tensors, the model {tensors}: profile this model.")


def _checked(scheme: Scheme, model: tf.keras.Model) -> NDArray[np.bool_]:
    """Return the scheme's mask, (N,) bool; UsageError where it is none."""
    mask, tensors = np.asarray(scheme.mask(model)), len(model.trainable_variables)
    if mask.shape != (tensors,) or mask.dtype != bool or not mask.any():
        raise UsageError(
            f"{type(scheme).__name__}.mask gave {mask.dtype} of shape {mask.shape}; needed: bool of shape "
            f"({tensors},), in the order of model.trainable_weights, with one True at least."
        )
    return mask
