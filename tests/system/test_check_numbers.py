"""scripts/check_numbers.py: numbers on the pages are those of the rows."""

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "docs/results.md": "# Runs\n\n| a | 88.5 ± 0.7 % | 1.5 min |\n\nIt has 7.0 %.\n\n# Names\n\n| a | b |\n",
    "rows.csv": "run,seed,accuracy,seconds\na,0,88,90\na,1,89,90\nb,0,7 %,30\n",
    "scripts/check_numbers.txt": "docs/results.md rows.csv\n"
    "| a | {a: mean accuracy .1} ± {: sd accuracy .1} % | {a,1: seconds/60 .1} min |\n"
    "It has {b: accuracy .1} %.\n",
}


def test_the_pages_have_the_numbers_of_the_rows_and_a_changed_one_is_found(script, tmp_path, capsys):
    text = (ROOT / "scripts" / "check_numbers.txt").read_text()
    named = {word for part in text.split("\n\n") for word in part.splitlines()[0].split()}
    for name in {"scripts/check_numbers.txt", *named}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    check = script("check_numbers").main
    assert check(tmp_path) == 0
    page = tmp_path / "docs" / "results.md"
    page.write_text(page.read_text().replace("| 69.8 | 57.1 |", "| 69.8 | 57.2 |"))
    capsys.readouterr()
    assert check(tmp_path) == 1
    said = "docs/results.md: 57.2 should be 57.1 (mobilenetv2,Keras 2,B,16,on: folded step)"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    "file, old, new, said",
    [
        ("docs/results.md", "0.7", "0.8", "0.8 should be 0.7 (a: sd accuracy); rows in rows.csv"),
        ("docs/results.md", "min", "s", "0 times, not once, in the page: | a | {a: mean"),
        ("docs/results.md", "# Names", "It has 7.0 %.", "2 times, not once, in the page: It has"),
        ("rows.csv", "7 %", "8 %", "7.0 should be 8.0"),
        ("scripts/check_numbers.txt", "mean accuracy", "accuracy", "2 rows are 'a'"),
        ("scripts/check_numbers.txt", "{b:", "{c:", "0 rows are 'c'"),
        ("scripts/check_numbers.txt", "{b: accuracy", "{b: acuracy", "column 'acuracy' has no number"),
        ("scripts/check_numbers.txt", "{b: accuracy .1}", "7.0", "no number in the line 'It has 7.0 %.'"),
    ],
)
def test_what_is_wrong_is_named(script, tmp_path, capsys, file, old, new, said):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    check = script("check_numbers").main
    assert check(tmp_path) == 0
    assert capsys.readouterr().out == "docs/results.md: no row covers the table of 'Names'\n"
    (tmp_path / file).write_text(FILES[file].replace(old, new))
    assert check(tmp_path) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "no row covers" not in line]
    assert line.startswith("docs/results.md: ") and said in line
