"""The policy of a run, made from its scheme, its model and its profile."""

import functools
import itertools
from typing import Any, Callable, Iterator, Optional

import numpy as np

from elastictrainer.errors import UsageError
from elastictrainer.profiler.profile import Profile
from elastictrainer.runs import resident
from elastictrainer.selection.importance import ImportanceEvaluator
from elastictrainer.selection.plan import Plan
from elastictrainer.selection.policy import ElasticPolicy, Log, Policy
from elastictrainer.selection.schemes import Scheme
from elastictrainer.selection.settings import SelectionSettings, check_tensors
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import CompiledSteps
from elastictrainer.training.memory import MemoryLimit


def make_policy(
    scheme: Scheme,
    settings: SelectionSettings,
    profile: Optional[Profile],
    plan: Plan,
    steps: CompiledSteps,
    probe: Callable[[int], Iterator[Any]],
    log: Log,
    scorer: Optional[ImportanceEvaluator] = None,
    limit: Optional[MemoryLimit] = None,
) -> Policy:
    """Make the policy that `scheme` asks for.

    Args:
        scheme: chooses the tensors to train.
        settings: how many minibatches tensors are scored on.
        profile: the model's profile; None only where the scheme does not select.
        plan: when the intervals begin.
        steps: the compiled steps; model and optimizer are theirs, and the optimizer is built.
        probe: from the number of the interval to the probe minibatches, on which the tensors are scored.
        log: takes the record of each selection.
        scorer: scores the tensors, by the scheme's metric; None: one is made.
        limit: of memory; None: any. The graphs of scoring, and those of old selections, are freed within it.

    Raises:
        UsageError: no profile where one is needed, or that of another model.
    """
    model, optimizer = steps.objective.model, steps.optimizer
    tensors = len(model.trainable_variables)
    if profile is not None:
        check_tensors(profile, tensors)
    if not scheme.selects:
        at_interval = functools.partial(scheme.at_interval, model, optimizer)
        return Policy(_checked(scheme, model, tensors), plan, profile, at_interval, log)
    if profile is None:
        raise UsageError(
            "an elastic scheme needs the model's profile: pass profile, from profile_model or et-profile."
        )
    scorer = scorer or make_scorer(scheme, steps)
    if limit is not None:
        probe = limit.shortened(probe)
    optimizers.prepare_freezing(optimizer, model.trainable_variables)

    def free() -> None:
        if limit is not None:
            steps.clear()
            scorer.release()
            resident.release_memory()

    def score(interval: int) -> np.ndarray:
        free()
        minibatches = itertools.islice(repeated(probe, interval), settings.importance_batches)
        importance = scorer(minibatches, None if limit is None else limit.weights_folder)
        free()
        return importance

    def reset_frozen(mask: np.ndarray) -> None:
        optimizers.reset_slots(optimizer, list(itertools.compress(model.trainable_variables, ~mask)))

    return ElasticPolicy(
        profile,
        plan,
        score,
        needs_scores=scheme.needs_scores,
        solver=scheme.solver or "dp",
        on_freeze=reset_frozen,
        log=log,
        memory=None if limit is None else limit.step_bytes,
    )


def make_scorer(scheme: Scheme, steps: CompiledSteps) -> ImportanceEvaluator:
    """Make what scores tensors by the metric of `scheme`; it compiles its graphs once."""
    assert scheme.importance_metric is not None
    return ImportanceEvaluator(
        steps.objective, steps.optimizer, scheme.importance_metric, steps, momentum=False
    )


def _checked(scheme: Scheme, model: Any, tensors: int) -> np.ndarray:
    """Return the scheme's mask, (N,) bool; UsageError where it is none."""
    mask = np.asarray(scheme.mask(model))
    if mask.shape != (tensors,) or mask.dtype != bool or not mask.any():
        raise UsageError(
            f"{type(scheme).__name__}.mask gave {mask.dtype} of shape {mask.shape}; needed: bool of shape "
            f"({tensors},), in the order of model.trainable_weights, with one True at least."
        )
    return mask


def repeated(probe: Callable[[int], Iterator[Any]], number: int) -> Iterator[Any]:
    """Repeat the minibatches that `probe` gives without end; UsageError where it gives none."""
    while True:
        minibatches = iter(probe(number))
        first = next(minibatches, None)
        if first is None:
            raise UsageError("the probe gave no minibatch: it must give them again each time it is called.")
        yield first
        yield from minibatches
