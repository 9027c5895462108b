"""Checkpoints: the newest whole one is restored, and nothing good is lost."""

import os
import shutil

import numpy as np
import pytest

from elastictrainer import RunError
from elastictrainer.training.checkpoint_files import CheckpointFiles
from log_lines import listen


@pytest.fixture
def saved(tf, tmp_path):
    """A variable, and its checkpoints after the steps 1, 2 and 3, whose numbers are its values."""
    variable = tf.Variable(tf.zeros(1000))
    checkpoints = CheckpointFiles(tmp_path / "checkpoints", values=[variable])
    for step in (1, 2, 3):
        variable.assign(tf.fill([1000], float(step)))
        checkpoints.save(step, {"step": step})
    return variable, checkpoints


def restored_silently(checkpoints, **options):
    """Restore; the user is told nothing."""
    listen(pytest.fail)
    return checkpoints.restore(**options)


def names(checkpoints):
    return [path.name for path in checkpoints.saved()]


def test_two_checkpoints_are_kept_and_the_newest_is_restored(tf, saved):
    variable, checkpoints = saved
    assert names(checkpoints) == ["step-000000003", "step-000000002"]
    variable.assign(tf.zeros(1000))
    assert restored_silently(checkpoints) == {"step": 3} and variable.numpy()[0] == 3


def test_zeros_that_are_restored_take_no_memory_of_their_own(tf, tmp_path):
    def address(variable):
        return np.frombuffer(memoryview(variable.read_value()), np.uint8).__array_interface__["data"][0]

    slots = [tf.Variable(tf.zeros((16, 16))) for _ in range(3)]
    slots[2].assign_add(tf.ones((16, 16)))
    checkpoints = CheckpointFiles(tmp_path / "checkpoints", slots=slots)
    checkpoints.save(1, {})
    slots[0].assign_add(tf.ones((16, 16)))
    assert restored_silently(checkpoints) == {}
    assert [slot.numpy().max() for slot in slots] == [0, 0, 1]
    assert address(slots[0]) == address(slots[1])


def test_without_any_nothing_is_restored(tf, tmp_path):
    variable = tf.Variable(4.0)
    assert restored_silently(CheckpointFiles(tmp_path / "none", values=[variable])) is None
    assert variable.numpy() == 4


@pytest.mark.parametrize("file", ["variables.index", "variables.data-00000-of-00001"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda f: f.write_bytes(f.read_bytes()[: f.stat().st_size // 2]),
        lambda f: f.write_bytes(b""),
        lambda f: f.unlink(),
        lambda f: f.write_bytes(
            bytes([b ^ 255 if k == f.stat().st_size // 2 else b for k, b in enumerate(f.read_bytes())])
        ),
    ],
    ids=["cut", "empty", "missing", "one byte"],
)
def test_a_damaged_checkpoint_is_said_and_the_older_one_used(saved, file, damage):
    variable, checkpoints = saved
    damage(checkpoints.saved()[0] / file)
    said = listen()
    assert checkpoints.restore() == {"step": 2} and variable.numpy()[0] == 2
    assert len(said) == 2 and "step-000000003 is damaged" in said[0]
    assert "kept as" in said[1] and "damaged-step-000000003" in said[1]
    assert names(checkpoints) == ["step-000000002"]
    assert len(list((checkpoints.folder / "damaged-step-000000003").iterdir())) in (1, 2)
    damage(checkpoints.saved()[0] / file)
    with pytest.raises(RunError, match="with another --output"):
        checkpoints.restore()
    assert names(checkpoints) == ["step-000000002"]


def test_what_others_put_beside_checkpoints_is_neither_read_counted_nor_removed(saved):
    variable, checkpoints = saved
    shutil.copytree(checkpoints.saved()[0], checkpoints.folder / "step-best")
    (checkpoints.folder / "step-1.tar.gz").write_bytes(b"an archive")
    checkpoints.save(4, {"step": 4})
    assert names(checkpoints) == ["step-000000004", "step-000000003"]
    assert restored_silently(checkpoints) == {"step": 4}
    assert (checkpoints.folder / "step-best" / "variables.index").exists()
    assert (checkpoints.folder / "step-1.tar.gz").read_bytes() == b"an archive"


@pytest.mark.parametrize("name", ["run[1]", "run*", "run?", "[a-z]", "tab\tand \\ ü"])
def test_any_path_can_be_restored_from(tf, tmp_path, name):
    variable = tf.Variable(5.0)
    checkpoints = CheckpointFiles(tmp_path / name / "checkpoints", values=[variable])
    checkpoints.save(1, {"step": 1})
    variable.assign(0.0)
    assert restored_silently(checkpoints) == {"step": 1} and variable.numpy() == 5


def test_an_unfinished_checkpoint_is_removed(saved):
    _, checkpoints = saved
    part = checkpoints.folder / ".step-000000004.123.part"
    part.mkdir()
    (part / "variables.index").write_bytes(b"half")
    assert restored_silently(checkpoints) == {"step": 3} and not part.exists()


def test_one_that_cannot_be_written_leaves_those_before_it(saved):
    _, checkpoints = saved
    (checkpoints.folder / f".step-000000004.{os.getpid()}.part").write_text("in the way")
    with pytest.raises(RunError, match="checkpoint.*step-000000003"):
        checkpoints.save(4, {"step": 4})
    assert names(checkpoints) == ["step-000000003", "step-000000002"]


def test_a_first_one_that_cannot_be_written_is_told(tf, tmp_path):
    (tmp_path / "checkpoints").write_text("in the way")
    with pytest.raises(RunError, match="checkpoint.*none before"):
        CheckpointFiles(tmp_path / "checkpoints", values=[tf.Variable(0.0)]).save(1, {})


def test_where_all_are_damaged_nothing_is_removed(saved):
    _, checkpoints = saved
    for path in checkpoints.saved():
        next(path.glob("variables.data*")).write_bytes(b"")
    said = listen()
    with pytest.raises(RunError, match="can be read"):
        checkpoints.restore()
    assert len(said) == 2 and len(checkpoints.saved()) == 2
