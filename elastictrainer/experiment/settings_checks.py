"""Settings that name nothing there is, leave no room for each other, or mean nothing for the model."""

import dataclasses
import tempfile
from pathlib import Path
from typing import Sequence

from elastictrainer.errors import UsageError
from elastictrainer.experiment.settings import CommonSettings, TrainSettings, option_of
from elastictrainer.registry import MODEL
from elastictrainer.runs.log import LOG
from elastictrainer.selection import schemes


def check_together(settings: TrainSettings) -> None:
    """Raise UsageError if one setting excludes another."""
    if settings.time and settings.deterministic:
        raise UsageError(
            "--time ends a run by the clock, --deterministic by its steps: leave one of them out."
        )
    if settings.memory and settings.deterministic:
        raise UsageError(
            "--memory selects by what is resident, which differs from run to run; --deterministic wants the "
            "same selections: leave one of them out."
        )
    if settings.memory and schemes.selects(settings.scheme) is False:
        raise UsageError(
            f"--memory {settings.memory} selects what fits, and {settings.scheme} selects nothing: leave it "
            "out, or take --scheme elastic."
        )
    if settings.scheme == "head-alone" and settings.head_init != "solve":
        raise UsageError(
            f"--scheme head-alone solves the head, and --head-init {settings.head_init} leaves it: leave one "
            "of them out."
        )
    if settings.optimizer == "adam" and settings.weight_decay not in (0, TrainSettings.weight_decay):
        raise UsageError(
            f"adam has no --weight-decay ({settings.weight_decay:g}): leave it out, or take --optimizer "
            "adamw."
        )


def require_writable(folder: Path, culprit: str) -> None:
    """Raise UsageError, naming the `culprit`, if no file can be made in a folder, existing or not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{culprit}: no file can be made in {folder} ({why}). Name another.") from None


def check_values(settings: CommonSettings, but: Sequence[str] = ()) -> None:
    """Raise UsageError for a setting, `but` these, that names something that does not exist."""
    for field in dataclasses.fields(settings):
        value, check = getattr(settings, field.name), field.metadata["check"]
        if check and value and field.name not in but:
            check(value)


_OF_BUILT_IN_MODELS = ("weights", "head_init", "augment", "rotation", "flip")
_OF_ANY = {"head_init": ("solve", "keep")}  # values that any model has a use for


def refuse_inapplicable(settings: CommonSettings, given: Sequence[str]) -> None:
    """Refuse settings that only a built-in model uses, where the model is not one.

    A settings file may have been written for another model than the one that the command line names: what it
    says of that model is left out, and a note says so. At its default a setting asks for nothing.

    Args:
        settings: of a new run or profile.
        given: the options that the command line set, as `options.given` returns them.
    """
    if settings.model in MODEL.names:
        return
    special = [name for name in _OF_BUILT_IN_MODELS if getattr(settings, name) not in _OF_ANY.get(name, ())]
    changed = [name for name in special if getattr(settings, name) != getattr(CommonSettings, name)]
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
