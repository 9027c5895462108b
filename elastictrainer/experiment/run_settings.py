"""The settings in a run folder: read if they name no code of a stranger's, and inherited (`--init-from`)."""

import dataclasses
from typing import Sequence

from elastictrainer.errors import UsageError
from elastictrainer.experiment.options import load
from elastictrainer.experiment.settings import TrainSettings, option_of
from elastictrainer.runs.run_folder import RunFolder


def load_trusted_settings(run: RunFolder, trust: bool) -> TrainSettings:
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


def inherit_settings(settings: TrainSettings, given: Sequence[str], trust: bool = False) -> TrainSettings:
    """Return `settings`, with those that describe the model replaced by the earlier run's.

    UsageError where there is no finished run at `init_from`, the options `given` on the command line have one
    that the earlier run decides, or as from `load_trusted_settings`.
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
    earlier = load_trusted_settings(run, trust)
    return dataclasses.replace(settings, **{name: getattr(earlier, name) for name in _SAVED_WITH_THE_MODEL})
