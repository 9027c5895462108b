"""The best weights by the validation part: chosen, kept, tested once; and runs that get no better."""

import json
import os
import signal
import zipfile

import numpy as np
import pytest

from builders import ArrayData, small_network
from elastictrainer import RunError, Trainer
from elastictrainer.errors import Interrupted
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.steps.keras_compat.model_files import save_model
from elastictrainer.steps.objective import classification_loss
from elastictrainer.training.callbacks import TrainerCallback
from elastictrainer.training.checkpoints import Checkpointing
from elastictrainer.training.clock import Deadline
from elastictrainer.training.evaluation import BestWeights, Score, described_in, load_weights
from elastictrainer.training.record import RunRecord
from log_lines import listen

IMAGES = np.random.default_rng(1).normal(size=(10, 8, 8, 3)).astype(np.float32)
SHARES = (0.5, 0.9, 0.7, 0.6, 0.8)  # right after each epoch


class Weights(TrainerCallback):
    """The model's variables after each epoch."""

    def __init__(self):
        super().__init__()
        self.after = {}

    def on_epoch_end(self, epoch, logs=None):
        self.after[epoch + 1] = [v.numpy() for v in self.model.weights]


class Run:
    """A small network in training, of whose validation images a given share is right after each epoch."""

    def __init__(self, tf, folder, shares=SHARES):
        tf.keras.utils.set_random_seed(3)
        self.tf, self.shares = tf, shares
        self.model = small_network(tf, dropout=0.0)
        folder.mkdir(exist_ok=True)
        self.folder = RunFolder(folder)
        self.tested, self.weights = 0, Weights()

    def validation(self):
        said = self.model(IMAGES, training=False).numpy().argmax(axis=1)
        right = np.arange(10) < round(10 * self.shares[self.best.run_state.progress.epoch])
        yield self.tf.constant(IMAGES), self.tf.constant(np.where(right, said, (said + 1) % 3))

    def test(self):
        self.tested += 1
        yield self.tf.constant(IMAGES), self.tf.constant(np.arange(10) % 3)

    def fit(self, patience=None, resume=False, quiet=True, callbacks=(), every=1, deadline=None):
        record, saver = RunRecord(self.folder, quiet), Checkpointing(self.folder, resume=resume)
        trainer = Trainer(self.model, scheme="full", deadline=deadline)
        trainer.compile("adam", classification_loss(), metrics=["accuracy"])
        self.best = BestWeights(self.validation, self.test, self.folder, patience, every=every)
        return trainer.fit(
            ArrayData(self.tf).stream,
            epochs=len(self.shares),
            steps_per_epoch=2,
            callbacks=[self.best, record, self.weights, *callbacks, saver],
            verbose=0,
        )


def weights_in(tf, path):
    return tf.keras.models.load_model(path, compile=False).get_weights()


def assert_equal(some, others):
    assert len(some) == len(others) > 5
    for value, other in zip(some, others):
        np.testing.assert_array_equal(value, other)


def accuracy_of(model):
    return float((model(IMAGES).numpy().argmax(axis=1) == np.arange(10) % 3).mean())


@pytest.mark.parametrize("accuracy, loss", [(0.8, 0.1), (0.9, 0.5)], ids=["fewer are right", "a higher loss"])
def test_what_is_better(accuracy, loss):
    better, worse = Score(2, 0.9, 0.4), Score(1, accuracy, loss)
    assert better.is_better_than(worse) and not worse.is_better_than(better)
    assert not better.is_better_than(better), "the earlier one stays"


def test_the_best_weights_are_kept_beside_the_last_and_tested_once(tf, tmp_path):
    run = Run(tf, tmp_path / "run")
    history = run.fit()
    assert history.history["val_accuracy"] == pytest.approx(SHARES)
    assert_equal(weights_in(tf, run.folder.best_path), run.weights.after[2])
    assert_equal(weights_in(tf, run.folder.model_path), run.weights.after[5])
    assert_equal(run.model.get_weights(), run.weights.after[5])
    summary = run.folder.summary()
    assert (summary["kept_weights"], summary["kept_epoch"]) == ("best.keras", 2)
    assert (summary["val_accuracy"], summary["val_accuracy_last"]) == pytest.approx((0.9, 0.8))
    tested = accuracy_of(tf.keras.models.load_model(run.folder.best_path, compile=False))
    assert summary["accuracy"] == pytest.approx(tested)
    assert run.tested == 1 and summary["stopped"] is None and summary["epochs"] == 5
    lines = run.folder.metrics()
    assert [line["val_accuracy"] for line in lines] == pytest.approx(SHARES)
    assert {line["test_accuracy"] for line in lines} == {line["test_loss"] for line in lines} == {None}


def test_only_epochs_that_were_evaluated_can_be_the_best(tf, tmp_path):
    run = Run(tf, tmp_path / "run", shares=(0.9, 0.5, 0.9, 0.6, 0.7))
    results = run.fit(every=2).elastic
    assert [line["val_accuracy"] for line in run.folder.metrics()] == [None, 0.5, None, 0.6, 0.7]
    assert results["kept_epoch"] == 5 and results["val_accuracy"] == pytest.approx(0.7)


def test_a_run_that_gets_no_better_ends_and_says_why(tf, tmp_path, capsys):
    run = Run(tf, tmp_path / "run")
    results = run.fit(patience=2, quiet=False).elastic
    said = capsys.readouterr().out
    assert f"ended after epoch 4: {results['stopped']}\n" in said
    assert "left" not in next(line for line in said.splitlines() if line.startswith("epoch 4/5"))
    assert (results["epochs"], results["steps"], len(run.folder.metrics())) == (4, 8, 4)
    assert "accuracy" in results["stopped"] and results["stopped"].endswith("epoch 2")
    assert results["kept_epoch"] == 2 and 0 < results["rho_achieved"] < 2
    assert results["full_training_seconds"] < 2 * results["train_seconds"], "of the steps that were made"


def test_a_run_that_would_have_ended_anyhow_was_not_stopped(tf, tmp_path):
    assert Run(tf, tmp_path / "run", (0.6, 0.5, 0.4)).fit(2).elastic["stopped"] is None


class InterruptedAt(TrainerCallback):
    """SIGINT in the first step of an epoch."""

    def __init__(self, epoch):
        super().__init__()
        self.epoch = epoch

    def on_epoch_begin(self, epoch, logs=None):
        if epoch + 1 == self.epoch:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("epoch", [3, *(pytest.param(e, marks=pytest.mark.long) for e in (2, 4))])
def test_an_interrupted_run_keeps_and_ends_as_one_that_was_not(tf, tmp_path, epoch):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        whole = Run(tf, tmp_path / "whole")
        whole.fit(patience=2)
        with pytest.raises(Interrupted):
            Run(tf, tmp_path / "parts").fit(patience=2, callbacks=[InterruptedAt(epoch)])
    finally:
        signal.signal(signal.SIGINT, before)
    parts = Run(tf, tmp_path / "parts")
    results, expected = parts.fit(patience=2, resume=True).elastic, whole.folder.summary()
    for name in ("epochs", "stopped", "kept_epoch", "accuracy", "val_accuracy", "val_accuracy_last"):
        assert results[name] == expected[name], name
    assert_equal(weights_in(tf, parts.folder.best_path), whole.weights.after[2])
    assert_equal(weights_in(tf, parts.folder.model_path), whole.weights.after[4])


class Killed(TrainerCallback):
    """Ends the process, as far as the run can tell: in an epoch, or when all is trained."""

    def __init__(self, epoch=None):
        super().__init__()
        self.epoch = epoch

    def on_epoch_end(self, epoch, logs=None):
        if epoch + 1 == self.epoch:
            raise MemoryError

    def conclude(self):
        raise MemoryError


def test_a_run_that_has_ended_early_and_was_killed_then_is_not_trained_further(tf, tmp_path):
    with pytest.raises(MemoryError):
        Run(tf, tmp_path / "run").fit(patience=1, callbacks=[Killed()])
    again = Run(tf, tmp_path / "run")
    results = again.fit(patience=1, resume=True).elastic
    assert results["epochs"] == 3 and results["stopped"] and not again.weights.after
    assert again.folder.model_path.exists() and results["kept_epoch"] == 2


@pytest.mark.parametrize(
    "shares, patience, kept, reason",
    [
        ((0.5, 0.9, 0.7, 1.0, 0.8), 1, 4, "in 1 epoch after epoch 4"),
        ((0.9, *9 * (0.5,)), 2, 1, "in 2 epochs after epoch 3"),
    ],
    ids=["better weights", "its patience again"],
)
def test_a_run_that_has_ended_early_and_is_given_more_time_ends_once_more(
    tf, tmp_path, capsys, shares, patience, kept, reason
):
    def fit(more_s, **options):
        deadline = Deadline(9.0, more_s=more_s, age_s=lambda: 0.0)
        return Run(tf, tmp_path / "run", shares).fit(patience, deadline=deadline, **options).elastic

    assert fit(0.0)["epochs"] == 3
    capsys.readouterr()
    results = fit(9.0, resume=True, quiet=False)
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("ended")]
    assert said == [f"ended after epoch 5: {results['stopped']}"]
    assert results["stopped"].endswith(reason) and (results["epochs"], results["kept_epoch"]) == (5, kept)


def test_weights_that_were_written_in_an_epoch_that_is_repeated_stay_the_best(tf, tmp_path):
    """Killed after the second epoch's best weights were written, before its checkpoint was."""
    first = Run(tf, tmp_path / "run")
    with pytest.raises(MemoryError):
        first.fit(callbacks=[Killed(2)])
    assert described_in(first.folder.best_path).epoch == 2
    # On another day the same epoch may come out otherwise.
    again = Run(tf, tmp_path / "run", (0.5, 0.8, 0.7, 0.6, 0.8))
    results = again.fit(resume=True).elastic
    assert results["kept_epoch"] == 2 and results["val_accuracy"] == pytest.approx(0.9)
    assert_equal(weights_in(tf, again.folder.best_path), first.weights.after[2])


def test_without_its_file_the_best_is_chosen_from_there_on(tf, tmp_path):
    with pytest.raises(MemoryError):
        Run(tf, tmp_path / "run").fit(callbacks=[Killed()])
    again = Run(tf, tmp_path / "run")
    again.folder.best_path.write_bytes(b"PK\x03\x04")
    said = listen()
    results = again.fit(resume=True).elastic
    assert any("best.keras" in line for line in said)
    assert results["kept_epoch"] == 5 and results["val_accuracy"] == pytest.approx(0.8)
    assert_equal(weights_in(tf, again.folder.best_path), weights_in(tf, again.folder.model_path))


def test_a_loss_that_is_not_finite_ends_the_run(tf, tmp_path):
    run = Run(tf, tmp_path / "run")

    def poisoned():
        bias = run.model.trainable_weights[-1]  # behind every activation
        bias.assign(np.full(bias.shape, np.nan))
        return [(IMAGES, np.zeros(10, int))]

    run.validation = poisoned
    with pytest.raises(RunError, match="nan at step 2 "):
        run.fit()
    assert not run.folder.best_path.exists()


def test_the_file_says_what_it_is(tf, tmp_path):
    run = RunFolder.create(tmp_path / "run")
    about = Score(3, 0.75, 0.5)
    save_model(small_network(tf), run.best_path, json.dumps(about._asdict()))
    assert described_in(run.best_path) == about
    with zipfile.ZipFile(run.best_path) as archive:
        assert archive.testzip() is None
    save_model(small_network(tf), run.model_path)
    assert described_in(run.model_path) is None is described_in(tmp_path / "nowhere")
    run.best_path.write_bytes(run.best_path.read_bytes()[:-1000])
    assert described_in(run.best_path) is None
    with pytest.raises(RunError, match="best weights from "):
        load_weights(small_network(tf), run.best_path)
