"""Check the prose of the pages: proselint, and words that they do not use.

    python scripts/prose.py [PAGE...]

Code, file names, links and formulas are left out. Prints every finding as file:line, with exit status 1 if
there is one.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from itertools import cycle
from pathlib import Path
from typing import Iterable, List

ROOT = Path(__file__).resolve().parent.parent
CONFIG = Path(__file__).with_suffix(".json")
# Regular expressions of whole words, and the words to use instead.
BANNED = {
    r"anew": "again, or a precise verb",
    r"beside": "next to, with, compared with",
    r"races?|racing": "comparison",
    r"sittings?": "measurement, run",
    r"(is|are|was|were) (told|refused)": "raises an error, the message says",
    r"worth it": "a number",
    r"foretells?": "predict",
    r"quiet": "no other process",
    r"rests?|at rest|rested": "frozen, the others",
    r"thaw(s|ed|ing)?": "unfreeze",
    r"deepest|deeper": "earliest, earlier",
    r"no chains?": "with branches or loops",
    r"what (a|the|it|they|is|was|does|changes|trains)": "a noun",
    r"whoever|he who|who (knew|knows)": "a noun",
    r"rivals?": "the scheme to compare with",
    r"cannot be had|can be had": "impossible, achievable",
    r"replay(s|ed|ing)": "cached step, read from the cache",
}


def prose(text: str) -> str:
    """Return a page's text with code, links, images and formulas blanked, line by line."""
    text = re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), text, flags=re.M | re.S)
    text = re.sub(r"^( {4,}|:::).*$", "", text, flags=re.M)
    names = cycle(("codeA", "codeB"))  # in turn, so that proselint sees no word twice in a row
    text = re.sub(r"`[^`\n]*`", lambda code: next(names), text)
    text = re.sub(r"!\[[^]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^]\n]*)\]\([^)\n]*\)", r"\1", text)
    text = re.sub(r"<[^>\n]*>|\S*/\S*|\b[\w-]+\.(csv|md|png|py|sh)\b", "", text)
    # Proselint reads a size of images as a product, and words of two table cells as one sentence.
    text = re.sub(r"\b\d+x\d+(x\d+)?\b", "size", text)
    text = re.sub(r"^(#+ .*)$", r"\1: heading", text, flags=re.M)
    return re.sub(r"\*\*|\|", "; ", text)


def banned(page: Path, text: str) -> List[str]:
    """Return a line for each banned word of a page."""
    return [
        f"{page}:{number}: {found[0]!r}: use {instead}"
        for number, line in enumerate(text.splitlines(), 1)
        for word, instead in BANNED.items()
        for found in re.finditer(rf"\b({word})\b", line, re.IGNORECASE)
    ]


def linted(folder: Path) -> List[str]:
    """Return proselint's findings in the files of a folder.

    Raises:
        SystemExit: proselint is not installed or fails.
    """
    if sys.version_info < (3, 10):
        print("note: proselint needs Python 3.10; only banned words are checked")
        return []
    command = [sys.executable, "-m", "proselint", "check", "--config", str(CONFIG)]
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.md"))
    result = subprocess.run([*command, *files], cwd=folder, capture_output=True, text=True)
    lines = [line.replace(f"{folder.resolve()}/", "") for line in result.stdout.splitlines()]
    if result.returncode and not lines:
        sys.exit(f"proselint failed: {(result.stderr.strip().splitlines() or ['no message'])[-1]}")
    return [line for line in lines if re.search(r":\d+:\d+: ", line)]


def check(pages: Iterable[Path]) -> List[str]:
    """Return all findings of the pages, which lie in the repository."""
    findings = []
    with tempfile.TemporaryDirectory() as folder:
        for page in pages:
            name = page.resolve().relative_to(ROOT)
            text = prose(page.read_text(encoding="utf-8"))
            findings += banned(name, text)
            copy = Path(folder, name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text, encoding="utf-8")
        return findings + linted(Path(folder))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE")
    root = ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")
    every = [*(ROOT / f"{name}.md" for name in root), *sorted((ROOT / "docs").glob("*.md"))]
    findings = check(parser.parse_args().pages or every)
    print(*findings, f"prose: {len(findings)} finding(s)", sep="\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
