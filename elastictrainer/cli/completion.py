"""Completion at TAB of options, names and files, through argcomplete where it is installed."""

import argparse
import os
from typing import Any, List


class CompletingParser(argparse.ArgumentParser):
    """A parser that answers argcomplete, which runs the command to ask it; it costs nothing otherwise.

    An option completes to the `names` that its action has, and to files where it has none or is `open`.
    """

    _is_asked = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does; does not return where a shell asks for completions."""
        if "_ARGCOMPLETE" in os.environ and not self._is_asked:
            self._is_asked = True  # argcomplete parses what is typed so far
            self._answer()
        return super().parse_known_args(args, namespace)

    def _answer(self) -> None:
        try:
            import argcomplete
        except ImportError:
            return
        files = argcomplete.completers.FilesCompleter()

        def completer(names: List[str], is_open: bool) -> Any:
            return lambda prefix, **_: [*names, *(files(prefix) if is_open else ())]

        for action in self._actions:
            names = getattr(action, "names", None)
            if names:
                action.completer = completer(list(names), action.open)  # type: ignore[attr-defined]
        argcomplete.autocomplete(self, always_complete_options="long")
