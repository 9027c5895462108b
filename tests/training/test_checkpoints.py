"""Interrupted and resumed equals uninterrupted, to the bit; nothing good is lost; signals."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from builders import ArrayData, address, compiled_trainer, invented_profile, small_network, train_classifier
from elastictrainer import RunError, UsageError
from elastictrainer.errors import Interrupted
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.selection import schemes
from elastictrainer.steps import optimizers
from elastictrainer.steps.keras_compat.variables import random_states
from elastictrainer.training.callbacks import TrainerCallback
from elastictrainer.training.checkpoints import CheckpointFiles, Checkpointing, Interruption
from log_lines import listen

STEPS, EPOCHS = 16, 4
CLOCKED = ("step_ms_median", "ratio", "train_seconds", "train_seconds_total")


class InterruptedData(ArrayData):
    """Sends SIGINT before it hands out a given minibatch: ("train", epoch, number) or ("test", call)."""

    def __init__(self, tf, when=None):
        super().__init__(tf, steps=STEPS)
        self.when, self.evaluations = when, 0

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
def profile(tf):
    return invented_profile(small_network(tf))


class Run:
    """A model to train into a folder; every one made alike."""

    def __init__(self, tf, profile, folder, scheme):
        tf.keras.utils.set_random_seed(3)
        self._tf, self._profile, self._scheme = tf, profile, scheme
        self.model = small_network(tf)
        self.folder = RunFolder(folder)
        folder.mkdir(exist_ok=True)
        self.folder.write_config({"scheme": scheme, "rho": 0.9})
        self.optimizer = optimizers.make("sgd", 0.05)

    def fit(self, data, resume=False):
        options = {"scheme": self._scheme, "profile": self._profile, "rho": 0.9, "epochs": EPOCHS}
        options.update(interval=1, importance_batches=2, deterministic=True, activation_cache="off")
        run = self.folder, resume
        return train_classifier(self._tf, self.model, data, self.optimizer, *run, **options)

    def result(self):
        """Return the parts that must be equal: variables, metrics and selections, without measured times."""
        metrics = [{k: v for k, v in record.items() if k not in CLOCKED} for record in self.folder.metrics()]
        model, optimizer = self.model, optimizers.variables_of(self.optimizer)
        variables = [v.numpy() for v in [*model.variables, *optimizer, *random_states(model)]]
        return variables, metrics, self.folder.selections()


@pytest.mark.usefixtures("sigint")
def test_a_checkpoint_of_another_version_is_refused_and_nothing_is_cut(tf, profile, tmp_path, monkeypatch):
    run = Run(tf, profile, tmp_path / "run", "elastic")
    with pytest.raises(Interrupted):
        run.fit(InterruptedData(tf, ("train", 2, 2)))
    metrics = run.folder.metrics()
    monkeypatch.setattr(CheckpointFiles, "restore", lambda self: {"cache_write": None, "callbacks": {}})
    with pytest.raises(RunError, match="another version.*--output"):
        Run(tf, profile, tmp_path / "run", "elastic").fit(ArrayData(tf, steps=STEPS), resume=True)
    assert metrics and run.folder.metrics() == metrics


def fit(tf, callbacks, optimizer="sgd", steps=2, **options):
    """Train all of a small network, with checkpoints among the callbacks."""
    tf.keras.utils.set_random_seed(3)
    trainer = compiled_trainer(tf, small_network(tf), optimizer, scheme="full")
    stream = ArrayData(tf, steps=steps).stream
    return trainer.fit(stream, steps_per_epoch=steps, callbacks=callbacks, verbose=0, **options)


def interrupted_after(tf, step, stop_training=False):
    """A callback that sends SIGINT after so many steps."""
    done = itertools.count(1)

    class Interrupting(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if next(done) == step:
                self.model.stop_training |= stop_training
                os.kill(os.getpid(), signal.SIGINT)

    return Interrupting()


# With selections; with work of its own at each interval.
MARKS = {"elastic": [], "prunetrain": pytest.mark.slow}


@pytest.mark.usefixtures("sigint")
@pytest.mark.parametrize(
    "scheme", [pytest.param(s, marks=MARKS.get(s, pytest.mark.long)) for s in schemes.SCHEMES]
)
def test_resumed_equals_uninterrupted(tf, profile, tmp_path, scheme):
    whole = Run(tf, profile, tmp_path / "whole", scheme)
    whole.fit(ArrayData(tf, steps=STEPS))
    # In the middle of an epoch, at the last step of one, and while one is evaluated: each time a new model.
    for resume, when in enumerate((("train", 0, 9), ("train", 1, STEPS - 1), ("test", 2), None)):
        parts = Run(tf, profile, tmp_path / "parts", scheme)
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
    assert summary["selections"] == (len(selections) if schemes.selects(scheme) else 0)


@pytest.mark.usefixtures("sigint")
@pytest.mark.parametrize("step", [3, pytest.param(6, marks=pytest.mark.slow, id="at the last step")])
def test_a_resumed_epoch_has_the_metrics_and_keras_validation_of_a_whole_one(tf, tmp_path, step):
    def train(*callbacks):
        validation = ArrayData(tf, seed=1).stream().take(2)
        return fit(tf, callbacks, "adam", 6, epochs=2, validation_data=validation)

    whole = train(Checkpointing(RunFolder(tmp_path / "whole"))).history
    run = RunFolder(tmp_path / "parts")
    with pytest.raises(Interrupted, match=rf"step {step}\..*Checkpointing\(..., resume=True\)"):
        train(interrupted_after(tf, step), Checkpointing(run))
    resumed = train(Checkpointing(run, resume=True))
    assert resumed.epoch == [0, 1]
    for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
        assert resumed.history[name] == pytest.approx(whole[name], rel=1e-6), name


@pytest.mark.usefixtures("sigint")
def test_a_run_that_a_callback_has_stopped_is_resumed_to_the_end_of_its_epoch(tf, tmp_path):
    run = RunFolder(tmp_path / "run")
    with pytest.raises(Interrupted, match=r"step 3\."):
        fit(tf, [interrupted_after(tf, 3, stop_training=True), Checkpointing(run)], steps=6, epochs=2)
    history = fit(tf, [Checkpointing(run, resume=True)], steps=6, epochs=2)
    assert history.elastic["steps"] == 3 and history.epoch == [0]


def test_within_an_epoch_one_is_written_every_few_minutes(tf, tmp_path):
    for minutes, expected in ((10.0, [0, 0, 2, 2]), (0.0, [0, 1, 2, 3])):
        run, newest = RunFolder(tmp_path / str(minutes)), []

        def note(batch, logs, run=run, newest=newest):
            steps = [int(path.name[len("step-") :]) for path in run.checkpoints_path.glob("step-*")]
            newest.append(max(steps, default=0))

        note_each = tf.keras.callbacks.LambdaCallback(on_train_batch_end=note)
        fit(tf, [note_each, Checkpointing(run, minutes)], epochs=2)
        assert newest == expected


@pytest.mark.parametrize(
    "when, message",
    [
        pytest.param("before", "test loss is nan", marks=pytest.mark.slow),
        ("after", r"head/bias is not finite"),
    ],
)
def test_what_is_not_finite_is_not_saved(tf, profile, tmp_path, when, message):
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
            # Behind every activation: on some CPUs ReLU turns NaN into 0.
            bias = poisoned.model.trainable_weights[-1]
            bias.assign(tf.fill(bias.shape, np.nan))

    poisoned = Run(tf, profile, tmp_path / "run", "full")
    with pytest.raises(RunError, match=rf"{message} at step {2 * STEPS}.*learning-rate.*step-0000000{STEPS}"):
        poisoned.fit(Poisoned(tf, steps=STEPS))
    again = Run(tf, profile, tmp_path / "run", "full")
    assert again.fit(ArrayData(tf, steps=STEPS), resume=True).elastic["steps"] == STEPS * EPOCHS


def test_a_run_that_diverges_is_ended_and_one_without_a_checkpoint_starts_anew(tf, profile, tmp_path):
    fresh = Run(tf, profile, tmp_path / "run", "full")
    fresh.optimizer = optimizers.make("sgd", 1e20)
    with pytest.raises(RunError, match="at step .*learning-rate"):
        fresh.fit(ArrayData(tf, steps=STEPS))
    fresh = Run(tf, profile, tmp_path / "run", "full")
    fresh.folder.add_metrics({"epoch": 1})  # what a killed process may have left
    assert fresh.fit(ArrayData(tf, steps=STEPS), resume=True).elastic["epochs"] == EPOCHS
    assert [record["epoch"] for record in fresh.folder.metrics()] == [1, 2, 3, 4]


def test_another_runs_checkpoints_are_refused_and_data_that_is_no_function_to_resume_on(tf, tmp_path):
    run = RunFolder(tmp_path / "run")
    fit(tf, [Checkpointing(run)])
    with pytest.raises(UsageError, match="earlier run.*resume=True"):
        fit(tf, [Checkpointing(run)])
    saver = Checkpointing(run, resume=True)
    fit(tf, [saver])
    trainer = compiled_trainer(tf, small_network(tf), scheme="full")
    with pytest.raises(UsageError, match=r"\(epoch, first\)"):
        trainer.fit(np.zeros((8, 8, 8, 3)), np.zeros(8), callbacks=[saver])


def test_two_callbacks_that_would_share_a_state_are_refused(tf, tmp_path):
    class Count(TrainerCallback):
        def state(self):
            return 1

    class Silent(TrainerCallback):
        """Keeps no state: any number of it may be there."""

    saver = Checkpointing(RunFolder(tmp_path / "run"))
    with pytest.raises(UsageError, match="two callbacks Count"):
        fit(tf, [Count(), Count(), saver])
    fit(tf, [Count(), Silent(), Silent(), saver])


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_rate_that_a_callback_has_set_stays_set(tf, tmp_path, optimizer):
    run, rates = RunFolder(tmp_path / "run"), []

    def train(epochs, **options):
        made = optimizers.make(optimizer, 0.1)
        note = tf.keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs: rates.append(optimizers.learning_rate_of(made)),
            on_epoch_end=lambda epoch, logs: made.learning_rate.assign(0.025),
        )
        fit(tf, [note, Checkpointing(run, **options)], made, epochs=epochs)

    train(1)
    train(2, resume=True)
    assert rates == pytest.approx([0.1, 0.025])


@pytest.fixture
def saved(tf, tmp_path):
    """A variable, and its checkpoints after the steps 1, 2 and 3, whose numbers are its values."""
    variable = tf.Variable(tf.zeros(1000))
    checkpoints = CheckpointFiles(tmp_path / "checkpoints", values=[variable])
    for step in (1, 2, 3):
        variable.assign(tf.fill([1000], float(step)))
        checkpoints.save(step, {"step": step})
    return variable, checkpoints


def restored_silently(checkpoints):
    """Restore; the user is told nothing."""
    listen(pytest.fail)
    return checkpoints.restore()


def names(checkpoints):
    return [path.name for path in checkpoints.saved()]


def test_two_checkpoints_are_kept_and_the_newest_is_restored(tf, saved):
    variable, checkpoints = saved
    assert names(checkpoints) == ["step-000000003", "step-000000002"]
    variable.assign(tf.zeros(1000))
    assert restored_silently(checkpoints) == {"step": 3} and variable.numpy()[0] == 3


def test_zeros_that_are_restored_take_no_memory_of_their_own(tf, tmp_path):
    slots = [tf.Variable(tf.zeros((16, 16))) for _ in range(3)]
    slots[2].assign_add(tf.ones((16, 16)))
    checkpoints = CheckpointFiles(tmp_path / "checkpoints", slots=slots)
    checkpoints.save(1, {})
    slots[0].assign_add(tf.ones((16, 16)))
    assert restored_silently(checkpoints) == {}
    assert [slot.numpy().max() for slot in slots] == [0, 0, 1]
    assert address(slots[0]) == address(slots[1])


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


@pytest.mark.parametrize("shapes", [[(2000,)], [(1000,), (3,)]], ids=["shape", "number"])
def test_a_checkpoint_of_another_model_is_no_damaged_one(tf, saved, shapes):
    _, checkpoints = saved
    others = [tf.Variable(tf.ones(shape)) for shape in shapes]
    with pytest.raises(RunError, match="step-000000003 is of another model.* of its 2 variables"):
        CheckpointFiles(checkpoints.folder, values=others).restore()
    assert all((variable.numpy() == 1).all() for variable in others)
    assert names(checkpoints) == ["step-000000003", "step-000000002"]


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
def test_any_path_can_be_restored_from_once_something_was_saved(tf, tmp_path, name):
    variable = tf.Variable(5.0)
    checkpoints = CheckpointFiles(tmp_path / name / "checkpoints", values=[variable])
    assert restored_silently(checkpoints) is None and variable.numpy() == 5
    checkpoints.save(1, {"step": 1})
    variable.assign(0.0)
    assert restored_silently(checkpoints) == {"step": 1} and variable.numpy() == 5


def test_an_unfinished_checkpoint_is_removed(saved):
    _, checkpoints = saved
    part = checkpoints.folder / ".step-000000004.123.part"
    part.mkdir()
    (part / "variables.index").write_bytes(b"half")
    assert restored_silently(checkpoints) == {"step": 3} and not part.exists()


def test_one_that_cannot_be_written_leaves_those_before_it(tf, tmp_path, saved):
    _, checkpoints = saved
    (checkpoints.folder / f".step-000000004.{os.getpid()}.part").write_text("in the way")
    with pytest.raises(RunError, match="checkpoint.*step-000000003"):
        checkpoints.save(4, {"step": 4})
    assert names(checkpoints) == ["step-000000003", "step-000000002"]
    (tmp_path / "first").write_text("in the way")
    with pytest.raises(RunError, match="checkpoint.*none before"):
        CheckpointFiles(tmp_path / "first", values=[tf.Variable(0.0)]).save(1, {})


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def number(request):
    """A signal, with Python's own handling: a shell's background job ignores SIGINT."""
    own = signal.default_int_handler if request.param == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(request.param, own)
    yield request.param
    signal.signal(request.param, before)


def test_a_signal_is_noted_and_handlers_are_put_back(number):
    before = signal.getsignal(number)
    with Interruption() as interruption:
        assert not interruption.asked
        os.kill(os.getpid(), number)
        assert interruption.asked
        assert signal.getsignal(number) is signal.SIG_DFL, "the next one is held back as well"
    assert signal.getsignal(number) is before
    with interruption:
        assert not interruption.asked, "entered again"


def test_what_is_ignored_stays_ignored(number):
    signal.signal(number, signal.SIG_IGN)
    with Interruption() as interruption:
        os.kill(os.getpid(), number)
        assert not interruption.asked
    assert signal.getsignal(number) is signal.SIG_IGN


def test_outside_the_main_thread_it_does_nothing(number):
    before, seen = signal.getsignal(number), []

    def enter():
        with Interruption():
            seen.append(signal.getsignal(number))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_second_signal_ends_the_process_at_once():
    endless = (
        "import time\nfrom elastictrainer.training.checkpoints import Interruption\n"
        "with Interruption() as interruption:\n    print('go', flush=True)\n"
        "    while not interruption.asked: time.sleep(0.01)\n"
        "    print('asked', flush=True)\n    while True: time.sleep(0.01)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", endless],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        for word in ("go", "asked"):
            assert process.stdout.readline().strip() == word
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=280) == -signal.SIGINT  # 130 to a shell
    finally:
        process.kill()
        process.stdout.close()
