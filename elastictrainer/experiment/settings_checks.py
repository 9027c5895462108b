"""Settings that name nothing there is, or leave no room for each other."""

import dataclasses
import tempfile
from pathlib import Path
from typing import Sequence

from elastictrainer.errors import UsageError
from elastictrainer.experiment.settings import CommonSettings, TrainSettings
from elastictrainer.registry import takes_rho


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
    defaults = {field.name: field.default for field in dataclasses.fields(settings)}
    for name in ("replicas", "replica_network"):
        value = getattr(settings, name)
        if settings.strategy != "mirrored" and value != defaults[name]:
            raise UsageError(f"--{name.replace('_', '-')} {value} goes with --strategy mirrored alone.")
    if settings.optimizer == "adam" and settings.weight_decay not in (0, defaults["weight_decay"]):
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
