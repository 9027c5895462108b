"""How a run starts or goes on: in which folder, and in how many processes.

TensorFlow is loaded when what is asked for has been checked.
"""

import dataclasses
import os
import re
import time
from typing import Any, Dict, Optional, Sequence

from elastictrainer.errors import UsageError
from elastictrainer.experiment.options import load
from elastictrainer.experiment.settings import TrainSettings, check_names
from elastictrainer.registry import takes_rho
from elastictrainer.runs.quiet import load_tensorflow
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.training import launcher

Summary = Optional[Dict[str, Any]]  # None where other processes trained, and showed it


def start(settings: TrainSettings, options: Sequence[str]) -> Summary:
    """Train as `settings` say, in a folder of their choice or a new one.

    Args:
        settings: of the run.
        options: the command line that they are from; other processes get it.
    """
    output = settings.output or _new_name(settings)
    if _starts_processes(settings):
        load_tensorflow()
        seen = launcher.devices(settings.replicas)
        launcher.train([[*options, "--output", output]] * len(seen), seen, output)
        return None
    run = RunFolder(output + _suffix(settings))
    with run.claimed(settings.overwrite):
        return _train(settings, run, resume=False)


def resume(run: RunFolder) -> Summary:
    """Go on with the run in a folder; if it is finished, say so and return its summary."""
    if run.config_path.exists() and not run.summary_path.exists():
        settings = load(TrainSettings, run.config_path)
        if _starts_processes(settings):
            load_tensorflow()
            seen = launcher.devices(settings.replicas)
            folders = [f"{run.path}{launcher.suffix(rank)}" for rank in range(len(seen))]
            launcher.train([["--resume", folder] for folder in folders], seen, str(run.path))
            return None
    with run.claimed(resume=True):
        if run.summary_path.exists():
            print(f"{run.path} is finished; there is nothing to resume.")
            return run.summary()
        settings = load(TrainSettings, run.config_path)
        if run.profile_path.exists():
            settings = dataclasses.replace(settings, profile=str(run.profile_path))
        try:
            check_names(settings)
            return _train(settings, run, resume=True)
        except UsageError as error:
            started_in = run.environment().get("directory")
            if started_in == os.getcwd():
                raise
            raise UsageError(f"{error} The run was started in {started_in}; resume it from there.") from None


def _train(settings: TrainSettings, run: RunFolder, resume: bool) -> Dict[str, Any]:
    load_tensorflow()
    from elastictrainer.experiment.run import train

    return train(settings, run, resume)


def _starts_processes(settings: TrainSettings) -> bool:
    """Whether this process only starts those that train."""
    return settings.strategy == "mirrored" and not launcher.is_replica()


def _suffix(settings: TrainSettings) -> str:
    """What tells the run folders of several workers from each other: nothing for the first."""
    if settings.strategy not in ("multi-worker", "mirrored"):
        return ""
    from elastictrainer.training.workers import task

    rank, _ = task()
    return launcher.suffix(rank)


def _new_name(settings: TrainSettings) -> str:
    """A name of a run folder that tells time, model, scheme and rho."""
    model, scheme = (
        re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") for name in (settings.model, settings.scheme)
    )
    rho = f"_rho{settings.rho:g}" if takes_rho(settings.scheme) else ""
    return f"runs/{time.strftime('%Y%m%d-%H%M%S')}_{model}_{scheme}{rho}"
