"""Check numbers on the pages against the rows that they come from; exit status 1 where one differs.

    python scripts/check_numbers.py

scripts/check_numbers.txt has paragraphs. A paragraph's first line names a page and a CSV file. Each further
line is a row of a table or a piece of a sentence, once on that page, with {ROW: [HOW] COLUMN .DIGITS} in
place of each number:

    {elastic-0.25,0: accuracy .1}                       the one row whose first columns have these values
    {elastic-0.25: mean accuracy .1} ± {: sd accuracy .1}   several rows; without ROW, the row before
    {*,10m: max training s/60 .1}                       any value; columns and numbers with * or /

HOW is mean, sd (the sample's), min or max. The tables of RESULTS that no line covers are listed.
"""

import csv
import math
import re
import statistics
import sys
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Tuple

ROOT = Path(__file__).resolve().parents[1]
LINES = Path("scripts", "check_numbers.txt")
RESULTS = "docs/results.md"
HOWS = {"mean": statistics.mean, "sd": statistics.stdev, "min": min, "max": max}
PLACE = re.compile(r"\{([^{}:]*): (?:(mean|sd|min|max) )?([^{}]+) \.(\d)\}")
NUMBER = r"(-?\d+(?:\.\d+)?)"

Row = Dict[str, str]


class Wrong(Exception):
    """A number, or a line of the list, that is not right."""


class Piece(NamedTuple):
    """A line of the list."""

    page: str
    file: str
    text: str


def pieces(text: str) -> Iterator[Piece]:
    """Yield the lines of the list."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        first, *lines = paragraph.splitlines()
        page, file = first.split()
        yield from (Piece(page, file, line) for line in lines)


def factor(row: Row, name: str) -> float:
    """Return the number in a column (`3.6 %` is 3.6), or the number that `name` itself is."""
    try:
        return float(row.get(name, name).split()[0])
    except (ValueError, IndexError):
        raise Wrong(f"column {name!r} has no number") from None


def product(row: Row, expression: str) -> float:
    """Return what columns and numbers with * and / between them give."""
    first, *rest = re.split(r"([*/])", expression)
    value = factor(row, first)
    for sign, name in zip(rest[::2], rest[1::2]):
        value = value * factor(row, name) if sign == "*" else value / factor(row, name)
    return value


def expected(rows: List[Row], chosen: str, how: str, expression: str) -> float:
    """Return the number that a place stands for."""
    wanted = chosen.split(",")
    found = [row for row in rows if all(w in ("*", value) for w, value in zip(wanted, row.values()))]
    if not found or (len(found) > 1 and not how) or (how == "sd" and len(found) == 1):
        raise Wrong(f"{len(found)} rows are {chosen!r}; give more columns, or {', '.join(HOWS)}")
    values = [product(row, expression) for row in found]
    return HOWS[how](values) if how else values[0]


def check(piece: Piece, page: str, rows: List[Row]) -> Tuple[List[str], int]:
    """Return what is wrong with the numbers of a piece, and where in the page it begins."""
    pattern, end = "", 0
    for place in PLACE.finditer(piece.text):
        pattern += re.escape(piece.text[end : place.start()]) + NUMBER
        end = place.end()
    pattern += re.escape(piece.text[end:])
    if not end:
        raise Wrong(f"no number in the line {piece.text!r}")
    if piece.text.startswith("|"):
        pattern = f"^{pattern}$"
    found = list(re.finditer(pattern, page, re.MULTILINE))
    if len(found) != 1:
        raise Wrong(f"{len(found)} times, not once, in the page: {piece.text}")
    wrong, chosen = [], ""
    for shown, place in zip(found[0].groups(), PLACE.finditer(piece.text)):
        chosen = place[1] or chosen
        right = f"{expected(rows, chosen, place[2] or '', place[3]):.{place[4]}f}"
        if shown != right:
            how = f"{place[2]} {place[3]}" if place[2] else place[3]
            wrong.append(f"{shown} should be {right} ({chosen}: {how})")
    return wrong, found[0].start()


def tables(page: str) -> Iterator[Tuple[str, int, int]]:
    """Yield the heading above each table of a page, and where the table begins and ends."""
    for table in re.finditer(r"(?:^\|.*\n)+", page, re.MULTILINE):
        titles = re.findall(r"^#+ (.*)$", page[: table.start()], re.MULTILINE)
        yield titles[-1], table.start(), table.end()


def main(root: Path = ROOT) -> int:
    """Check all lines of the list below `root`, and print what is wrong and what nothing covers."""
    status, places = 0, []
    pages: Dict[str, str] = {}
    files: Dict[str, List[Row]] = {}
    for piece in pieces((root / LINES).read_text(encoding="utf-8")):
        if piece.page not in pages:
            pages[piece.page] = (root / piece.page).read_text(encoding="utf-8")
        if piece.file not in files:
            with (root / piece.file).open(encoding="utf-8", newline="") as file:
                files[piece.file] = list(csv.DictReader(file))
        try:
            wrong, start = check(piece, pages[piece.page], files[piece.file])
        except Wrong as error:
            wrong, start = [str(error)], math.nan
        places += [start] if piece.page == RESULTS else []
        for words in wrong:
            status = 1
            print(f"{piece.page}: {words}; rows in {piece.file}")
    for title, begin, end in tables(pages.get(RESULTS, "")):
        if not any(begin <= place < end for place in places):
            print(f"{RESULTS}: no row covers the table of {title!r}")
    return status


if __name__ == "__main__":
    sys.exit(main())
