"""Settings that name nothing there is, leave no room for each other, or mean nothing for the model."""

import dataclasses
import tempfile
from pathlib import Path
from typing import Sequence

from elastictrainer.errors import UsageError
from elastictrainer.experiment.setting import option_of
from elastictrainer.experiment.settings import CommonSettings, TrainSettings
from elastictrainer.registry import MODEL, takes_rho
from elastictrainer.runs.log import LOG


def check_together(settings: TrainSettings) -> None:
    """Raise UsageError if one setting excludes another."""
    if settings.time and settings.deterministic:
        raise UsageError(
            "--time ends a run by the clock, --deterministic by its steps: leave one of them out."
        )
    if settings.time and settings.strategy != "none":
        raise UsageError("--time is for one process: with --strategy give --rho, or --epochs.")
    if settings.memory and ":" not in settings.scheme and not takes_rho(settings.scheme):
        raise UsageError(
            f"--memory {settings.memory} selects what fits, and {settings.scheme} selects nothing: leave it "
            "out, or take --scheme elastic."
        )
    if settings.memory and settings.deterministic:
        raise UsageError(
            "--memory leaves out what does not fit together with what is resident, which differs from run "
            "to run; --deterministic wants the same selections: leave one of them out."
        )
    if settings.memory and settings.strategy != "none":
        raise UsageError("--memory is for one process: leave it out, or --strategy.")
    (default_decay,) = (f.default for f in dataclasses.fields(settings) if f.name == "weight_decay")
    if settings.optimizer == "adam" and settings.weight_decay not in (0, default_decay):
        raise UsageError(
            f"adam has no --weight-decay ({settings.weight_decay:g}): leave it out, or take --optimizer "
            "adamw."
        )


def require_writable_cache(settings: TrainSettings) -> None:
    """Raise UsageError if no file can be made in the folder for cached activations."""
    if settings.reuse == "off" or not settings.reuse_dir:
        return
    try:
        Path(settings.reuse_dir).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=settings.reuse_dir):
            pass
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(
            f"--reuse-dir {settings.reuse_dir!r}: no file can be made there ({why}). Name another "
            "folder, or leave it out: the cache is in the run folder then."
        ) from None


def check_names(settings: CommonSettings, but: Sequence[str] = ()) -> None:
    """Refuse a setting whose value is the name of something that does not exist, before anything slow begins.

    Args:
        settings: a command's.
        but: fields that are not checked.

    Raises:
        UsageError: for the first such setting; the message lists the valid names.
    """
    for field in dataclasses.fields(settings):
        value, check_name = getattr(settings, field.name), field.metadata["check_name"]
        if check_name and value and field.name not in but:
            check_name(value)


_OF_BUILT_IN_MODELS = ("weights", "head_init", "augment", "rotation", "flip")
_OF_ANY = {"head_init": ("solve", "keep")}  # values that any model has a use for


def refuse_inapplicable(settings: CommonSettings, given: Sequence[str]) -> None:
    """Refuse settings that only a built-in model uses, where the model is not one.

    A settings file may have been written for another model than the one that the command line names: what it
    says of that model is left out, and a note says so. At its default a setting asks for nothing.

    Args:
        settings: of a new run or profile.
        given: the options that the command line set, as `options.given` returns them.

    Raises:
        UsageError: the command line, or the file that names the model, sets such a thing.
    """
    if settings.model in MODEL.names:
        return
    defaults = {field.name: field.default for field in dataclasses.fields(settings)}
    special = [name for name in _OF_BUILT_IN_MODELS if getattr(settings, name) not in _OF_ANY.get(name, ())]
    changed = [name for name in special if getattr(settings, name) != defaults[name]]
    typed = [option for option in map(option_of, special) if option in given]
    of_another = "--config" in given and "--model" in given
    refused = typed or ([] if of_another else [option_of(name) for name in changed])
    if refused:
        raise UsageError(
            f"{', '.join(refused)}: not for {settings.model}, a model of your own: its weights, head and "
            f"augmentation are as you made it. Leave {'it' if len(refused) == 1 else 'them'} out."
        )
    if changed:
        LOG.info(f"note: {', '.join(changed)} of the settings file: not for {settings.model}, and left out")
