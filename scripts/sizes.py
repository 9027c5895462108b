"""Print the lines of code of each room of the package next to its limit; exit status 1 above one.

    python scripts/sizes.py

A line of code is one that is not blank, a comment, an import or a part of a docstring. Raising a limit is a
decision of its own, with its reason in the commit.
"""

import ast
import io
import sys
import tokenize
from pathlib import Path
from typing import Set

PACKAGE = Path(__file__).resolve().parents[1] / "elastictrainer"
LIMITS = {
    "cli": 489,
    "plotting": 394,
    "fleet": 659,
    "experiment": 1502,
    "training": 2624,
    "cache": 749,
    "selection": 566,
    "profiler": 1205,
    "models": 785,
    "steps": 1427,
    "data": 950,
    "runs": 555,
    "(top)": 150,
}
FILES = 130
_NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def code_lines(source: str) -> Set[int]:
    """Return the numbers of the lines of code of a module."""
    lines: Set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            text: ast.stmt = node.body[0]
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            text = node
        else:
            continue
        lines.difference_update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return lines


def main() -> int:
    sizes = dict.fromkeys(LIMITS, 0)
    files = sorted(PACKAGE.rglob("*.py"))
    for path in files:
        room = path.relative_to(PACKAGE).parts[0] if path.parent != PACKAGE else "(top)"
        sizes[room] += len(code_lines(path.read_text(encoding="utf-8")))
    over = [room for room, size in sizes.items() if size > LIMITS[room]]
    for room, size in sizes.items():
        print(f"{room:<12}{size:>7} of {LIMITS[room]:>5}{'  too many' if room in over else ''}")
    print(
        f"{'all':<12}{sum(sizes.values()):>7} of {sum(LIMITS.values()):>5} in {len(files)} of {FILES} files"
    )
    return 1 if over or len(files) > FILES else 0


if __name__ == "__main__":
    sys.exit(main())
