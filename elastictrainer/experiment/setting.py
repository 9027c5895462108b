"""One setting of a command: a dataclass field that knows its option."""

import dataclasses
from typing import Any, Callable, Optional


def setting(
    default: Any,
    help: str,
    low: Optional[float] = None,
    high: Optional[float] = None,
    check_name: Optional[Callable[[str], Any]] = None,
    metavar: Optional[str] = None,
    group: str = "",
    repeated: bool = False,
) -> Any:
    """Make a dataclass field for one setting.

    Args:
        default: its value if neither the file nor the command line sets it.
        help: one line for `--help`.
        low: smallest value allowed; None: no limit.
        high: largest value allowed; None: no limit.
        check_name: raises UsageError for a name that does not exist; None: the value is not a name.
        metavar: placeholder for the value in `--help`; None: by its type, or the names there are.
        group: the heading in `--help` above this setting and those that follow; empty: as the one before.
        repeated: the option may be given several times; its values are one text then, separated by commas.
    """
    metadata = {
        "help": help,
        "low": low,
        "high": high,
        "check_name": check_name,
        "metavar": metavar,
        "group": group,
        "repeated": repeated,
    }
    return dataclasses.field(default=default, metadata=metadata)


def option_of(name: str) -> str:
    """Return the option of a setting, as it is typed: "--batch-size"."""
    return f"--{name.replace('_', '-')}"
