"""Files that are written completely or not at all."""

import os

import pytest

from elastictrainer.runs.files import (
    append_line,
    atomic_write,
    remove_unfinished,
    set_aside,
    write_csv,
    write_json,
    write_text,
)


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    path = tmp_path / "value.json"
    write_json(path, {"a": 1})
    with pytest.raises(KeyError):
        with atomic_write(path) as unfinished:
            unfinished.write_text("half")
            raise KeyError
    with pytest.raises(ValueError):
        write_json(path, float("nan"))
    assert path.read_text() == '{\n "a": 1\n}\n'
    assert [p.name for p in tmp_path.iterdir()] == ["value.json"]


def test_a_folder_appears_with_everything_in_it(tmp_path):
    with atomic_write(tmp_path / "model") as unfinished:
        unfinished.mkdir()
        (unfinished / "weights").write_text("1")
        assert not (tmp_path / "model").exists()
    assert (tmp_path / "model" / "weights").read_text() == "1"


def test_a_folder_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    with atomic_write(tmp_path / "model") as unfinished:
        unfinished.mkdir()
        (unfinished / "old").write_text("1")
    with pytest.raises(KeyError):
        with atomic_write(tmp_path / "model") as unfinished:
            unfinished.mkdir()
            raise KeyError
    assert [p.name for p in (tmp_path / "model").iterdir()] == ["old"]
    with atomic_write(tmp_path / "model") as unfinished:
        unfinished.mkdir()
        (unfinished / "new").write_text("2")
    assert [p.name for p in (tmp_path / "model").iterdir()] == ["new"]
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_what_is_set_aside_keeps_its_content_and_takes_no_name_in_use(tmp_path):
    for number, aside in ((1, "damaged-a"), (2, "damaged-a-2"), (3, "damaged-a-3")):
        (tmp_path / "a").write_text(str(number))
        assert set_aside(tmp_path / "a").name == aside
        assert (tmp_path / aside).read_text() == str(number)


def test_only_what_a_killed_writer_left_is_removed(tmp_path):
    old, new = tmp_path / ".a.1.part.json", tmp_path / ".b.2.part.json"
    for path in (old, new, tmp_path / "a.json"):
        path.write_text("{}")
    remove_unfinished(tmp_path, of="a.json")
    assert not old.exists() and new.exists()
    remove_unfinished(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_lines_are_appended(tmp_path):
    append_line(tmp_path / "log", "a")
    append_line(tmp_path / "log", "b")
    assert (tmp_path / "log").read_text() == "a\nb\n"


def test_names_that_are_no_utf_8_are_written_all_the_same(tmp_path):
    name = os.fsdecode(b"caf\xe9.jpg")
    write_csv(tmp_path / "t.csv", ["image"], [[name]])
    assert (tmp_path / "t.csv").read_bytes() == b"image\ncaf\xe9.jpg\n"
    write_text(tmp_path / "t.txt", name)
    assert (tmp_path / "t.txt").read_text(encoding="utf-8") == r"caf\udce9.jpg"
