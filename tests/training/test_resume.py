"""Interrupted and resumed equals uninterrupted, to the bit."""

import json
import os
import signal

import numpy as np
import pytest

from builders import ArrayData, invented_timings, small_network, train_classifier
from elastictrainer import RunError, UsageError
from elastictrainer.errors import Interrupted
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.selection.schemes import SCHEMES
from elastictrainer.steps import optimizers
from elastictrainer.steps.keras_compat import random_states
from elastictrainer.training.checkpoints import Checkpoints

STEPS, EPOCHS = 16, 4


class InterruptedData(ArrayData):
    """Sends this process SIGINT before it hands out a given minibatch: ("train", epoch, number) or ("test", call)."""

    def __init__(self, tf, when=None):
        super().__init__(tf, steps=STEPS)
        self.when = when
        self.evaluations = 0

    def train(self, epoch, first=0):
        for number, batch in enumerate(super().train(epoch, first), first):
            if self.when == ("train", epoch, number):
                os.kill(os.getpid(), signal.SIGINT)
            yield batch

    def test(self):
        self.evaluations += 1
        for batch in super().test():
            if self.when == ("test", self.evaluations):
                os.kill(os.getpid(), signal.SIGINT)
                self.when = None
            yield batch


@pytest.fixture(scope="module")
def timings(tf):
    return invented_timings(small_network(tf))


class Run:
    """A model to train into a folder; every one made alike."""

    def __init__(self, tf, timings, folder, scheme):
        tf.keras.utils.set_random_seed(3)
        self._tf, self._timings, self._scheme = tf, timings, scheme
        self.model = small_network(tf)
        self.folder = RunFolder(folder)
        folder.mkdir(exist_ok=True)
        self.folder.write_config({"scheme": scheme, "rho": 0.9})
        self.optimizer = optimizers.make("sgd", 0.05, decay_steps=STEPS * EPOCHS)

    def fit(self, data, resume=False):
        return train_classifier(
            self._tf,
            self.model,
            data,
            self.optimizer,
            scheme=self._scheme,
            timings=self._timings,
            rho=0.9,
            epochs=EPOCHS,
            interval=1,
            importance_batches=2,
            feedback=False,
            run=self.folder,
            resume=resume,
        )

    def result(self):
        """What must be equal: weights, slots, random states, metrics and selections, without what a clock measured."""
        clocked = ("step_ms_median", "ratio", "train_seconds", "train_seconds_total")
        metrics = [{k: v for k, v in record.items() if k not in clocked} for record in self.folder.metrics()]
        variables = [
            *self.model.variables,
            *optimizers.variables_of(self.optimizer),
            *random_states(self.model),
        ]
        return [v.numpy() for v in variables], metrics, self.folder.selections()


@pytest.fixture
def sigint():
    """Python's own handling of SIGINT, also where pytest itself was started in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("sigint")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_resumed_equals_uninterrupted(tf, timings, tmp_path, scheme):
    whole = Run(tf, timings, tmp_path / "whole", scheme)
    whole.fit(ArrayData(tf, steps=STEPS))
    # In the middle of an epoch, at the last step of one, and while one is evaluated: every time a new model goes on.
    for resume, when in enumerate((("train", 0, 9), ("train", 1, STEPS - 1), ("test", 2), None)):
        parts = Run(tf, timings, tmp_path / "parts", scheme)
        data = InterruptedData(tf, when)
        if when:
            with pytest.raises(Interrupted, match="et-train --resume"):
                parts.fit(data, resume=bool(resume))
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        else:
            summary = parts.fit(data, resume=True).elastic
    (values, metrics, selections), (others, other_metrics, other_selections) = whole.result(), parts.result()
    assert metrics == other_metrics and selections == other_selections
    assert len(values) == len(others) > 20
    for value, other in zip(values, others):
        np.testing.assert_array_equal(value, other)
    assert summary["steps"] == STEPS * EPOCHS and summary["epochs"] == EPOCHS
    assert summary["selections"] == (len(selections) if scheme.startswith("elastic") else 0)


def test_checkpoints_hold_the_random_states(tf):
    model = small_network(tf)
    states = random_states(model)
    assert len(states) == 1
    before = states[0].numpy().copy()
    model(np.zeros((4, 8, 8, 3)), training=True)
    assert not np.array_equal(before, states[0].numpy())


@pytest.fixture
def saved(tf, tmp_path):
    """A variable with two checkpoints: 1.0 after step 1, 2.0 after step 2."""
    variable = tf.Variable(tf.zeros(1000))
    checkpoints = Checkpoints(tmp_path / "checkpoints", values=[variable])
    for step in (1, 2, 3):
        variable.assign(tf.fill([1000], float(step)))
        checkpoints.save(step, {"step": step})
    return variable, checkpoints


def test_two_checkpoints_are_kept_and_the_newest_is_restored(tf, saved):
    variable, checkpoints = saved
    assert [p.name for p in checkpoints.saved()] == ["step-000000003", "step-000000002"]
    variable.assign(tf.zeros(1000))
    assert checkpoints.restore(pytest.fail) == {"step": 3} and variable.numpy()[0] == 3


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
def test_a_damaged_checkpoint_is_said_and_the_older_one_used(tf, saved, file, damage):
    variable, checkpoints = saved
    damage(checkpoints.saved()[0] / file)
    said = []
    assert checkpoints.restore(said.append) == {"step": 2} and variable.numpy()[0] == 2
    assert len(said) == 1 and "step-000000003 is damaged" in said[0]
    assert [p.name for p in checkpoints.saved()] == ["step-000000002"]
    damage(checkpoints.saved()[0] / file)
    with pytest.raises(RunError, match="--overwrite"):
        checkpoints.restore(said.append)


def test_an_unfinished_checkpoint_is_removed(tf, saved):
    _, checkpoints = saved
    part = checkpoints.folder / ".step-000000004.123.part"
    part.mkdir()
    (part / "variables.index").write_bytes(b"half")
    assert checkpoints.restore(pytest.fail) == {"step": 3} and not part.exists()


@pytest.mark.parametrize(
    "when, message", [("before", "test loss is nan"), ("after", r"head/bias is not finite")]
)
def test_what_is_not_finite_is_not_saved(tf, timings, tmp_path, when, message):
    """A weight turns into NaN before or after the second evaluation."""

    class Poisoned(ArrayData):
        evaluations = 0

        def test(self):
            self.evaluations += 1
            if self.evaluations == 2 and when == "before":
                self.poison()
            yield from super().test()
            if self.evaluations == 2 and when == "after":
                self.poison()

        def poison(self):
            bias = poisoned.model.trainable_weights[
                -1
            ]  # behind every activation: on some CPUs ReLU turns NaN into 0
            bias.assign(tf.fill(bias.shape, np.nan))

    poisoned = Run(tf, timings, tmp_path / "run", "full")
    with pytest.raises(RunError, match=rf"{message} at step {2 * STEPS}.*learning-rate.*step-0000000{STEPS}"):
        poisoned.fit(Poisoned(tf, steps=STEPS))
    again = Run(tf, timings, tmp_path / "run", "full")
    assert again.fit(ArrayData(tf, steps=STEPS), resume=True).elastic["steps"] == STEPS * EPOCHS


def test_a_run_without_a_checkpoint_starts_anew(tf, timings, tmp_path):
    fresh = Run(tf, timings, tmp_path / "run", "full")
    fresh.folder.add_metrics({"epoch": 1})  # what a killed process may have left
    assert fresh.fit(ArrayData(tf, steps=STEPS), resume=True).elastic["epochs"] == EPOCHS
    assert [record["epoch"] for record in fresh.folder.metrics()] == [1, 2, 3, 4]


def test_only_data_from_a_function_can_be_resumed(tf, tmp_path):
    from elastictrainer import Trainer
    from elastictrainer.training.checkpointing import Checkpointing

    trainer = Trainer(small_network(tf), scheme="full")
    trainer.compile("sgd", "mse")
    saver = Checkpointing(RunFolder.create(tmp_path / "run"), resume=True)
    with pytest.raises(UsageError, match=r"function of \(epoch, first\)"):
        trainer.fit(np.zeros((8, 8, 8, 3)), np.zeros((8, 3)), callbacks=[saver])
    with pytest.raises(UsageError, match="pass steps_per_epoch"):
        trainer.fit(ArrayData(tf).stream)


def test_torn_and_later_lines_are_cut(tmp_path):
    run = RunFolder(tmp_path)
    for epoch in (1, 2, 3):
        run.add_metrics({"epoch": epoch})
    with open(run.metrics_path, "a") as file:
        file.write('{"epoch": 4')
    assert [r["epoch"] for r in run.metrics()] == [1, 2, 3]
    run.rewind(2, 0)
    run.add_metrics({"epoch": 3})
    assert [json.loads(line)["epoch"] for line in run.metrics_path.read_text().splitlines()] == [1, 2, 3]
