"""A YAML file of `key: value` lines, read so that nothing in it surprises: each key once, single values.

YAML's own reading of plain words (`off` is false, `010` is eight, `1:30` is ninety) is left to whoever knows
what a key stands for: `texts` gives values as they stand in the file.
"""

from pathlib import Path
from typing import Any, Dict, Optional, Union

import yaml

from elastictrainer.errors import UsageError, shortened

_LARGEST = 100_000  # bytes; a line for each setting is a fraction, and more would take seconds to read
_SCALARS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "timestamp")}


def texts(path: Union[str, Path]) -> Dict[str, Optional[str]]:
    """Return values by key as they stand in the file; None for a value that is empty or `null`.

    Raises:
        UsageError: the file cannot be read, is no such file, or has a key twice.
    """
    nodes = _scalars(Path(path))
    return {key: None if node.tag.endswith(":null") else node.value for key, node in nodes.items()}


def values(path: Union[str, Path]) -> Dict[str, Any]:
    """Return values by key as YAML takes them, for files that this program wrote; raises as `texts`."""
    nodes, construct = _scalars(Path(path)), yaml.SafeLoader("").construct_object
    try:
        return {key: construct(node) for key, node in nodes.items()}
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise UsageError(f"{path} is not valid YAML: {shortened(str(error), 200)}") from None


def _scalars(path: Path) -> Dict[str, yaml.ScalarNode]:
    try:
        content = path.read_bytes()
        if len(content) > _LARGEST:
            raise ValueError(f"{len(content)} bytes are too many for settings; is it another file?")
        root = yaml.compose(content.decode("utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: not UTF-8 either
        raise UsageError(f"{path} is not valid YAML: {shortened(str(error), 200)}") from None
    if root is not None and not isinstance(root, yaml.MappingNode):
        raise UsageError(f"{path} must hold `key: value` lines, one for each setting.")
    found: Dict[str, yaml.ScalarNode] = {}
    for key, value in root.value if root else ():
        line = f"{path}, line {key.start_mark.line + 1}"
        if not all(isinstance(node, yaml.ScalarNode) and node.tag in _SCALARS for node in (key, value)):
            culprit = key.value if isinstance(key, yaml.ScalarNode) else "its key"
            raise UsageError(f"{line}: {culprit} must be a single value.")
        if key.value in found:
            raise UsageError(f"{line}: {key.value!r} is there a second time; leave one out.")
        found[key.value] = value
    return found
