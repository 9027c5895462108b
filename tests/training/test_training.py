import json
import time

import numpy as np
import pytest

from builders import ArrayData, invented_timings, small_network, train_classifier
from elastictrainer import RunError, TensorTimings, UsageError
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.steps import optimizers
from elastictrainer.training.loop import TrainFunction

SUMMARY = {
    "scheme",
    "rho_requested",
    "rho_predicted",
    "rho_achieved",
    "accuracy_best",
    "accuracy_last",
    "loss_last",
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
    timings = invented_timings(model)
    timings.save(run.profile_path)
    summary = train_classifier(
        tf,
        model,
        data,
        optimizers.make("sgd", 0.05),
        timings=timings,
        rho=0.9,
        epochs=4,
        interval=2,
        importance_batches=3,
        run=run,
        seed=5,
    ).elastic
    assert SUMMARY <= summary.keys() and summary == json.loads((run.path / "summary.json").read_text())
    assert summary["steps"] == 4 * 24 and summary["seed"] == 5 and summary["selections"] == 2
    assert 0 < summary["importance_seconds"] < summary["train_seconds"]
    assert [r["epoch"] for r in run.metrics()] == [1, 2, 3, 4]
    selections = [s for s in run.selections() if not s["corrected"]]
    assert [s["step"] for s in selections] == [6, 24]
    for s in selections:
        assert s["over_budget"] or s["predicted_ms"] <= s["rho_selector"] * timings.full_ms * (1 + 1e-9)
        assert len(s["importance"]) == 10 and s["selected"]
    assert [p.name for p in sorted(run.checkpoints_path.iterdir())] == ["step-000000072", "step-000000096"]
    reloaded = tf.keras.models.load_model(run.model_path)
    x, _ = next(data.test())
    np.testing.assert_allclose(reloaded(x), model(x), rtol=1e-5)
    tags = set()
    for file in run.events_path.rglob("events*"):
        for event in tf.compat.v1.train.summary_iterator(str(file)):
            tags |= {value.tag for value in event.summary.value}
    assert {"train/loss", "train/accuracy", "train/selection", "test/loss", "test/accuracy"} <= tags


def test_training_time_is_everything_but_validation(tf):
    data = ArrayData(tf, steps=8)
    summary = train_classifier(tf, small_network(tf), data, scheme="full", epochs=2).elastic
    laps = summary["seconds"]
    assert summary["train_seconds"] == pytest.approx(sum(laps.values()) - laps["validation"])
    assert summary["rho_achieved"] == summary["train_seconds"] / summary["full_training_seconds"]


@pytest.mark.parametrize("scheme", ["full", "elastic"])
def test_what_full_training_waits_for_as_well_is_part_of_its_time(tf, scheme):
    """Each epoch begins with a wait that is long beside all of its steps."""

    class Slow(ArrayData):
        def train(self, epoch, first=0):
            time.sleep(0.5)
            yield from super().train(epoch, first)

    model, data = small_network(tf), Slow(tf, steps=12)
    options = {"scheme": scheme, "timings": invented_timings(model), "rho": 0.9, "interval": 4}
    summary = train_classifier(tf, model, data, epochs=4, **options).elastic
    laps = summary["seconds"]
    assert (
        laps["loop"] > 4 * 0.4
    )  # TensorFlow fetches a minibatch ahead: part of the wait is beside validation
    shared = laps["loop"] + laps["checkpoint"] + laps["full_tracing"]
    steps = 47 * 1e-3 * summary["full_step_ms"]  # the first is in the tracing
    assert summary["full_training_seconds"] == pytest.approx(shared + steps)
    if scheme == "full":
        assert summary["rho_achieved"] == pytest.approx(1.0, abs=0.02)
        assert steps == pytest.approx(laps["steps"], rel=0.05), "the wait is taken for a part of the steps"


def test_the_network_learns(tf):
    tf.keras.utils.set_random_seed(0)
    data = ArrayData(tf, steps=20)
    sgd = optimizers.make("sgd", 0.05)
    summary = train_classifier(tf, small_network(tf), data, sgd, scheme="full", epochs=6).elastic
    assert summary["accuracy_last"] > 0.9 and summary["rho_requested"] is None


def test_a_scheme_without_full_steps_measures_them_apart_and_leaves_no_trace(tf, monkeypatch):
    def train(calibrated):
        tf.keras.utils.set_random_seed(1)
        if not calibrated:
            monkeypatch.setattr(TrainFunction, "calibrate", lambda self: None)
        model, sgd = small_network(tf), optimizers.make("sgd", 0.05)
        data = ArrayData(tf, steps=5)
        history = train_classifier(tf, model, data, sgd, scheme="traditional-tl", epochs=2)
        return history, [v.numpy() for v in model.variables]

    (measured, weights), (plain, others) = train(True), train(False)
    assert measured.elastic["full_step_ms"] > 0 and measured.elastic["calibration_seconds"] > 0
    assert plain.elastic["rho_achieved"] is None
    for name in ("loss", "accuracy", "val_loss"):
        assert measured.history[name] == plain.history[name]
    for a, b in zip(weights, others):
        np.testing.assert_array_equal(a, b)


def test_one_seed_and_profile_give_one_result(tf):
    results = []
    for _ in range(2):
        from elastictrainer.experiment.assembly import configure

        configure(seed=2)
        model = small_network(tf)
        data = ArrayData(tf, steps=10)
        options = {"rho": 0.9, "interval": 1, "feedback": False}
        sgd = optimizers.make("sgd", 0.05)
        train_classifier(tf, model, data, sgd, timings=invented_timings(model), epochs=2, **options)
        results.append([v.numpy() for v in model.variables])
    for a, b in zip(*results):
        np.testing.assert_array_equal(a, b)


def test_divergence_stops_the_run_and_says_where(tf, tmp_path):
    run, sgd = RunFolder.create(tmp_path / "run"), optimizers.make("sgd", 1e20)
    with pytest.raises(RunError, match="at step .*learning-rate"):
        train_classifier(tf, small_network(tf), ArrayData(tf, steps=6), sgd, scheme="full", run=run)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"scheme": "full", "epochs": 0}, "epochs"),
        ({"interval": 0, "scheme": "full"}, "interval"),
        ({"timings": TensorTimings.from_chain(["a"], 1.0, [1.0], [1.0])}, "1 tensors"),
    ],
)
def test_bad_arguments(tf, options, message):
    with pytest.raises(UsageError, match=message):
        train_classifier(tf, small_network(tf), ArrayData(tf), **options)


def test_rho_below_the_cheapest_selection_names_the_range(tf):
    model = small_network(tf)
    with pytest.raises(UsageError, match="Valid: 0"):
        train_classifier(tf, model, ArrayData(tf), timings=invented_timings(model), rho=0.01)


def test_layers_the_user_froze_stay_frozen(tf):
    model = small_network(tf)
    model.get_layer("stem").trainable = False
    before = model.get_layer("stem").kernel.numpy()
    train_classifier(tf, model, ArrayData(tf), optimizers.make("sgd", 0.1), scheme="full", epochs=1)
    np.testing.assert_array_equal(model.get_layer("stem").kernel.numpy(), before)


def test_run_folder_that_exists_is_refused_and_only_a_run_is_overwritten(tmp_path):
    run = RunFolder.create(tmp_path / "run")
    RunFolder.create(tmp_path / "run")  # still empty
    run.write_config({"a": 1})
    with pytest.raises(UsageError, match="--overwrite"):
        RunFolder.create(tmp_path / "run")
    RunFolder.create(tmp_path / "run", overwrite=True)
    assert not run.config_path.exists()
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with pytest.raises(UsageError, match="not a run folder"):
        RunFolder.create(tmp_path / "thesis", overwrite=True)
    assert (tmp_path / "thesis" / "chapter.tex").exists()


def test_energy_is_that_of_training_without_validation(tf, monkeypatch):
    monkeypatch.setattr(
        "elastictrainer.training.energy.EnergyMeter._sample", lambda self: None
    )  # no readings in between

    class Clock:
        """A hundred joules more at every reading."""

        name = "fake"
        readings = 0

        def joules(self):
            Clock.readings += 1
            return 100.0 * Clock.readings

    data = ArrayData(tf, steps=3)
    summary = train_classifier(tf, small_network(tf), data, scheme="full", epochs=2, sensor=Clock()).elastic
    # Each epoch begins and ends with a reading, and a hundred joules lie between two.
    assert summary["energy_joules"] == 200 and summary["energy_source"] == "fake"
    assert len(summary["training_intervals"]) == 2
    (first, second), (third, fourth) = summary["training_intervals"]
    assert first < second < third < fourth
    unmetered = train_classifier(tf, small_network(tf), ArrayData(tf), scheme="full", epochs=1).elastic
    assert unmetered["energy_joules"] is None
