"""Settings files: what stands in them is what is meant."""

import pytest
import yaml

from elastictrainer import UsageError
from elastictrainer.runs import flat_yaml


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "c.yaml"

    def written(content):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


def test_words_stand_for_themselves(file):
    content = "a: off\nb: 010\nc: 1:30\nd: 2024-01-01\ne: 1_000\nf: 'null'\ng: null\nh: ~\ni:\nj: ä b"
    assert flat_yaml.texts(file(content)) == {
        "a": "off",
        "b": "010",
        "c": "1:30",
        "d": "2024-01-01",
        "e": "1_000",
        "f": "null",
        "g": None,
        "h": None,
        "i": None,
        "j": "ä b",
    }
    assert flat_yaml.texts(file("")) == {} == flat_yaml.texts(file("# nothing\n"))


def test_what_was_dumped_is_read(file):
    dumped = {"a": 1, "b": 0.0001, "c": None, "d": True, "e": "off", "f": "010", "g": "two\nlines", "h": 1e-9}
    assert flat_yaml.values(file(yaml.safe_dump(dumped))) == dumped


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
def test_all_else_is_refused_with_the_line(file, content, said):
    with pytest.raises(UsageError, match="c.yaml") as error:
        flat_yaml.texts(file(content))
    assert said in str(error.value) and len(str(error.value)) < 500
