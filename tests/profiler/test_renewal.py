"""The closed loop on real steps: selections corrected within an interval, profiles renewed while training goes on."""

import dataclasses

import numpy as np
import pytest

from builders import ArrayData, small_network
from elastictrainer import TensorTimings, UsageError, profile_model
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.selection.elastic import SelectedTensors
from elastictrainer.selection.reselection import Reselector
from elastictrainer.steps import optimizers
from elastictrainer.steps.objective import classification_loss
from elastictrainer.training.report import Report
from elastictrainer.training.training import Training


@pytest.fixture(scope="module")
def timings(tf):
    return profile_model(
        small_network(tf), classification_loss(), next(ArrayData(tf).train(0)), warmup=1, steps=3
    )


def train(tf, timings, folder, steps=120, **options):
    tf.keras.utils.set_random_seed(0)
    folder.mkdir()
    run = RunFolder(folder)
    timings.save(run.profile_path)
    options = {"epochs": 2, "interval": 1, "importance_batches": 2, "rho": 0.8, "quiet": True, **options}
    trainer = Training(small_network(tf), optimizers.make("sgd", 0.05), timings=timings, run=run, **options)
    return run, trainer.fit(ArrayData(tf, steps=steps))


def clock_says(monkeypatch, full_ms, selected_ms):
    """Every step takes what is said here, whatever else the machine does."""
    took = SelectedTensors.took

    def fixed(self, step, ms, example, new):
        took(self, step, 50.0 if new else full_ms if self._was_full else selected_ms, example, new)

    monkeypatch.setattr(SelectedTensors, "took", fixed)


def with_times(timings, factor):
    """The profile with all backward work taking `factor` times what it does."""
    return dataclasses.replace(
        timings,
        dw=timings.dw.scaled(factor),
        dy=timings.dy.scaled(factor),
        t_update=timings.t_update * factor,
    )


def test_always_renews_the_profile_before_every_selection(tf, timings, tmp_path):
    timings = dataclasses.replace(
        with_times(timings, 20.0), frozen_saving=0.3, overlap=0.1
    )  # whatever it measured, 0.8 is to be had
    run, summary = train(tf, timings, tmp_path / "run", reprofile="always")
    renewed = TensorTimings.load(run.profile_path)
    assert renewed.metadata["renewed_at_step"] == 120 and renewed.metadata["traced_steps"] == 4
    assert summary["selections"] == 2 and summary["profiling_seconds"] > 0
    # The same graph: the same groups, with times of this run.
    assert renewed.names == timings.names and {tuple(m) for m, _ in renewed.dy.sets()} == {
        tuple(m) for m, _ in timings.dy.sets()
    }
    assert renewed.metadata["coverage"] > 0.8 and renewed.full_ms > 0
    assert (renewed.frozen_saving, renewed.overlap) == (0.3, 0.1)  # measured apart, which a run cannot


def test_a_selection_that_takes_more_than_asked_for_says_so(tf, timings, tmp_path, monkeypatch):
    n = len(timings)
    cheap = np.arange(n) == n - 1  # next to the output; any other takes 112 ms at least
    costs = TensorTimings.from_chain(timings.names, 10.0, [1.0] * n, np.where(cheap, 1.0, 100.0).tolist())
    monkeypatch.setattr(
        Reselector, "score", lambda self, probe: setattr(self, "importance", np.where(cheap, -1.0, 1.0))
    )
    said = []
    monkeypatch.setattr(Report, "say", lambda self, line: said.append(line))
    train(tf, costs, tmp_path / "run", steps=20, rho=50 / costs.full_ms, feedback=False)
    selected = [line for line in said if line.startswith("selected")]
    assert selected and all(f"over the {50 / costs.full_ms:.3f} to be had" in line for line in selected)


def test_a_profile_that_the_clock_contradicts_is_renewed_by_itself(tf, timings, tmp_path, monkeypatch):
    wrong = with_times(timings, 20.0)  # says that selecting few tensors saves nearly everything
    clock_says(monkeypatch, wrong.full_ms, 0.8 * wrong.full_ms)
    said = []
    folder = tmp_path / "run"
    tf.keras.utils.set_random_seed(0)
    folder.mkdir()
    run = RunFolder(folder)
    model = small_network(tf)
    trainer = Training(
        model, optimizers.make("sgd", 0.05), timings=wrong, run=run, epochs=2, interval=2, rho=0.5, quiet=True
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Report, "say", lambda self, line: said.append(line))
        trainer.fit(ArrayData(tf, steps=700))
    assert any("the profile was renewed" in line for line in said)
    renewed = TensorTimings.load(run.profile_path)
    assert renewed.metadata["renewed_at_step"] % 300 == 0
    assert renewed.rho_min > 2 * wrong.rho_min


def test_never_leaves_a_wrong_profile_alone(tf, timings, tmp_path):
    run, summary = train(
        tf, with_times(timings, 20.0), tmp_path / "run", steps=350, rho=0.5, reprofile="never"
    )
    assert "renewed_at_step" not in TensorTimings.load(run.profile_path).metadata
    assert summary["profiling_seconds"] == 0


def test_a_selection_that_takes_longer_than_it_may_is_corrected(tf, timings, tmp_path, monkeypatch):
    wrong = with_times(timings, 20.0)
    clock_says(monkeypatch, wrong.full_ms, 0.9 * wrong.full_ms)
    run, summary = train(tf, wrong, tmp_path / "run", steps=1500, epochs=1, rho=0.6, reprofile="never")
    first, *corrections = run.selections()
    assert not first["corrected"] and corrections and all(record["corrected"] for record in corrections)
    assert summary["selections"] == 1 and summary["corrections"] == len(corrections)
    assert corrections[-1]["importance"] == first["importance"]  # the same scores, another budget
    assert corrections[0]["rho_selector"] < first["rho_selector"]


@pytest.mark.parametrize(
    "mode, feedback, message",
    [("sometimes", True, "auto, always, never"), ("always", False, "--deterministic")],
)
def test_bad_modes(tf, timings, mode, feedback, message):
    with pytest.raises(UsageError, match=message):
        Training(small_network(tf), timings=timings, rho=0.9, reprofile=mode, feedback=feedback)
