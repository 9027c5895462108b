"""A profile as a JSON file: its keys, its JSON Schema, and errors that name the file."""

import json
import shlex
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Callable, Dict, TypeVar, Union

import numpy as np

from elastictrainer.errors import UsageError, shortened
from elastictrainer.profiler.cache_costs import CacheCosts
from elastictrainer.profiler.cost_groups import CostGroups
from elastictrainer.profiler.step_memory import StepMemory

FORMAT = "elastictrainer-profile"
VERSION = 1  # raised by a change after which an older program would misread a file
_Profile = TypeVar("_Profile")


def read(path: Union[str, Path], make: Callable[[Any], _Profile]) -> _Profile:
    """Read the JSON value in a file, and return the result of `make` of it.

    Raises:
        UsageError: the file is missing, is no profile, or is damaged; the message names it.
    """
    again = "Make a new one: et-profile --model MODEL --profile " + shlex.quote(str(path))
    try:
        return make(json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_refuse_constant))
    except OSError as error:
        problem = f"{error.strerror}."
    except UsageError as error:
        problem = str(error)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError) as error:
        problem = f"damaged, or no profile ({type(error).__name__}: {error})."
    raise UsageError(f"cannot read the profile {path}: {problem} {again}")


def to_json(profile: Any) -> Dict[str, Any]:
    """Return a profile (Profile) as plain JSON values. Derived times are for people; `fields` ignores
    them.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "metadata": profile.metadata,
        "full_ms": profile.full_ms,
        "forward_ms": profile.forward_ms,
        "frozen_saving": profile.frozen_saving,
        "overlap": profile.overlap,
        "rho_min": profile.rho_min,
        "tensors": [
            {
                "name": name,
                "shape": list(shape),
                "t_forward": float(profile.t_forward[i]),
                "t_dw": float(profile.t_dw[i]),
                "t_dy": float(profile.t_dy[i]),
                "t_update": float(profile.t_update[i]),
                "connected": bool(profile.connected[i]),
                "estimated": bool(profile.estimated[i]),
            }
            for i, (name, shape) in enumerate(zip(profile.names, profile.shapes))
        ],
        "groups": {key: getattr(profile, key).to_json() for key in ("dw", "dy", "forward")},
        "flops": None if profile.flops is None else profile.flops.to_json("flops"),
        "cache": profile.cache and profile.cache.to_json(),
        "memory": profile.memory and profile.memory.to_json(),
        "validation": profile.validation,
    }


def fields(value: Any) -> Dict[str, Any]:
    """Read the fields of the Profile that `to_json` wrote; UsageError where the schema refuses it."""
    import jsonschema

    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise UsageError("this JSON is not an ElasticTrainer profile.")
    if value.get("version") != VERSION:
        raise UsageError(
            f"the profile has version {value.get('version')}, this program reads version {VERSION}."
        )
    error = jsonschema.exceptions.best_match(_validator().iter_errors(value))
    if error is not None:
        place = "/".join(str(step) for step in error.absolute_path)
        raise UsageError(f"{place + ': ' if place else ''}{shortened(error.message, 200)}.")
    tensors = value["tensors"]
    n = len(tensors)
    if not n:
        raise UsageError("the profile lists no tensor.")
    return dict(
        names=tuple(t["name"] for t in tensors),
        shapes=tuple(tuple(t["shape"]) for t in tensors),
        **{key: CostGroups.from_json(n, value["groups"][key]) for key in ("dw", "dy", "forward")},
        t_update=np.array([t["t_update"] for t in tensors], np.float64),
        connected=np.array([t["connected"] for t in tensors], bool),
        estimated=np.array([t["estimated"] for t in tensors], bool),
        frozen_saving=float(value["frozen_saving"]),
        overlap=float(value.get("overlap", 0.0)),
        flops=CostGroups.from_json(n, value["flops"], "flops") if value.get("flops") else None,
        cache=CacheCosts.from_json(n, value["cache"]) if value.get("cache") else None,
        memory=StepMemory.from_json(n, value["memory"]) if value.get("memory") else None,
        metadata=value["metadata"],
        validation=value["validation"],
    )


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")


@lru_cache(maxsize=1)
def _validator() -> Any:
    import jsonschema

    schema = resources.files("elastictrainer").joinpath("assets/profile.schema.json")
    return jsonschema.Draft202012Validator(json.loads(schema.read_text(encoding="utf-8")))
