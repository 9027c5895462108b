"""Files that are written completely or not at all, and settings in which what stands is what is meant."""

import os

import pytest
import yaml

from elastictrainer import UsageError
from elastictrainer.runs.files import (
    atomic_write,
    remove_unfinished,
    set_aside,
    write_csv,
    write_json,
    write_text,
    yaml_texts,
    yaml_values,
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


def test_only_what_killed_writers_left_is_removed(tmp_path):
    for name in (".a.1.part.json", ".b.2.part", "a.json"):
        (tmp_path / name).write_text("{}")
    remove_unfinished(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_names_that_are_no_utf_8_are_written_all_the_same(tmp_path):
    name = os.fsdecode(b"caf\xe9.jpg")
    write_csv(tmp_path / "t.csv", ["image"], [[name]])
    assert (tmp_path / "t.csv").read_bytes() == b"image\ncaf\xe9.jpg\n"
    write_text(tmp_path / "t.txt", name)
    assert (tmp_path / "t.txt").read_text(encoding="utf-8") == r"caf\udce9.jpg"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "c.yaml"

    def written(content):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


def test_words_stand_for_themselves(file):
    content = "a: off\nb: 010\nc: 1:30\nd: 2024-01-01\ne: 1_000\nf: 'null'\ng: null\nh: ~\ni:\nj: ä b"
    texts = {"a": "off", "b": "010", "c": "1:30", "d": "2024-01-01", "e": "1_000", "f": "null", "j": "ä b"}
    assert yaml_texts(file(content)) == {**texts, **dict.fromkeys("ghi")}
    assert yaml_texts(file("")) == {} == yaml_texts(file("# nothing\n"))


def test_what_was_dumped_is_read(file):
    dumped = {"a": 1, "b": 0.0001, "c": None, "d": True, "e": "off", "f": "010", "g": "two\nlines", "h": 1e-9}
    assert yaml_values(file(yaml.safe_dump(dumped))) == dumped


@pytest.mark.parametrize(
    "content, said",
    [
        ("a: 1\na: 2", "line 2: 'a' is there a second time"),
        ("a: [1]", "line 1"),
        ("a: {b: 1}", "single value"),
        ("? [a]\n: 1", "line 1"),
        ("a: !!binary aGk=", "line 1"),
        ("a: !!python/object/apply:os.getcwd []", "single value"),
        ("text", "key: value"),
        ("a: {", "not valid YAML"),
        ("a: \x07", "not valid YAML"),
        (b"\xff\xfea\x00:\x00", "not valid YAML"),
        ("a: " + "[" * 50_000, "not valid YAML"),
        ("a: " + "x" * 200_000, "too many for settings"),
    ],
    ids=lambda value: repr(value[:30]),
)
def test_all_else_in_a_settings_file_is_refused_with_the_line(file, content, said):
    with pytest.raises(UsageError, match="c.yaml") as error:
        yaml_texts(file(content))
    assert said in str(error.value) and len(str(error.value)) < 500


def test_a_folder_that_cannot_be_replaced_keeps_its_name(tmp_path, monkeypatch):
    path = tmp_path / "export.saved"
    path.mkdir()
    (path / "old").write_text("whole")
    replace, calls = os.replace, []

    def second_fails(source, target):
        calls.append(source)
        if len(calls) == 2:
            raise OSError("no")
        replace(source, target)

    def write():
        with atomic_write(path) as unfinished:
            unfinished.mkdir()

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", second_fails)
        with pytest.raises(OSError):
            write()
    assert [entry.name for entry in tmp_path.iterdir()] == ["export.saved"] and (path / "old").exists()
    # Killed between the two: the next run's first act puts it back.
    path.rename(tmp_path / ".export.saved.former.part")
    remove_unfinished(tmp_path)
    assert (path / "old").read_text() == "whole"
    write()
    assert not list(path.iterdir()) and len(list(tmp_path.iterdir())) == 1
