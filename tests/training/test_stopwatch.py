import pytest

from elastictrainer.runs.files import write_json, written_beside
from elastictrainer.training.stopwatch import Stopwatch


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    path = tmp_path / "value.json"
    write_json(path, {"a": 1})
    with pytest.raises(KeyError):
        with written_beside(path) as beside:
            beside.write_text("half")
            raise KeyError
    with pytest.raises(ValueError):
        write_json(path, float("nan"))
    assert path.read_text() == '{\n "a": 1\n}\n'
    assert [p.name for p in tmp_path.iterdir()] == ["value.json"]


def test_an_inner_lap_pauses_the_outer_one():
    now = iter([0.0, 1.0, 3.0, 10.0, 10.0])
    watch = Stopwatch(clock=lambda: next(now))
    with watch.lap("outer"):  # opens at 0
        with watch.lap("inner"):  # opens at 1, closes at 3
            pass
    # outer closes at 10
    assert dict(watch.seconds) == {"outer": 8.0, "inner": 2.0}
    assert watch.total("inner") == 8.0
