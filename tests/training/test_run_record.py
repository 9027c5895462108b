"""The files that a run leaves in its folder."""

import json

import numpy as np
import pytest

from builders import ArrayData, invented_profile, small_network, train_classifier
from elastictrainer import Trainer, UsageError
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.steps import optimizers
from elastictrainer.training.run_record import RunRecord

SUMMARY = {
    "scheme",
    "rho_requested",
    "rho_predicted",
    "rho_achieved",
    "accuracy",
    "loss",
    "accuracy_best",
    "train_seconds",
    "full_training_seconds",
    "validation_seconds",
    "importance_seconds",
    "selection_seconds",
    "trace_seconds",
    "steps",
    "selections",
    "step_ms_median",
    "full_step_ms",
    "peak_rss_bytes",
    "seed",
}


def test_an_elastic_run_fills_its_folder(tf, tmp_path):
    data = ArrayData(tf, steps=24)
    run = RunFolder.create(tmp_path / "run")
    run.write_config({"scheme": "elastic", "rho": 0.9})
    model = small_network(tf)
    profile = invented_profile(model)
    profile.save(run.profile_path)
    summary = train_classifier(
        tf,
        model,
        data,
        optimizers.make("sgd", 0.05),
        profile=profile,
        rho=0.9,
        epochs=4,
        interval=2,
        importance_batches=3,
        activation_cache="off",
        run=run,
        seed=5,
    ).elastic
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

    def fitted(record):
        trainer = Trainer(small_network(tf), scheme="full")
        trainer.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return trainer.fit(ArrayData(tf).stream, steps_per_epoch=2, callbacks=record, verbose=0)

    return fitted


def test_without_evaluation_its_results_are_left_open(fit, tmp_path, capsys):
    run = RunFolder.create(tmp_path / "run")
    history = fit(RunRecord(run, owner="me"))
    (line,) = run.metrics()
    assert line["test_loss"] is line["test_accuracy"] is line["train_accuracy"] is None
    assert line["train_loss"] == pytest.approx(history.history["loss"][0])
    assert run.summary()["owner"] == "me" and "accuracy" not in run.summary()
    assert "epoch 1/1  loss" in capsys.readouterr().out


def test_validation_of_keras_is_recorded_as_validation(tf, tmp_path, capsys):
    run = RunFolder.create(tmp_path / "run")
    trainer = Trainer(small_network(tf), scheme="full")
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile("sgd", loss, metrics=["accuracy"])
    data = ArrayData(tf)
    history = trainer.fit(
        data.stream,
        steps_per_epoch=2,
        validation_data=next(data.test()),
        callbacks=RunRecord(run),
        verbose=0,
    ).history
    (line,) = run.metrics()
    assert (line["val_loss"], line["val_accuracy"]) == (history["val_loss"][0], history["val_accuracy"][0])
    assert line["test_loss"] is line["test_accuracy"] is None
    assert "validation accuracy" in capsys.readouterr().out


def test_without_a_folder_it_only_shows(fit, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    history = fit(RunRecord(seed=3))
    assert history.elastic["seed"] == 3 and "epoch 1/1" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


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
