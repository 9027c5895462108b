"""The start or continuation of a run, and its folder.

TensorFlow is loaded when what is asked for has been checked.
"""

import contextlib
import dataclasses
import itertools
import os
import re
import shutil
import time
from pathlib import Path
from typing import Iterator, List, Optional

from elastictrainer.errors import UsageError
from elastictrainer.experiment.options import check, load_trusted, require_writable
from elastictrainer.experiment.settings import TrainSettings, asked_rho
from elastictrainer.registry import EXPORT_FILES, HF
from elastictrainer.runs.environment import load_tensorflow
from elastictrainer.runs.log import LOG
from elastictrainer.runs.run_folder import Record, RunFolder

_RUNS = "runs"


def start(settings: TrainSettings) -> Record:
    """Train as `settings`, checked here, in a folder of their choice or a new one; return its summary."""
    check(settings)
    # A resumed run goes on without a cache where the folder is gone.
    if settings.activation_cache_dir and settings.activation_cache != "off":
        require_writable(
            Path(settings.activation_cache_dir), f"--activation-cache-dir {settings.activation_cache_dir!r}"
        )
    with _folder(settings) as run, run.claimed(settings.overwrite, needed=_inputs_of(settings)):
        return _train(settings, run, resume=False)


def resume(run: RunFolder, trust: bool = False, extra_time: Optional[str] = None) -> Record:
    """Go on with the run in a folder; if it is finished, say so and return its summary.

    With `trust` its config may name code, whoever wrote it. `extra_time` is beyond what the run has taken, as
    of --time: a finished run goes on, too.
    """
    with run.claimed(resume=True):
        settings = load_trusted(run, trust)
        if extra_time is not None and not settings.time:
            raise UsageError(
                f"--time {extra_time}: {run.path} was not started with --time, and ends by --rho or "
                "--epochs: leave it out."
            )
        if run.summary_path.exists() and extra_time is None:
            _finish_exports(run, settings)
            return run.summary()
        try:
            check(settings)
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
        LOG.info(f"{run.path} is finished; there is nothing to resume.")
        return
    load_tensorflow()
    from elastictrainer.experiment.exporting import export_run

    for path in export_run(run, missing, trust=settings.trust_model):
        LOG.info(f"written: {path}")


def _train(settings: TrainSettings, run: RunFolder, resume: bool, extra_time: Optional[str] = None) -> Record:
    load_tensorflow()
    from elastictrainer.experiment.run import train

    return train(settings, run, resume, extra_time)


@contextlib.contextmanager
def _folder(settings: TrainSettings) -> Iterator[RunFolder]:
    """Give the run folder that the settings name, or a new one, which is removed where it stays empty."""
    if settings.output:
        yield RunFolder(settings.output)
        return
    asked, rho = f"_{settings.time}" if settings.time else "", asked_rho(dataclasses.asdict(settings))
    if rho is not None:
        asked = f"_rho{rho:g}"
    words = (settings.model, settings.scheme, asked)
    model, scheme, asked = (re.sub(r"[^A-Za-z0-9.]+", "-", word).strip("-.") for word in words)
    name = "_".join(filter(None, (time.strftime("%Y%m%d-%H%M%S"), model, scheme, asked)))
    for number in itertools.count(1):
        path = Path(_RUNS) / (name if number == 1 else f"{name}_{number}")
        try:
            path.mkdir(parents=True)
            break
        except FileExistsError:
            continue  # another run began in this second
        except OSError:
            break  # to claim it says why
    try:
        yield RunFolder(path)
    finally:
        if path.is_dir() and {inside.name for inside in path.iterdir()} <= {".lock"}:
            shutil.rmtree(path, ignore_errors=True)
