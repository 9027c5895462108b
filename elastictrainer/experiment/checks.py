"""What is asked for, checked before TensorFlow is loaded: settings, and those that come from a run folder."""

import dataclasses
import tempfile
from pathlib import Path
from typing import Sequence

from elastictrainer.errors import UsageError
from elastictrainer.experiment.options import load
from elastictrainer.experiment.settings import (
    CommonSettings,
    ProfileSettings,
    TrainSettings,
    option_of,
    options_of,
)
from elastictrainer.registry import MODEL
from elastictrainer.runs.log import LOG
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.selection import schemes


def check(settings: CommonSettings) -> None:
    """Raise UsageError for a setting that names something that does not exist, or excludes another one."""
    without_data = isinstance(settings, ProfileSettings) and settings.classes  # it needs no image
    for name, option in options_of(settings).items():
        value = getattr(settings, name)
        if value and not (without_data and name == "dataset"):
            option.check_value(value)
    if settings.mixed_precision and settings.model.endswith(".keras"):
        raise UsageError(
            f"--mixed-precision: {settings.model} says itself what each layer computes in. Leave it out, or "
            "make the model by a function (--model package.module:function)."
        )
    if isinstance(settings, TrainSettings):
        _check_together(settings)


def _check_together(settings: TrainSettings) -> None:
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


def load_trusted(run: RunFolder, trust: bool) -> TrainSettings:
    """Load a run folder's settings; UsageError where they name code, and are not this user's nor trusted."""
    settings = load(TrainSettings, run.config_path)
    named = [
        f"{name}: {getattr(settings, name)}" for name in ("scheme", "model") if ":" in getattr(settings, name)
    ]
    named += [f"callback: {settings.callback}"] if settings.callback else []
    named += ["trust_model: true"] if settings.trust_model else []
    if named and not trust and not run.is_own():
        raise UsageError(
            f"{run.config_path} names code to run ({', '.join(named)}), and was not written by you on this "
            "machine, or was changed since. If you trust where it is from: --trust-run."
        )
    return settings


# The saved model contains the layers that these settings describe.
_SAVED_WITH_THE_MODEL = ("model", "image_size", "augment", "rotation", "flip", "mixed_precision")
_REFUSED = (*_SAVED_WITH_THE_MODEL, "weights", "head_init")


def inherit(settings: TrainSettings, given: Sequence[str], trust: bool = False) -> TrainSettings:
    """Return `settings`, with those that describe the model replaced by the earlier run's.

    UsageError where there is no finished run at `init_from`, the options `given` on the command line have one
    that the earlier run decides, or as from `load_trusted`.
    """
    run = RunFolder(settings.init_from or "")
    if not run.model_path.exists() or not run.config_path.exists():
        raise UsageError(
            f"--init-from {settings.init_from}: there is no finished run "
            f"(no {run.model_path.name} and {run.config_path.name})."
        )
    refused = [option for option in map(option_of, _REFUSED) if option in given]
    if refused:
        raise UsageError(
            f"--init-from takes model and weights from {settings.init_from}; leave out {', '.join(refused)}."
        )
    earlier = load_trusted(run, trust)
    return dataclasses.replace(settings, **{name: getattr(earlier, name) for name in _SAVED_WITH_THE_MODEL})
