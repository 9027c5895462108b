"""Settings that mean nothing for a model of the user's own: refused, not ignored."""

import dataclasses
from typing import Sequence

from elastictrainer.errors import UsageError
from elastictrainer.experiment.settings import CommonSettings
from elastictrainer.registry import MODEL
from elastictrainer.runs.log import LOG

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
    typed = [option for option in map(_option, special) if option in given]
    of_another = "--config" in given and "--model" in given
    refused = typed or ([] if of_another else [_option(name) for name in changed])
    if refused:
        raise UsageError(
            f"{', '.join(refused)}: not for {settings.model}, a model of your own: its weights, head and "
            f"augmentation are as you made it. Leave {'it' if len(refused) == 1 else 'them'} out."
        )
    if changed:
        LOG.info(f"note: {', '.join(changed)} of the settings file: not for {settings.model}, and left out")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
