"""Captions of pictures: model, data set and device in the title, and the unit of times."""

import re
from pathlib import PurePath
from typing import Any, Dict, List, NamedTuple, Sequence

from elastictrainer.runs.run_folder import RunFolder

_LONGEST = 32  # letters of a name
_SYSTEM = re.compile(r" \((x86_64|amd64|aarch64|arm64|armv\w+|i\d86)\)$", re.IGNORECASE)
_ADVERTISING = re.compile(r"\((R|TM)\)|\bCPU\b|\bProcessor\b|\b\d+-Core\b|@.*$", re.IGNORECASE)


def cut_to(name: str, most: int = _LONGEST) -> str:
    """Shorten a name to at most `most` letters by leaving out its middle."""
    return name if len(name) <= most else f"{name[:8]}..{name[10 - most :]}"


class TimeUnit(NamedTuple):
    """A unit that gives a picture's times two to four digits."""

    name: str
    seconds: float


def time_unit(longest_s: float) -> TimeUnit:
    """Return the unit for times up to `longest_s` seconds."""
    if longest_s <= 600:
        return TimeUnit("s", 1.0)
    return TimeUnit("min", 60.0) if longest_s <= 7200 else TimeUnit("h", 3600.0)


def set_title(axes: Any, what: str, about: str, pad: float = 6) -> None:
    """Write two lines, `pad` points above `axes`: the picture's content, and its subject."""
    axes.set_title(f"{what}\n{about}" if about else what, fontsize=10, pad=pad)


def subject(runs: Sequence[RunFolder]) -> str:
    """Return model, data set and device of `runs`, such as "mobilenetv2 on birds, AMD EPYC (2 cores)"."""
    configs = [run.config() for run in runs]
    model = _together([model_name(c.get("model")) for c in configs], "models")
    data = _together([data_name(c.get("dataset")) for c in configs], "data sets")
    device = _together([device_name(run.environment()) for run in runs], "devices")
    return ", ".join(filter(None, (" on ".join(filter(None, (model, data))), device)))


def profile_subject(metadata: Dict[str, Any]) -> str:
    """Return model, image size, batch and device of a profile, by its metadata."""
    shape, batch = metadata.get("input_shape"), metadata.get("batch_size")
    parts = [
        model_name(metadata.get("model")) or "model",
        f"{shape[0]}x{shape[1]}" if isinstance(shape, list) and len(shape) == 3 else "",
        f"batch {batch}" if batch else "",
        device_name(metadata),
    ]
    return ", ".join(filter(None, parts))


def model_name(model: Any) -> str:
    """Return a model's name without folders and the file's ending."""
    name = str(model or "")
    return cut_to(PurePath(name).stem if name.endswith(".keras") else name)


def data_name(dataset: Any) -> str:
    """Return a data set's name without folders; of one of tensorflow-datasets the name, not its version."""
    path = PurePath(str(dataset or ""))
    return cut_to(path.parent.name if re.fullmatch(r"\d+\.\d+\.\d+", path.name) else path.name)


def device_name(environment: Dict[str, Any]) -> str:
    """Return the name of a processor and its cores in use, or of a GPU, by `environment.json`; or nothing."""
    recorded = str(environment.get("device") or "")
    name = re.sub(r"\s+", " ", _ADVERTISING.sub("", _SYSTEM.sub("", recorded))).strip()
    threads = environment.get("threads")
    cores = threads.get("processors") if isinstance(threads, dict) else None
    if not cores or not _SYSTEM.search(recorded):
        return cut_to(name)
    return f"{cut_to(name) or recorded} ({cores} core{'' if cores == 1 else 's'})"


def _together(names: List[str], plural: str) -> str:
    """Return the different ones among `names`, or how many there are."""
    different = list(dict.fromkeys(filter(None, names)))
    return " and ".join(different) if len(different) <= 2 else f"{len(different)} {plural}"
