"""scripts/check_numbers.py: numbers on the pages are those of the rows."""

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def copy(tmp_path):
    """The pages and rows that the list names, in a folder of their own."""
    text = (ROOT / "scripts" / "check_numbers.txt").read_text()
    named = {word for part in text.split("\n\n") for word in part.splitlines()[0].split()}
    for name in {"scripts/check_numbers.txt", *named}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def change(file, old, new):
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


def test_the_pages_have_the_numbers_of_the_rows(script, copy, capsys):
    assert script("check_numbers").main(copy) == 0
    said = capsys.readouterr().out
    assert "covers the table of 'Machines'" in said and "'Real images'" not in said


@pytest.mark.parametrize(
    "file, old, new, said",
    [
        (
            "docs/results.md",
            "| 0.135 | 88.4 ±",
            "| 0.135 | 88.5 ±",
            "docs/results.md: 88.5 should be 88.4 (elastic-0.135: mean accuracy)",
        ),
        (
            "docs/results.md",
            "| 0.135 | 88.4 ±",
            "| 0.13 | 88.4 ±",
            "0 times, not once, in the page: | 0.135 |",
        ),
        ("scripts/benchmarks/step.csv", "90.008", "91.008", "docs/results.md: 90.0 should be 91.0"),
        (
            "scripts/check_numbers.txt",
            "{elastic-0.135: mean accuracy",
            "{elastic-0.135: accuracy",
            "3 rows are",
        ),
        (
            "scripts/check_numbers.txt",
            "{elastic-0.135: mean accuracy",
            "{elastic-0.1355: mean accuracy",
            "0 rows are",
        ),
    ],
)
def test_what_differs_is_named(script, copy, capsys, file, old, new, said):
    change(copy / file, old, new)
    assert script("check_numbers").main(copy) == 1
    assert [line for line in capsys.readouterr().out.splitlines() if said in line]
