"""A YAML file of `key: value` lines, read so that nothing in it surprises: each key once, single values.

YAML's own reading of plain words (`off` is false, `010` is eight, `1:30` is ninety) is left to whoever knows
what a key stands for: `texts` gives values as they stand in the file.
"""

from pathlib import Path
from typing import Any, Dict, Optional, Union

import yaml

from elastictrainer.errors import UsageError, shortened

_LARGEST = (
    100_000  # bytes; a line for each setting is a fraction of that, and more would take seconds to read
)
_SCALARS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "timestamp")}


def texts(path: Union[str, Path]) -> Dict[str, Optional[str]]:
    """Return values by key as they stand in the file; None for a value that is empty or `null`.

    Raises:
        UsageError: the file cannot be read, is no such file, or has a key twice.
    """
    return {
        key: None if node.tag.endswith(":null") else node.value for key, node in _scalars(Path(path)).items()
    }


def values(path: Union[str, Path]) -> Dict[str, Any]:
    """Return values by key as YAML takes them: for files that this program wrote.

    Raises:
        UsageError: as `texts`.
    """
    construct = yaml.SafeLoader("").construct_object
    try:
        return {key: construct(node) for key, node in _scalars(Path(path)).items()}
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise UsageError(f"{path} is not valid YAML: {shortened(str(error), 200)}") from None


def _scalars(path: Path) -> Dict[str, yaml.ScalarNode]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}.") from None
    if len(content) > _LARGEST:
        raise UsageError(f"{path} has {len(content)} bytes, too many for settings: is it another file?")
    try:
        root = yaml.compose(content.decode("utf-8"), Loader=yaml.SafeLoader)
    except RecursionError:
        raise UsageError(f"{path} is not valid YAML: its lists are nested too deeply.") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: not UTF-8, a character that cannot be
        raise UsageError(f"{path} is not valid YAML: {shortened(str(error), 200)}") from None
    if root is None:
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise UsageError(f"{path} must hold `key: value` lines, one for each setting.")
    found: Dict[str, yaml.ScalarNode] = {}
    for key, value in root.value:
        line = f"{path}, line {key.start_mark.line + 1}"
        if not isinstance(key, yaml.ScalarNode):
            raise UsageError(f"{line}: a key must be a word.")
        if key.value in found:
            raise UsageError(f"{line}: {key.value!r} is there a second time; leave one out.")
        if not isinstance(value, yaml.ScalarNode):
            kind = "a list" if isinstance(value, yaml.SequenceNode) else "a group of keys"
            raise UsageError(f"{line}: {key.value} must be a single value, not {kind}.")
        if value.tag not in _SCALARS:
            raise UsageError(f"{line}: {key.value} is not valid YAML for a setting ({value.tag}).")
        found[key.value] = value
    return found
