"""The display of a run."""

import contextlib
import io
import re

import numpy as np
import pytest

from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.selection.run_selector import Selector
from elastictrainer.training.display import Display, duration
from elastictrainer.training.state import RunState

RECORD = {
    "epoch": 1,
    "step": 5,
    "train_loss": 0.5,
    "train_accuracy": 0.75,
    "test_loss": 0.25,
    "test_accuracy": 0.8,
    "step_ms_median": 12.34,
    "ratio": 0.4567,
    "train_seconds": 7.0,
    "learning_rate": 1e-4,
}
UNKNOWN = dict.fromkeys(("train_accuracy", "test_loss", "test_accuracy", "ratio"))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def terminal():
    """stderr, as if it were a terminal."""
    return contextlib.redirect_stderr(Terminal())


def tags(tf, run):
    found = set()
    for file in run.events_path.rglob("events*"):
        for event in tf.compat.v1.train.summary_iterator(str(file)):
            found |= {value.tag for value in event.summary.value}
    return found


def state_at(loss, step_ms):
    """Of a run whose full steps take 20 ms."""
    selector = Selector(np.array([True, False]))
    state = RunState(None, "bn-bias", loss=loss, step_ms=step_ms)
    state.selector = selector
    state.progress.timed_full_ms = [20.0]
    return state


def test_an_epoch_is_a_line(capsys):
    display = Display()
    display.epoch_begins(1, 12, 5)
    display.epoch_ends(RECORD, 12)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.split("  ") == [
        "epoch",
        "1/12",
        "loss 0.5000",
        "accuracy 75.0 %",
        "test loss 0.2500",
        "test accuracy 80.0 %",
        "12.3 ms/step",
        "ratio 0.457",
        "7.0 s",
    ]


def test_a_validated_epoch_has_its_figures_and_how_long_the_run_will_go_on(capsys):
    display = Display()
    record = {**RECORD, **UNKNOWN, "val_loss": 0.25, "val_accuracy": 0.8}
    display.epoch_ends(record, 12, left_s=4000.0)
    (line,) = capsys.readouterr().out.splitlines()
    assert re.search("validation loss 0.2500 .*accuracy 80.0 %", line) and "test" not in line
    assert line.endswith("  7.0 s  1 h 07 min left")


@pytest.mark.parametrize(
    "seconds, said",
    [
        (0.2, "0 s"),
        (89, "89 s"),
        (91, "2 min"),
        (3540, "59 min"),
        (3600, "1 h 00 min"),
        (90000, "25 h 00 min"),
    ],
)
def test_a_time_is_read_at_a_glance(seconds, said):
    assert duration(seconds) == said


def test_what_is_not_known_is_left_out(capsys):
    Display().epoch_ends({**RECORD, **UNKNOWN, "epoch": 3}, 3)
    assert capsys.readouterr().out == "epoch 3/3  loss 0.5000  12.3 ms/step  7.0 s\n"


def test_on_a_terminal_steps_are_a_bar(capsys):
    display = Display()
    with terminal() as stderr:
        display.epoch_begins(2, 3, 40, done=10)
        state = state_at(loss=0.5, step_ms=15.0)
        state.clock.epochs, state.clock.steps_per_epoch, state.progress.step = 3, 40, 50
        state.clock.watch.seconds.update({"steps": 90.0, "validation": 10.0, "calibration": 55.0})
        for _ in range(30):
            display.step_done(state, {"accuracy": 0.75})
        display.say("tensors were selected")  # the bar is drawn again below
        display.epoch_ends({**RECORD, "epoch": 2, "step": 80}, 3)
    shown = stderr.getvalue()
    assert "epoch 2/3" in shown and "10/40" in shown
    assert "loss=0.500" in shown and "acc=0.750" in shown and "ratio=0.75" in shown
    # 70 steps of the run are left, at two seconds each; the epoch has 30 left.
    assert "left=2 min" in shown
    said = capsys.readouterr().out
    assert "tensors were selected\n" in said and "epoch 2/3  loss 0.5000" in said


def test_without_accuracy_and_ratio_the_bar_shows_the_rest():
    display, state = Display(), state_at(loss=0.5, step_ms=15.0)
    state.progress.timed_full_ms = []
    with terminal() as stderr:
        display.epoch_begins(1, 1, 2)
        display.step_done(state, {})
        display.say("the bar is drawn again")
        display.close()
    shown = stderr.getvalue()
    assert "loss=0.500" in shown and "acc" not in shown and "ratio" not in shown


def test_quiet_it_shows_nothing(capsys):
    display = Display(quiet=True)
    with terminal() as stderr:
        display.epoch_begins(1, 1, 2)
        display.step_done(state_at(0.5, 15.0), {})
        display.epoch_ends(RECORD, 1)
        display.say("nobody hears")
    assert not stderr.getvalue() and not capsys.readouterr().out


def test_events_are_written_into_the_run_folder(tf, tmp_path):
    run = RunFolder(tmp_path / "run")
    display = Display(run, quiet=True)
    display.epoch_ends(RECORD, 2)
    display.close()
    assert tags(tf, run) == {
        "train/loss",
        "train/accuracy",
        "train/step_ms_median",
        "train/seconds",
        "train/learning_rate",
        "train/ratio",
        "test/loss",
        "test/accuracy",
    }


def test_a_validated_run_has_its_own_events(tf, tmp_path):
    run = RunFolder(tmp_path / "run")
    display = Display(run, quiet=True)
    display.epoch_ends({**RECORD, **UNKNOWN, "val_loss": 0.25, "val_accuracy": 0.8}, 2)
    display.close()
    assert {"val/loss", "val/accuracy"} <= tags(tf, run) and "test/loss" not in tags(tf, run)
    assert {path.name for path in run.events_path.iterdir()} == {"train", "val"}


def test_a_report_that_had_nothing_to_show_writes_no_events(tmp_path):
    run = RunFolder(tmp_path / "run")
    Display(run).close()
    assert not run.events_path.exists()


def test_without_a_run_folder_nothing_is_written(tf, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    display = Display(quiet=True)
    display.epoch_ends(RECORD, 2)
    display.close()
    assert not list(tmp_path.iterdir())
