"""The start or continuation of a run: its folder and its processes.

TensorFlow is loaded when what is asked for has been checked.
"""

import contextlib
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

from elastictrainer.errors import UsageError
from elastictrainer.experiment.foreign_code import load_trusted_settings
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.experiment.settings_checks import check_names
from elastictrainer.registry import HF, takes_rho
from elastictrainer.runs import ownership
from elastictrainer.runs.quiet import load_tensorflow
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.training import launcher, private_network

_RUNS = "runs"
Summary = Optional[Dict[str, Any]]  # None where other processes trained, and showed it


def start(settings: TrainSettings, options: Sequence[str]) -> Summary:
    """Train as `settings` in a folder of their choice or a new one.

    Args:
        settings: of the run.
        options: the command line that they are from; other processes get it.
    """
    output = str(Path(settings.output or _new_name(settings)))  # no slash at its end: a suffix may follow
    if _starts_processes(settings):
        _train_in_processes(
            settings,
            lambda rank: [*options, "--output", output],
            output,
            weightless=settings.init_from is not None,
        )
        return None
    run = RunFolder(output + _suffix(settings))
    with run.claimed(settings.overwrite, needed=_read_by(settings)):
        return _train(settings, run, resume=False)


def resume(run: RunFolder, trust: bool = False, more: Optional[str] = None) -> Summary:
    """Go on with the run in a folder; if it is finished, say so and return its summary.

    Args:
        run: its folder.
        trust: its config may name code, whoever wrote it.
        more: time beyond what the run has taken, as of --time: a finished run goes on, too.

    Raises:
        UsageError: there is no run, its settings are wrong, they name code and are not this user's, or `more`
            is given to a run without --time.
    """
    if run.config_path.exists():
        settings = load_trusted_settings(run, trust)
        if more is not None and not settings.time:
            raise UsageError(
                f"--time {more}: {run.path} was not started with --time, and ends by --rho or --epochs: "
                "leave it out."
            )
    if run.config_path.exists() and not run.summary_path.exists():
        if _starts_processes(settings):
            trusted = ["--trust-run"] if trust else []
            _train_in_processes(
                settings,
                lambda rank: ["--resume", f"{run.path}{launcher.suffix(rank)}", *trusted],
                str(run.path),
                weightless=bool(settings.init_from or ownership.checkpoints(run.checkpoints_path)),
            )
            return None
    with run.claimed(resume=True):
        if run.summary_path.exists() and more is None:
            missing = _exports_missing(run, settings)
            if missing:
                load_tensorflow()
                from elastictrainer.models.export import export_run

                for path in export_run(run, missing, trust=settings.trust_model):
                    print(f"written: {path}")
            else:
                print(f"{run.path} is finished; there is nothing to resume.")
            return run.summary()
        try:
            check_names(settings)
            return _train(settings, run, resume=True, more=more)
        except UsageError as error:
            started_in = run.environment().get("directory")
            if started_in == os.getcwd():
                raise
            raise UsageError(f"{error} The run was started in {started_in}; resume it from there.") from None


def last_unfinished() -> RunFolder:
    """Return the unfinished run in `runs/` that was started last; UsageError without one."""
    runs = [RunFolder(config.parent) for config in Path(_RUNS).glob("*/config.yaml")]
    first = [run for run in runs if not re.search(r"-worker\d+$", run.path.name)]  # it starts the others
    unfinished = [run for run in first if not run.summary_path.exists()]
    if not unfinished:
        raise UsageError(f"--resume last: there is no unfinished run in {_RUNS}/.")
    return max(unfinished, key=lambda run: run.config_path.stat().st_mtime)


def _read_by(settings: TrainSettings) -> List[Path]:
    """Return the files and folders that a run reads."""
    named = (
        settings.dataset.removeprefix(HF),
        settings.data_dir,
        settings.model,
        settings.weights,
        settings.init_from,
        settings.profile,
        settings.meter,
    )
    return [Path(name) for name in named if name and Path(name).exists()]


def _exports_missing(run: RunFolder, settings: TrainSettings) -> List[str]:
    """List the formats that a finished run should have been exported in, but was interrupted before."""
    asked = settings.export.split(",") if settings.export else []
    return [f for f in asked if not (run.export_path / ownership.EXPORTS[f]).exists()]


def _train(
    settings: TrainSettings, run: RunFolder, resume: bool, more: Optional[str] = None
) -> Dict[str, Any]:
    load_tensorflow()
    from elastictrainer.experiment.run import train

    return train(settings, run, resume, more)


def _starts_processes(settings: TrainSettings) -> bool:
    """Return whether this process only starts those that train."""
    return settings.strategy == "mirrored" and not launcher.is_replica()


def _train_in_processes(
    settings: TrainSettings, command: Callable[[int], List[str]], run: str, weightless: bool
) -> None:
    """Train in a process for each device.

    Args:
        settings: of the run.
        command: the arguments of a process by its number.
        run: path of the run folder.
        weightless: the network's weights come from a run, not from where the settings say.
    """
    load_tensorflow()
    from elastictrainer.experiment.assembly import fetch

    seen = launcher.devices(settings.replicas)
    with contextlib.ExitStack() as stack:
        network, why_not = None, "as --replica-network asks"
        if settings.replica_network == "private":
            fetch(replace(settings, weights="none") if weightless else settings)
            network, why_not = stack.enter_context(private_network.opened())
        if network is None:
            print(
                f"note: the replicas have no network of their own ({why_not}): while they train, whoever "
                "reaches this machine over a network can command TensorFlow's server. Keep others out."
            )
        launcher.train([command(rank) for rank in range(len(seen))], seen, run, network=network)


def _suffix(settings: TrainSettings) -> str:
    """Return a suffix that makes run folders of several workers differ; empty for the first."""
    if settings.strategy not in ("multi-worker", "mirrored"):
        return ""
    from elastictrainer.training.workers import task

    rank, _, _ = task()
    return launcher.suffix(rank)


def _new_name(settings: TrainSettings) -> str:
    """Make a name for a run folder from time, model, scheme and rho."""
    model, scheme = (
        re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") for name in (settings.model, settings.scheme)
    )
    rho = f"_rho{settings.rho:g}" if takes_rho(settings.scheme) else ""
    return f"{_RUNS}/{time.strftime('%Y%m%d-%H%M%S')}_{model}_{scheme}{rho}"
