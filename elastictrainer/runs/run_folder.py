"""A run's folder: it owns every path in it, and knows what its files must hold."""

import contextlib
import json
import shlex
import shutil
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Union

import filelock
import jsonschema
import yaml

from elastictrainer.errors import UsageError, shortened
from elastictrainer.runs import ownership
from elastictrainer.runs.files import (
    append_line,
    loads,
    remove_unfinished,
    to_disk,
    write_json,
    write_text,
    yaml_values,
)

Record = Dict[str, Any]  # JSON's values by key

_NULLABLE = {"type": ["number", "null"], "minimum": -1e300, "maximum": 1e300}  # JSON's 1e999 is infinite
_NUMBER = {**_NULLABLE, "type": "number"}
_TEXT = {"type": "string", "maxLength": 4096}
_OBJECT = {"type": "object"}
_PART = {**_OBJECT, "required": ["count", "contents"]}
# What a key stands for, wherever in a run folder it stands, and which ones a file must have.
_NULLABLES = """
    rho interval seed keep batch_size image_size flops flops_total step predicted_ratio
    rho_requested rho_predicted rho_achieved energy_joules peak_rss_bytes kept_epoch train_seconds_total
    cached_share cache_bytes cache_write_seconds cache_read_seconds test_accuracy test_loss
    val_accuracy val_loss accuracy loss accuracy_best accuracy_last accuracy_old accuracy_new
    val_accuracy_last epochs accuracy_error evaluated_images test_images
"""
_NUMBERS = "train_seconds importance_seconds selection_seconds trace_seconds"
_KEYS: Dict[str, Record] = {
    **dict.fromkeys(_NULLABLES.split(), _NULLABLE),
    **dict.fromkeys([*_NUMBERS.split(), "epoch"], _NUMBER),
    **dict.fromkeys(
        "scheme model dataset weights optimizer activation_cache device directory".split(), _TEXT
    ),
    "class_names": {"type": "array", "items": _TEXT, "uniqueItems": True},
    "versions": _OBJECT,
    "threads": {**_OBJECT, "properties": {"processors": {"type": "integer"}}},
    "data": {
        **_OBJECT,
        "required": ["class_names", "train", "test"],
        "properties": {"train": _PART, "val": _PART, "test": _PART},
    },
    "selected": {"type": "array", "items": {"type": "integer", "minimum": 0}},
    "importance": {"type": "array", "items": _NUMBER},
    "kept_weights": _TEXT,
    "stopped": {**_TEXT, "type": ["string", "null"]},
}
_REQUIRED = {
    "config.yaml": ["scheme"],
    "environment.json": [],
    "metrics.jsonl": ["epoch"],
    "selections.jsonl": [],
    "summary.json": [*_NUMBERS.split(), "rho_requested", "rho_predicted", "rho_achieved"],
}
_SCHEMAS = {
    name: jsonschema.Draft202012Validator({**_OBJECT, "required": required, "properties": _KEYS})
    for name, required in _REQUIRED.items()
}


class RunFolder:
    """One run on disk: config, environment, metrics, selections, summary, events, checkpoints, model."""

    def __init__(self, path: Union[str, Path]):
        self.path = Path(path)
        self._lock_path = self.path / ".lock"
        self.config_path = self.path / "config.yaml"
        self.environment_path = self.path / "environment.json"
        self.metrics_path = self.path / "metrics.jsonl"
        self.selections_path = self.path / "selections.jsonl"
        self.summary_path = self.path / "summary.json"
        self.profile_path = self.path / "profile.json"
        self.checkpoints_path = self.path / "checkpoints"
        self.events_path = self.path / "events"
        self.model_path = self.path / "model.keras"
        self.best_path = self.path / "best.keras"
        self.kept_path = self.path / "kept"
        self.export_path = self.path / "export"

    @classmethod
    def create(cls, path: Union[str, Path], overwrite: bool = False) -> "RunFolder":
        """Create a new, empty run folder; `overwrite` removes what an earlier run wrote there."""
        run = cls(path)
        with run.claimed(overwrite):
            run.begin()
        return run

    @contextlib.contextmanager
    def claimed(
        self, overwrite: bool = False, resume: bool = False, needed: Sequence[Path] = ()
    ) -> Iterator[None]:
        """Lock the folder against every other process; a missing one is made, and nothing in it is changed.

        With `overwrite` it may hold an earlier run, but nothing that is `needed`; with `resume` it must.
        UsageError where another process has claimed it, it cannot be written, holds a run and neither is set,
        something else, or links.
        """
        if resume and not self.config_path.exists():
            raise UsageError(f"{self.path} is no run folder (no config.yaml): there is nothing to resume.")
        lock = filelock.FileLock(self._lock_path, timeout=0)  # the system unlocks when the process ends
        try:
            is_new = not self.path.exists()
            self.path.mkdir(parents=True, exist_ok=True)
            held = lock.acquire()
        except filelock.Timeout:
            raise UsageError(
                f"{self.path} is in use by another process: wait for it, or choose another --output."
            ) from None
        except (OSError, ValueError) as error:  # ValueError: a zero byte
            raise UsageError(
                f"cannot write to {str(self.path)[:200]}: {getattr(error, 'strerror', None) or error}. "
                + ("Make it writable." if resume else "Choose another --output.")
            ) from None
        with held:
            try:
                ownership.refuse_links(self.path)
                if ownership.is_marked(self.path):  # what a killed process has half written
                    remove_unfinished(self.path)
                if self._content() and not resume:
                    if not overwrite:
                        is_run = self.config_path.exists()
                        more = f", or go on with it: {self.resume_command}" if is_run else "."
                        raise UsageError(f"{self.path} exists. Choose another --output{more}")
                    ownership.refuse_to_replace(self.path, needed)
                yield
            finally:
                if is_new and not self._content() and not ownership.is_marked(self.path):
                    shutil.rmtree(self.path, ignore_errors=True)

    def begin(self) -> None:
        """Remove the files of an earlier run; from here on the folder is known as a run's."""
        self.path.mkdir(parents=True, exist_ok=True)
        ownership.mark(self.path)
        ownership.remove_own(self.path)
        to_disk(self.path)
        to_disk(self.path.parent)

    def _content(self) -> List[Path]:
        """Return everything in the folder but the lock and the marker."""
        own = (self._lock_path.name, ownership.MARKER)
        return [path for path in self.path.iterdir() if path.name not in own]

    def write_config(self, config: Record) -> None:
        """Write the resolved configuration, signed by this user."""
        text = yaml.safe_dump(config, sort_keys=False)
        ownership.mark(self.path, text.encode())
        write_text(self.config_path, text)

    def is_own(self) -> bool:
        """Return whether this user of this machine wrote the configuration, unchanged since."""
        return ownership.is_own(self.path, self.config_path.read_bytes())

    def write_environment(self, environment: Record) -> None:
        """Write versions, device, threads, seed."""
        write_json(self.environment_path, environment)

    def write_summary(self, summary: Record) -> None:
        """Write the run's result."""
        write_json(self.summary_path, summary)

    def add_metrics(self, record: Record) -> None:
        """Append the line of an epoch."""
        append_line(self.metrics_path, json.dumps(record, allow_nan=False))

    def add_selection(self, record: Record) -> None:
        """Append the line of a selection."""
        append_line(self.selections_path, json.dumps(record, allow_nan=False))

    def rewind(self, metrics: int, selections: int) -> None:
        """Cut the logs to their first lines, and remove the summary.

        A resumed run repeats what followed its checkpoint, and is not finished, even if it was before.
        """
        self.summary_path.unlink(missing_ok=True)
        for path, count in ((self.metrics_path, metrics), (self.selections_path, selections)):
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
            if len(lines) > count:
                write_text(path, "".join(lines[:count]))

    def weights_path(self, which: Optional[str] = None) -> Path:
        """Return the file of the "best" or "last" weights, None: of the best if any; UsageError for none."""
        if which == "best" and not self.best_path.exists():
            raise UsageError(
                f"{self.path} has no best weights (no {self.best_path.name}): it had no validation part to "
                "choose them by. Leave out --weights best."
            )
        if which == "best" or which is None and self.best_path.exists():
            return self.best_path
        if not self.model_path.exists():
            raise UsageError(f"{self.path} has no {self.model_path.name}: the run did not finish.")
        return self.model_path

    def config(self) -> Record:
        """Read the resolved configuration; UsageError where it is damaged."""
        config = yaml_values(self.config_path)
        _check(self.config_path, config)
        return config

    @property
    def resume_command(self) -> str:
        """Return the command that continues the run, to be typed into a shell."""
        return f"et-train --resume {shlex.quote(str(self.path))}"

    def environment(self) -> Record:
        """Read environment.json; empty where the file is missing, UsageError where it is damaged."""
        text = _text(self.environment_path)
        return {} if text is None else _parse(self.environment_path, text)

    def class_names(self) -> List[str]:
        """Return the classes of the run's model, by label; empty where it had not begun."""
        return self.environment().get("class_names") or []

    def summary(self) -> Record:
        """Read summary.json; UsageError where the run is not finished."""
        text = _text(self.summary_path)
        if text is None:
            raise UsageError(
                f"{self.path} has no summary.json: the run did not finish. "
                f"Go on with it: {self.resume_command}"
            )
        summary = _parse(self.summary_path, text)
        if "accuracy" not in summary and "accuracy_last" in summary:  # of an earlier version
            summary["accuracy"] = summary["accuracy_last"]
        return summary

    def metrics(self) -> List[Record]:
        """Read the lines of `metrics.jsonl`."""
        return _lines(self.metrics_path)

    def selections(self) -> List[Record]:
        """Read the lines of `selections.jsonl`."""
        return _lines(self.selections_path)


def spread(about: Record, times: float = 1) -> str:
    """Return the words behind an accuracy of which `about` says that it is of a sample; empty for all images.

    `times`: what its error is multiplied by, 100 for per cent.
    """
    if not about.get("accuracy_error"):
        return ""
    of = f" of {about['test_images']:,}" if about.get("test_images") else ""
    return f" +- {times * about['accuracy_error']:.2g} (95 %, on {about['evaluated_images']:,}{of} images)"


def _lines(path: Path) -> List[Record]:
    complete = (_text(path) or "").split("\n")[:-1]  # a power failure may have cut the last line short
    return [_parse(path, line) for line in complete]


def _text(path: Path) -> Optional[str]:
    """Read the text of a file; None where there is none, UsageError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read ({getattr(error, 'strerror', None) or 'no text'})."
        ) from None


def _parse(path: Path, text: str) -> Any:
    """Parse `text` of a run's file as JSON; UsageError where it is none, or of another kind."""
    try:
        value = loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is damaged ({shortened(str(error), 120)}): {text.strip()[:40]}") from None
    _check(path, value)
    return value


def _check(path: Path, value: Any) -> None:
    """Raise UsageError if `value` does not belong into a run's file of that name."""
    error = jsonschema.exceptions.best_match(_SCHEMAS[path.name].iter_errors(value))
    if error is not None:
        place = "/".join(map(str, error.absolute_path))
        raise UsageError(
            f"{path} is damaged ({place + ': ' if place else ''}{shortened(error.message, 120)})."
        )


def find_runs(paths: List[str]) -> List[RunFolder]:
    """Find the run folders at `paths`, in their order, each once; UsageError where a path is none."""
    found: Dict[Path, RunFolder] = {}
    for path in paths:
        found.setdefault(Path(path).resolve(), RunFolder(path))
    for run in found.values():
        if not run.config_path.exists():
            raise UsageError(
                f"{run.path} is no run folder (no config.yaml). Run folders are made by et-train."
            )
    return list(found.values())
