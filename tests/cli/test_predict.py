"""et-predict: pictures from files, folders and standard input; a table or JSON."""

import io
import json
import shutil
from types import SimpleNamespace

import pytest

from builders import spoil
from elastictrainer.cli import predict
from run_builders import make_run_on_brightness


@pytest.fixture
def run(tf, tmp_path, image_folder, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return make_run_on_brightness(tf, tmp_path / "run")


def said(capsys, *arguments):
    assert predict.main(["run", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_line_for_each_picture(run, capsys):
    lines = said(capsys, "images/test/dark/0.png", "images/test/light/0.png")
    assert [line.split()[:2] for line in lines] == [
        ["images/test/dark/0.png", "dark"],
        ["images/test/light/0.png", "light"],
    ]
    assert lines[0].index("dark ") and lines[0].endswith(" %")
    (line,) = said(capsys, "images/test/light/0.png", "--top", "2")
    first, second = (words.split() for words in line.split("   "))
    assert (first[1], second[0]) == ("light", "dark")
    assert float(first[2]) + float(second[1]) == pytest.approx(100, abs=0.11)


def test_folders_with_those_in_them_and_json(run, capsys):
    """More pictures than a minibatch has; one that is named twice is one."""
    (run.path.parent / "images" / "test" / ".thumbnails").mkdir()
    shutil.copy("images/test/dark/0.png", "images/test/.thumbnails/0.png")
    (run.path.parent / "images" / "test" / "notes.txt").touch()
    named = "images/test", "images/train", "images/test/dark/0.png", "--json", "--top", "5"
    lines = [json.loads(line) for line in said(capsys, *named)]
    parts = {"test": range(4), "train": [0, 1, 10, 11, *range(2, 10)]}
    assert [line["image"] for line in lines] == [
        f"images/{part}/{label}/{k}.png"
        for part, numbers in parts.items()
        for label in ("dark", "light")
        for k in numbers
    ]
    for line in lines:
        assert line["classes"][0]["class"] == line["image"].split("/")[2]
        assert sum(one["probability"] for one in line["classes"]) == pytest.approx(1, abs=1e-5)


def test_linked_folders_are_read_and_what_is_no_picture_is_named(run, capsys):
    new = run.path.parent / "new"
    new.mkdir()
    (new / "camera").symlink_to(run.path.parent / "images" / "test" / "dark")
    (new / "notes.txt").touch()
    assert predict.main(["run", "new"]) == 0
    told = capsys.readouterr()
    assert [line.split()[0] for line in told.out.splitlines()] == [f"new/camera/{k}.png" for k in range(4)]
    assert "not read: new/notes.txt" in told.err


def test_a_picture_on_standard_input(run, capsys, monkeypatch):
    content = (run.path.parent / "images/test/light/2.png").read_bytes()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    (line,) = said(capsys, "-", "--json")
    assert json.loads(line)["image"] == "-" and json.loads(line)["classes"][0]["class"] == "light"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["run", "nowhere.jpg"], "nowhere.jpg (No such file"),
        (["run", "bad.jpg"], ": bad.jpg (not an image)"),
        (["run", "empty"], "in empty"),
        (["run", "-"], "standard input (empty)"),
        (["run", "images", "--top", "0"], "--top 0 "),
        (["nothing", "images"], "nothing does not exist"),
        (["run", "images", "--weights", "best"], "has no best weights"),
    ],
)
def test_a_wrong_request_is_status_2_and_says_nothing_of_pictures(
    run, tmp_path, capsys, monkeypatch, arguments, message
):
    (tmp_path / "bad.jpg").write_text("not an image")
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
    assert predict.main(arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err and not captured.out


def test_the_readable_pictures_are_answered_and_the_others_named(run, image_folder, capsys):
    cut, spoiled = (image_folder / "test" / "light" / name for name in ("1.png", "2.png"))
    cut.write_bytes(cut.read_bytes()[:-2000])
    spoil(spoiled)
    assert predict.main(["run", "images/test", "nowhere.jpg"]) == 1
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 6
    assert all(line.split()[1] == line.split("/")[2] for line in said.out.splitlines())
    for name in ("light/1.png (", "light/2.png (", "nowhere.jpg (No such file"):
        assert sum(name in line for line in said.err.splitlines()) == 1
    assert "3 of 9" in said.err.splitlines()[-1]
    assert "{{" not in said.err and "device:" not in said.err
