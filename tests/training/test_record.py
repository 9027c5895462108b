"""The files that a run leaves in its folder, and the lines that it shows."""

import contextlib
import io
import json

import numpy as np
import pytest

from builders import ArrayData, compiled_trainer, invented_profile, small_network, train_classifier
from elastictrainer import UsageError
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.selection.run_selector import Selector
from elastictrainer.steps import optimizers
from elastictrainer.training.record import Display, RunRecord, duration
from elastictrainer.training.state import RunState

SUMMARY = {
    *"scheme rho_requested rho_predicted rho_achieved accuracy loss accuracy_best train_seconds".split(),
    *"full_training_seconds validation_seconds importance_seconds selection_seconds trace_seconds".split(),
    *"steps selections step_ms_median full_step_ms peak_rss_bytes seed".split(),
}


def test_an_elastic_run_fills_its_folder(tf, tmp_path):
    data = ArrayData(tf, steps=24)
    run = RunFolder.create(tmp_path / "run")
    run.write_config({"scheme": "elastic", "rho": 0.9})
    model = small_network(tf)
    profile = invented_profile(model)
    profile.save(run.profile_path)
    options = {"profile": profile, "rho": 0.9, "epochs": 4, "interval": 2, "importance_batches": 3}
    options.update(activation_cache="off", run=run, seed=5)
    summary = train_classifier(tf, model, data, optimizers.make("sgd", 0.05), **options).elastic
    assert SUMMARY <= summary.keys() and summary == json.loads((run.path / "summary.json").read_text())
    assert summary["steps"] == 4 * 24 and summary["seed"] == 5 and summary["selections"] == 2
    assert 0 < summary["importance_seconds"] < summary["train_seconds"]
    assert [r["epoch"] for r in run.metrics()] == [1, 2, 3, 4]
    selections = run.selections()
    assert [s["step"] for s in selections] == [6, 48]
    for s in selections:
        assert s["over_budget"] or s["predicted_ms"] <= s["rho_target"] * profile.full_ms * (1 + 1e-9)
        assert len(s["importance"]) == 10 and s["selected"]
    assert [p.name for p in sorted(run.checkpoints_path.iterdir())] == ["step-000000072", "step-000000096"]
    reloaded = tf.keras.models.load_model(run.model_path)
    x, _ = next(data.test())
    np.testing.assert_allclose(reloaded(x), model(x), rtol=1e-5)


@pytest.fixture
def fit(tf):
    """Trains a network for an epoch, with a record and without evaluation."""

    def fitted(record, **options):
        trainer, data = compiled_trainer(tf, small_network(tf), "sgd", scheme="full"), ArrayData(tf)
        return trainer.fit(data.stream, steps_per_epoch=2, callbacks=record, verbose=0, **options)

    return fitted


def test_without_evaluation_its_results_are_left_open(fit, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert fit(RunRecord(owner="me")).elastic["owner"] == "me"
    assert "epoch 1/1  loss" in capsys.readouterr().out
    assert not list(tmp_path.iterdir()), "without a folder it only shows"
    run = RunFolder.create(tmp_path / "run")
    history = fit(RunRecord(run, owner="me"))
    (line,) = run.metrics()
    assert line["test_loss"] is line["test_accuracy"] is None
    assert line["train_loss"] == pytest.approx(history.history["loss"][0])
    assert run.summary()["owner"] == "me" and "accuracy" not in run.summary()


def test_validation_of_keras_is_recorded_as_validation(tf, fit, tmp_path, capsys):
    run = RunFolder.create(tmp_path / "run")
    history = fit(RunRecord(run), validation_data=next(ArrayData(tf).test())).history
    (line,) = run.metrics()
    assert (line["val_loss"], line["val_accuracy"]) == (history["val_loss"][0], history["val_accuracy"][0])
    assert line["test_loss"] is line["test_accuracy"] is None
    assert "validation accuracy" in capsys.readouterr().out


def test_a_folder_that_another_run_has_written_to_is_refused(fit, tmp_path):
    run = RunFolder.create(tmp_path / "run")
    fit(RunRecord(run, quiet=True))
    before = run.metrics(), run.summary()
    with pytest.raises(UsageError, match="holds another run.*resume=True"):
        fit(RunRecord(run, quiet=True))
    assert (run.metrics(), run.summary()) == before


def test_torn_and_later_lines_are_cut(tmp_path):
    run = RunFolder(tmp_path)
    for epoch in (1, 2, 3):
        run.add_metrics({"epoch": epoch})
    with open(run.metrics_path, "a") as file:
        file.write('{"epoch": 4')
    record = RunRecord(run)
    record.run_state = type("State", (), {"selections": [{"step": 9}]})()
    record.restore({"metrics": 2, "selections": 0})
    run.add_metrics({"epoch": 3})
    assert [json.loads(line)["epoch"] for line in run.metrics_path.read_text().splitlines()] == [1, 2, 3]
    assert record.run_state.selections == []


RECORD = {
    **{"epoch": 1, "step": 5, "train_loss": 0.5, "train_accuracy": 0.75, "test_loss": 0.25},
    **{"test_accuracy": 0.8, "step_ms_median": 12.34, "ratio": 0.4567, "train_seconds": 7.0},
    "learning_rate": 1e-4,
}
UNKNOWN = dict.fromkeys(("train_accuracy", "test_loss", "test_accuracy", "ratio"))
VALIDATED = {**RECORD, **UNKNOWN, "val_loss": 0.25, "val_accuracy": 0.8}


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
    state = RunState(None, "bn-bias", loss=loss, step_ms=step_ms)
    state.selector = Selector(np.array([True, False]))
    state.progress.timed_full_ms = [20.0]
    return state


@pytest.mark.parametrize(
    "record, left_s, said",
    [
        (RECORD, None, ["accuracy 75.0 %  test loss 0.2500  test accuracy 80.0 %", "ratio 0.457  7.0 s"]),
        (VALIDATED, 4000.0, ["validation loss 0.2500  validation accuracy 80.0 %", "7.0 s  1 h 07 min left"]),
        ({**RECORD, **UNKNOWN}, None, ["7.0 s"]),
    ],
    ids=["tested", "validated, with what is left", "what is not known is left out"],
)
def test_an_epoch_is_a_line(capsys, record, left_s, said):
    display = Display()
    display.epoch_begins(1, 12, 5)
    display.epoch_ends(record, 12, left_s)
    parts = ["epoch  1/12  loss 0.5000", *said[:-1], "12.3 ms/step", said[-1]]
    assert capsys.readouterr().out == "  ".join(parts) + "\n"


@pytest.mark.parametrize(
    "seconds, said",
    [
        (0.2, "0 s"),
        (89, "89 s"),
        (91, "2 min"),
        (3540, "59 min"),
        (3600, "1 h 00 min"),
        (90e3, "25 h 00 min"),
    ],
)
def test_a_time_is_read_at_a_glance(seconds, said):
    assert duration(seconds) == said


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


@pytest.mark.parametrize("quiet", [False, True])
def test_without_accuracy_and_ratio_the_bar_shows_the_rest_unless_it_is_to_be_quiet(capsys, quiet):
    display, state = Display(quiet=quiet), state_at(loss=0.5, step_ms=15.0)
    state.progress.timed_full_ms = []
    with terminal() as stderr:
        display.epoch_begins(1, 1, 2)
        display.step_done(state, {})
        display.say("the bar is drawn again")
        display.epoch_ends(RECORD, 1)
    shown = stderr.getvalue()
    assert ("loss=0.500" in shown) != quiet and "acc" not in shown and "ratio" not in shown
    assert bool(shown) == bool(capsys.readouterr().out) != quiet


@pytest.mark.parametrize("record, part", [(RECORD, "test"), (VALIDATED, "val")], ids=["tested", "validated"])
def test_an_epochs_figures_are_events_in_a_folder_for_each_part_of_the_data(tf, tmp_path, record, part):
    run = RunFolder(tmp_path / "run")
    display = Display(run, quiet=True)
    assert not run.events_path.exists(), "nothing to show yet"
    display.epoch_ends(record, 2)
    display.close()
    trained = {f"train/{name}" for name in ("loss", "step_ms_median", "seconds", "learning_rate")}
    known = {f"train/{name}" for name in ("accuracy", "ratio") if part == "test"}
    assert tags(tf, run) == trained | known | {f"{part}/loss", f"{part}/accuracy"}
    assert {path.name for path in run.events_path.iterdir()} == {"train", part}
