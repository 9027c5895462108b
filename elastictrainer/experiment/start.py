"""The start or continuation of a run, and its folder.

TensorFlow is loaded when what is asked for has been checked.
"""

import os
import re
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

from elastictrainer.errors import UsageError
from elastictrainer.experiment.run_settings import load_trusted_settings
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.experiment.settings_checks import check_values
from elastictrainer.registry import EXPORT_FILES, HF
from elastictrainer.runs.environment import load_tensorflow
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.selection import schemes

_RUNS = "runs"


def start(settings: TrainSettings) -> Dict[str, Any]:
    """Train as `settings` in a folder of their choice or a new one; return its summary."""
    run = RunFolder(settings.output or _new_name(settings))
    with run.claimed(settings.overwrite, needed=_inputs_of(settings)):
        return _train(settings, run, resume=False)


def resume(run: RunFolder, trust: bool = False, extra_time: Optional[str] = None) -> Dict[str, Any]:
    """Go on with the run in a folder; if it is finished, say so and return its summary.

    With `trust` its config may name code, whoever wrote it. `extra_time` is beyond what the run has taken, as
    of --time: a finished run goes on, too.
    """
    if run.config_path.exists():
        settings = load_trusted_settings(run, trust)
        if extra_time is not None and not settings.time:
            raise UsageError(
                f"--time {extra_time}: {run.path} was not started with --time, and ends by --rho or "
                "--epochs: leave it out."
            )
    with run.claimed(resume=True):
        if run.summary_path.exists() and extra_time is None:
            _finish_exports(run, settings)
            return run.summary()
        try:
            check_values(settings)
            return _train(settings, run, resume=True, extra_time=extra_time)
        except UsageError as error:
            started_in = run.environment().get("directory")
            if started_in == os.getcwd():
                raise
            raise UsageError(f"{error} The run was started in {started_in}; resume it from there.") from None


def last_unfinished() -> RunFolder:
    """Return the unfinished run in `runs/` that was started last; UsageError without one."""
    runs = [RunFolder(config.parent) for config in Path(_RUNS).glob("*/config.yaml")]
    unfinished = [run for run in runs if not run.summary_path.exists()]
    if not unfinished:
        raise UsageError(f"--resume last: there is no unfinished run in {_RUNS}/.")
    return max(unfinished, key=lambda run: run.config_path.stat().st_mtime)


def _inputs_of(settings: TrainSettings) -> List[Path]:
    """Return the files and folders that a run reads."""
    model, data = (settings.model, settings.weights, settings.init_from), settings.dataset.removeprefix(HF)
    named = (data, settings.data_dir, *model, settings.profile)
    return [Path(name) for name in named if name and Path(name).exists()]


def _finish_exports(run: RunFolder, settings: TrainSettings) -> None:
    """Export a finished run in the formats that an interruption prevented."""
    missing = [f for f in settings.export_formats if not (run.export_path / EXPORT_FILES[f]).exists()]
    if not missing:
        print(f"{run.path} is finished; there is nothing to resume.")
        return
    load_tensorflow()
    from elastictrainer.experiment.exporting import export_run

    for path in export_run(run, missing, trust=settings.trust_model):
        print(f"written: {path}")


def _train(
    settings: TrainSettings, run: RunFolder, resume: bool, extra_time: Optional[str] = None
) -> Dict[str, Any]:
    load_tensorflow()
    from elastictrainer.experiment.run import train

    return train(settings, run, resume, extra_time)


def _new_name(settings: TrainSettings) -> str:
    """Make a name for a run folder from time, model, scheme and rho."""
    model, scheme = (
        re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") for name in (settings.model, settings.scheme)
    )
    rho = f"_rho{settings.rho:g}" if schemes.selects(settings.scheme) else ""
    return f"{_RUNS}/{time.strftime('%Y%m%d-%H%M%S')}_{model}_{scheme}{rho}"
