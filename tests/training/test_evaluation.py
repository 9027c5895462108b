"""Loss and accuracy on held-out images."""

import itertools
import json

import numpy as np
import pytest

from elastictrainer import Deadline, UsageError
from elastictrainer.training.clock import Clock
from elastictrainer.training.evaluation import Evaluation, Evaluator, sampling_error
from elastictrainer.training.state import RunState


@pytest.fixture
def model(tf):
    """Logits are the input."""
    head = tf.keras.layers.Dense(3, use_bias=False, kernel_initializer="identity")
    return tf.keras.Sequential([tf.keras.Input((3,)), head])


def minibatches(tf, sizes=(4, 4, 1)):
    random = np.random.default_rng(0)
    for size in sizes:
        x = random.normal(size=(size, 3)).astype(np.float32)
        yield tf.constant(x), tf.constant(random.integers(0, 3, size))


def expected(tf):
    x, y = (np.concatenate(parts) for parts in zip(*minibatches(tf)))
    losses = np.log(np.exp(x).sum(axis=1)) - x[np.arange(len(y)), y]
    return losses.mean(), (x.argmax(axis=1) == y).mean()


def figures(model, data):
    score = Evaluator(model)(data)
    return score.loss, score.accuracy


@pytest.mark.parametrize("columns", [False, True], ids=["labels in a row", "labels in a column"])
def test_every_image_counts_the_same_in_a_smaller_minibatch_as_well(tf, model, columns):
    given = [(x, y[:, None] if columns else y) for x, y in minibatches(tf)]
    assert figures(model, given) == pytest.approx(expected(tf), rel=1e-5)


def told_apart(tf):
    """Minibatches of which the second one is old."""
    return [(x, y, k == 1) for k, (x, y) in enumerate(minibatches(tf))]


def test_old_images_are_told_apart(tf, model):
    told = told_apart(tf)
    right = [int((x.numpy().argmax(axis=1) == y.numpy()).sum()) for x, y, _ in told]
    evaluator = Evaluator(model)
    score = evaluator(told)
    assert (score.loss, score.accuracy) == pytest.approx(figures(model, minibatches(tf)))
    assert score.old_and_new == {"accuracy_old": right[1] / 4, "accuracy_new": (right[0] + right[2]) / 5}
    assert evaluator(minibatches(tf)).old_and_new == {}


def test_figures_tell_old_from_new_also_after_a_resumption(tf, model):
    evaluation = make(model, told_apart(tf))
    train(evaluation, 1)
    assert {"accuracy_old", "accuracy_new"} < set(evaluation.conclude())
    assert resumed_from(evaluation).conclude() == evaluation.conclude()


def test_what_is_called_before_each_minibatch_may_end_it(tf, model):
    calls = itertools.count(1)

    def stop():
        if next(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Evaluator(model)(minibatches(tf), stop)
    assert next(calls) == 3


def make(model, *tests, epochs=None, every=1):
    """An evaluation in a run, on one of `tests` after another."""
    sets = iter(tests)
    evaluation = Evaluation(lambda: next(sets), every=every)
    evaluation.run_state = RunState(model, "full", None, Clock(epochs or len(tests)))
    return evaluation


def resumed_from(evaluation):
    """What a new process makes of the state of `evaluation`; it has nothing to evaluate on."""
    resumed = make(evaluation.run_state.model)
    resumed.run_state.progress = evaluation.run_state.progress
    resumed.restore(json.loads(json.dumps(evaluation.state())))
    return resumed


def train(evaluation, epochs):
    """The logs of so many epochs, in which the weights change a little."""
    every_log = [{} for _ in range(epochs)]
    (kernel,) = evaluation.run_state.model.variables
    for number, logs in enumerate(every_log):
        kernel.assign(kernel * 1.001)
        logs.update(evaluation.evaluate(number + 1))
        evaluation.run_state.progress.epoch_done(0.0)
    return every_log


def right_and_wrong():
    """Two test sets: the model is right about the first and wrong about the second."""
    return ([(10 * np.eye(3, dtype=np.float32), np.roll([0, 1, 2], k))] for k in (0, 1))


def test_an_epochs_logs_have_it_and_the_figures_the_best_and_the_last(tf, model):
    right, wrong = right_and_wrong()
    evaluation = make(model, wrong, right, wrong)
    epochs, watch = train(evaluation, 3), evaluation.run_state.clock.watch
    assert [logs["val_accuracy"] for logs in epochs] == [0, 1, 0]
    assert watch.training() == 0 < watch.of("validation")
    results = evaluation.conclude()
    assert (results["kept_weights"], results["kept_epoch"], results["accuracy"]) == ("model.keras", 3, 0)
    assert results["accuracy_best"] == 1 and results["loss"] == epochs[2]["val_loss"]
    assert resumed_from(evaluation).conclude() == results


def test_every_second_epoch_and_the_last_are_evaluated(tf, model):
    right, wrong = right_and_wrong()
    evaluation = make(model, wrong, right, wrong, epochs=5, every=2)
    logs = train(evaluation, 5)
    assert [log.get("val_accuracy") for log in logs] == [None, 0, None, 1, 0]
    results = evaluation.conclude()
    assert (results["kept_epoch"], results["accuracy"], results["accuracy_best"]) == (5, 0, 1)


def test_a_run_that_ends_between_two_evaluations_is_evaluated_at_its_end(tf, model):
    right, wrong = right_and_wrong()
    evaluation = make(model, wrong, right, epochs=9, every=2)
    train(evaluation, 3)
    results = evaluation.conclude()
    assert (results["kept_epoch"], results["accuracy"]) == (3, 1)
    assert evaluation.conclude() == results  # it was done once


def test_weights_that_a_callback_put_back_are_those_that_the_figures_are_of(tf, model):
    right, wrong = right_and_wrong()
    evaluation = make(model, right, wrong, wrong, right)
    first = [value * np.float32(1.001) for value in model.get_weights()]
    logs = train(evaluation, 3)
    model.set_weights(first)  # those evaluated after epoch 1
    results = evaluation.conclude()
    assert (results["kept_epoch"], results["accuracy"], results["loss"]) == (1, 1, logs[0]["val_loss"])
    model.set_weights([2 * value for value in first])  # of no epoch
    results = evaluation.conclude()
    assert (results["kept_epoch"], results["accuracy"]) == (3, 1) and results["loss"] < logs[0]["val_loss"]


def test_minibatches_that_can_be_read_once_only_are_refused_the_second_time(tf, model):
    once = minibatches(tf)
    evaluation = make(model, once, once)
    with pytest.raises(UsageError, match="again at each call"):
        train(evaluation, 2)


@pytest.mark.parametrize("last", ["activation", "layer", "function", "inside"])
def test_what_a_softmax_gives_are_probabilities(tf, last):
    layers = tf.keras.layers
    ending = {
        "activation": lambda: layers.Activation("softmax"),
        "layer": layers.Softmax,
        "function": lambda: layers.Activation(tf.nn.softmax),
        "inside": lambda: tf.keras.Sequential([layers.Softmax()]),
    }[last]()
    model = tf.keras.Sequential([tf.keras.Input((3,)), ending])
    assert figures(model, minibatches(tf)) == pytest.approx(expected(tf), rel=1e-4)


class Images:
    """Images of which 7 of 10 are right; each takes `image_s` seconds of a clock that it sets."""

    def __init__(self, tf, count, image_s):
        self.tf, self.count, self.image_s, self.now, self.read = tf, count, image_s, 0.0, []

    def __call__(self, first=None, end=None):
        self.read.append((first, end))
        numbers = np.arange(self.count)[slice(first, end)]
        for some in np.array_split(numbers, range(32, len(numbers), 32)):
            labels = np.where(some % 10 < 7, 0, 1)
            yield self.tf.constant(np.tile([9.0, 0, 0], (len(some), 1)), self.tf.float32), labels
            self.now += self.image_s(self.now) * len(some)

    def evaluation(self, model, seconds, image_s=None, reserve_s=0.0, later=0):
        """An evaluation in a run of so many seconds."""
        made = Evaluation(self, images=self.count)
        made._later = later
        model.compile("sgd", "mse")
        deadline = Deadline(
            seconds, lambda: reserve_s, images=self.count, image_s=image_s, age_s=lambda: self.now
        )
        made.run_state = RunState(model, "full", None, Clock(2, 4, deadline))
        return made


@pytest.mark.parametrize("count, read", [(8, 2), (100, 1)])
def test_what_an_image_takes_is_measured_without_compiling(tf, model, count, read, monkeypatch):
    """The clock of the evaluator tells a second for each look, and a hundred while it compiles."""
    test, seconds = Images(tf, count, lambda now: 0.0), iter([0, 100, *range(101, 999)])
    evaluation = test.evaluation(model, 20.0)
    monkeypatch.setattr(evaluation._evaluator, "_clock", lambda: next(seconds))
    evaluation.on_train_begin()
    assert test.read == [(0, 64)] * read
    assert evaluation.run_state.clock.image_s == pytest.approx(1 / (8 if count == 8 else 32), rel=0.2)


@pytest.mark.parametrize(
    "image_s, least, most",
    [
        (lambda now: 0.01, 1000, 1000),
        (lambda now: 0.05, 320, 400),
        (lambda now: 0.05 if now < 5 else 0.15, 160, 280),  # another process begins
        (lambda now: 0.15 if now < 5 else 0.03, 350, 550),
        (lambda now: 9.9, 16, 16),
    ],
    ids=["all", "some", "slower", "faster", "far too slow: late, but a result"],
)
def test_as_many_images_are_evaluated_as_there_is_time_for(tf, model, image_s, least, most):
    """20 s are left, and 1 s of them is for the rest."""
    test = Images(tf, 1000, image_s)
    evaluation = test.evaluation(model, 20.0, image_s=0.05, reserve_s=1.0)
    evaluation.run_state.progress.epoch_done(0.0)
    summary = evaluation.conclude()
    count = summary["evaluated_images"]
    assert summary["test_images"] == 1000 and least <= count <= most
    assert summary["accuracy_error"] == sampling_error(summary["accuracy"], count, 1000)
    assert count != 1000 or (summary["accuracy"] == 0.7 and summary["accuracy_error"] == 0)
    assert least == most or 15 < test.now <= 21
    ends = [end for _, end in test.read]
    assert [first for first, _ in test.read] == [0, *ends[:-1]], "each part goes on behind the one before"


def test_there_is_nothing_to_sample_without_a_deadline_or_with_time_enough(tf, model):
    test = Images(tf, 100, lambda now: 0.01)
    test.evaluation(model, 100.0, image_s=0.01).evaluate(0)
    without = test.evaluation(model, 100.0)
    without.run_state.clock = Clock(2, 4)
    without.evaluate(0)
    assert without.run_state.evaluated["accuracy_error"] == 0 and test.read == [(None, None)] * 2


def test_a_solved_head_is_evaluated_in_little_of_the_time_and_a_sample_is_no_result(tf, model):
    test = Images(tf, 4000, lambda now: 0.01)
    evaluation = test.evaluation(model, 400.0, image_s=0.01)
    evaluation.evaluate(0)
    record = evaluation.run_state.evaluated
    assert 1000 <= record["evaluated_images"] <= 1220 and test.now <= 12.2, "3 % are 12 s: 1,200 images"
    assert record["accuracy_error"] > 0 and evaluation.state() == []
    evaluation.run_state.model.stop_training = True
    evaluation.evaluate(1)
    assert evaluation.run_state.evaluated["evaluated_images"] == 4000, "the time that is left"
    evaluation.run_state.progress.epoch_done(1.0)
    read = len(test.read)
    assert evaluation.conclude()["accuracy"] == 0.7 and len(test.read) == read, "these weights are known"
    short, model.stop_training = Images(tf, 4000, lambda now: 0.01), False
    assert short.evaluation(model, 300.0, image_s=0.01).evaluate(0) == {} and not short.read


def test_what_is_evaluated_later_at_the_end_keeps_its_share_of_the_time(tf, model):
    test = Images(tf, 1000, lambda now: 0.05)
    evaluation = test.evaluation(model, 20.0, image_s=0.05, later=3000)
    evaluation.run_state.progress.epoch_done(0.0)
    evaluation.conclude()
    assert 3 < test.now <= 5, "a quarter"


def test_what_an_image_takes_is_measured_at_the_start_where_it_is_not_known(tf, model):
    test = Images(tf, 1000, lambda now: 0.01)
    evaluation = test.evaluation(model, 100.0)
    evaluation.on_train_begin()
    assert test.read == [(0, 64)] and evaluation.run_state.clock.image_s > 0
    known = test.evaluation(model, 100.0, image_s=0.02)
    known.on_train_begin()
    assert len(test.read) == 1 and known.run_state.clock.image_s == 0.02


@pytest.mark.parametrize("right, images, of", [(0.884, 700, 2903), (1.0, 40, 1000), (0.5, 300, 400)])
def test_the_error_holds_in_95_of_100_samples(right, images, of):
    """By drawing many samples of images of which a share is right."""
    random = np.random.default_rng(1)
    drawn = random.hypergeometric(round(right * of), of - round(right * of), images, 4000) / images
    held = [abs(found - round(right * of) / of) <= sampling_error(found, images, of) for found in drawn]
    assert 0.94 <= np.mean(held) <= 1.0
    assert sampling_error(right, of, of) == 0 < sampling_error(right, images, of) < 0.15


def test_minibatches_of_any_size_need_one_graph(tf, model, monkeypatch):
    traced, minibatch = [], Evaluator._minibatch
    monkeypatch.setattr(Evaluator, "_minibatch", lambda *given: traced.append(1) or minibatch(*given))
    evaluator = Evaluator(model)
    for sizes in ((2,), (4, 4, 1)):
        evaluator(minibatches(tf, sizes))
    assert len(traced) == 1


def test_the_time_of_an_image_leaves_out_compiling(tf, model):
    now = [0.0]

    def timed(sizes, seconds):
        for size, taken in zip(sizes, seconds):
            now[0] += taken
            yield tf.zeros((size, 3)), tf.zeros(size, tf.int64)

    evaluator = Evaluator(model, clock=lambda: now[0])
    evaluator(timed([4, 4, 2], [100.0, 8.0, 4.0]))
    assert evaluator.image_s == 2.0
    evaluator(timed([4, 4, 2], [10.0, 8.0, 2.0]))
    assert evaluator.image_s == 2.0, "the graph is there"
    alone = Evaluator(model, clock=lambda: now[0])
    alone(timed([4], [100.0]))
    assert alone.image_s == 0.0, "not known: there is no other minibatch"
