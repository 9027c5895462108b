"""A run's folder: it owns every path in it."""

import json
import shutil
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Union

import yaml

from elastictrainer.errors import UsageError
from elastictrainer.files import write_json, write_text, written_beside


class RunFolder:
    """Writes and reads one run: config, environment, metrics, selections, summary, events, checkpoints, model."""

    def __init__(self, path: Union[str, Path]):
        self.path = Path(path)

    @classmethod
    def create(cls, path: Union[str, Path], overwrite: bool = False) -> "RunFolder":
        """A new, empty run folder.

        Raises:
            UsageError: it exists and `overwrite` is off, is no run folder, or cannot be written.
        """
        run = cls(path)
        if run.check_free(overwrite):
            shutil.rmtree(run.path)
        try:
            run.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot create {run.path}: {error.strerror}. Choose another --output.") from None
        return run

    def check_free(self, overwrite: bool = False) -> bool:
        """Whether an earlier run stands here that may be replaced; UsageError where something stands that may not."""
        if not self.path.exists() or (self.path.is_dir() and not any(self.path.iterdir())):
            return False
        if not overwrite:
            raise UsageError(f"{self.path} exists. Choose another --output, or replace it with --overwrite.")
        if not self.config_path.exists():
            raise UsageError(f"{self.path} is not a run folder; it will not be overwritten.")
        return True

    config_path = property(lambda self: self.path / "config.yaml")
    environment_path = property(lambda self: self.path / "environment.json")
    metrics_path = property(lambda self: self.path / "metrics.jsonl")
    selections_path = property(lambda self: self.path / "selections.jsonl")
    summary_path = property(lambda self: self.path / "summary.json")
    profile_path = property(lambda self: self.path / "profile.json")
    checkpoints_path = property(lambda self: self.path / "checkpoints")
    events_path = property(lambda self: self.path / "events")
    model_path = property(lambda self: self.path / "model.keras")

    def write_config(self, config: Dict[str, Any]) -> None:
        """The resolved configuration."""
        write_text(self.config_path, yaml.safe_dump(config, sort_keys=False))

    def write_environment(self, environment: Dict[str, Any]) -> None:
        """Versions, device, threads, seed."""
        write_json(self.environment_path, environment)

    def write_summary(self, summary: Dict[str, Any]) -> None:
        """The run's result."""
        write_json(self.summary_path, summary)

    def add_metrics(self, record: Dict[str, Any]) -> None:
        """One line per epoch."""
        _append(self.metrics_path, record)

    def add_selection(self, record: Dict[str, Any]) -> None:
        """One line per selection."""
        _append(self.selections_path, record)

    def save_model(self, model: Any) -> None:
        """The fine-tuned model in Keras' own format, whole or not at all."""
        with written_beside(self.model_path) as beside:
            model.save(beside)

    def summary(self) -> Dict[str, Any]:
        """What `write_summary` wrote; UsageError where the run is not finished."""
        try:
            return json.loads(self.summary_path.read_text(encoding="utf-8"))
        except OSError:
            raise UsageError(f"{self.path} has no summary.json: no run folder, or the run did not finish.") from None

    def metrics(self) -> List[Dict[str, Any]]:
        """The lines of `metrics.jsonl`."""
        return list(_lines(self.metrics_path))

    def selections(self) -> List[Dict[str, Any]]:
        """The lines of `selections.jsonl`."""
        return list(_lines(self.selections_path))


def _append(path: Path, record: Dict[str, Any]) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(record, allow_nan=False) + "\n")


def _lines(path: Path) -> Iterator[Dict[str, Any]]:
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


def find_runs(paths: List[str]) -> List[RunFolder]:
    """A run folder for each path; UsageError for one that is none."""
    runs = [RunFolder(p) for p in paths]
    for run in runs:
        if not run.config_path.exists():
            raise UsageError(f"{run.path} is no run folder (no config.yaml). Run folders are made by et-train.")
    return runs
