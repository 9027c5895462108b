"""The scores of tensors: by hand on a quadratic; and on a network, that scoring changes nothing."""

import numpy as np
import pytest

from builders import ArrayData, small_network, tensor_names
from elastictrainer import ImportanceEvaluator, Objective, RunError, UsageError
from elastictrainer.errors import DataError, NotFinite
from elastictrainer.experiment.assembly import configure
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import CompiledStep, CompiledSteps
from elastictrainer.steps.keras_compat import own_steps
from elastictrainer.steps.keras_compat.variables import random_states
from elastictrainer.steps.objective import classification_loss


def quadratic(tf, start):
    """loss = 1/2 |w - (1, 2, 3)|^2 for a model that returns its kernel."""
    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(3, use_bias=False)])
    model.layers[-1].kernel.assign(np.array([start], np.float32))
    goal = tf.constant([[1.0, 2.0, 3.0]])
    batch = tf.ones((1, 1)), tf.zeros((1,))
    return Objective(model, lambda y, out: 0.5 * tf.reduce_sum(tf.square(out - goal))), batch


def test_update_importance_of_a_quadratic(tf):
    # gradient d = w - goal, update -r d, gradient after it (1 - r) d: importance r (1 - r) |d|^2 for each
    # minibatch.
    objective, batch = quadratic(tf, [3.0, 2.0, 0.0])
    for rate in (0.1, 0.5, 1.5):
        evaluator = ImportanceEvaluator(objective, tf.keras.optimizers.SGD(rate))
        expected = rate * (1 - rate) * (2.0**2 + 3.0**2)
        np.testing.assert_allclose(evaluator([batch, batch]), [2 * expected], rtol=1e-5)


@pytest.mark.parametrize("used", [True, False])
def test_update_importance_uses_the_momentum_the_optimizer_has_where_it_is_up_to_date(tf, used):
    objective, batch = quadratic(tf, [3.0, 2.0, 0.0])
    optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
    optimizers.build(optimizer, objective.model.trainable_weights)
    momentum = next(v for v in optimizer.variables if v.shape == (1, 3))
    momentum.assign([[1.0, 0.0, 0.0]])
    d = np.array([2.0, 0.0, -3.0])
    update = 0.9 * used * np.array([1.0, 0.0, 0.0]) - 0.1 * d
    evaluator = ImportanceEvaluator(objective, optimizer, momentum=used)
    np.testing.assert_allclose(evaluator([batch]), [-np.dot(d + update, update)], rtol=1e-5)
    np.testing.assert_array_equal(momentum, [[1.0, 0.0, 0.0]])


FURTHER = [pytest.param(name, marks=pytest.mark.slow) for name in ("Adamax", "RMSprop", "Adagrad")]


@pytest.mark.parametrize("name", ["Adam", "AdamW", "Nadam", *FURTHER])
def test_a_tensor_that_rested_is_scored_as_one_that_trains(tf, name):
    """loss = -(kernel + bias): both have the gradient -1, before an update and after it."""
    layer, inputs = tf.keras.layers.Dense(1), tf.keras.Input((1,))
    model = tf.keras.Model(inputs, layer(inputs))
    objective = Objective(model, lambda y, out: -tf.reduce_sum(out))
    batch = tf.ones((1, 1)), tf.zeros((1,))

    def new():
        made = getattr(tf.keras.optimizers, name)(0.01)
        optimizers.prepare_freezing(made, model.trainable_variables)
        return made

    used = new()
    kernel, bias = model.trainable_variables
    for chosen in ([kernel, bias], [bias]):  # the kernel rests
        for _ in range(48):
            own_steps.apply(used, [(-tf.ones(v.shape), v) for v in chosen])
        optimizers.reset_slots(used, [kernel])
    used.iterations.assign_add(3000)
    scores = ImportanceEvaluator(objective, used, momentum=False)([batch])
    expected = ImportanceEvaluator(objective, new(), momentum=False)([batch])
    np.testing.assert_allclose(scores, expected, rtol=1e-4)
    assert scores[0] == pytest.approx(scores[1], rel=0.01)  # AdamW's decay differs by the weight


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_scoring_without_slots_gives_the_same_scores_and_leaves_no_trace(tf, tmp_path, name):
    model, optimizer = small_network(tf, dropout=0), optimizers.make(name, 0.01)
    optimizers.prepare_freezing(optimizer, model.trainable_variables)
    evaluator = ImportanceEvaluator(Objective(model, classification_loss()), optimizer, momentum=False)
    batches = list(ArrayData(tf).train(0))
    state = [*model.variables, *optimizers.variables_of(optimizer)]
    before = [v.numpy() for v in state]
    expected = evaluator(batches)
    evaluator.release()
    # Graphs are optimised there, so that last bits differ; biases before a normalisation score such bits.
    noise = 1e-6 * expected.max()
    np.testing.assert_allclose(evaluator(batches, tmp_path), expected, rtol=1e-6, atol=noise)
    np.testing.assert_allclose(evaluator(batches), expected, rtol=1e-6)  # nothing of the file is left
    for variable, value in zip(state, before):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_magnitude_metrics_by_hand(tf):
    objective, batch = quadratic(tf, [3.0, -2.0, 0.0])
    sgd = tf.keras.optimizers.SGD(0.1)
    np.testing.assert_allclose(ImportanceEvaluator(objective, sgd, "weight-magnitude")([batch]), [5.0])
    np.testing.assert_allclose(
        ImportanceEvaluator(objective, sgd, "grad-magnitude")([batch]), [2.0 + 4.0 + 3.0]
    )


def test_a_new_head_has_no_weights_and_counts_as_the_largest_tensor_by_weight_magnitude(tf):
    inner = tf.keras.layers.Dense(3, kernel_initializer="ones", bias_initializer="ones")
    head = tf.keras.layers.Dense(2, kernel_initializer="zeros")
    objective = Objective(tf.keras.Sequential([tf.keras.Input((4,)), inner, head]), None)
    scores = ImportanceEvaluator(objective, tf.keras.optimizers.SGD(0.1), "weight-magnitude")([])
    np.testing.assert_array_equal(scores, [12.0, 3.0, 12.0, 12.0])


def train_a_little(tf, optimizer_name, metric=None):
    """Three training steps from a fixed seed; with `metric`, tensors are scored after the first.

    Returns:
        The losses, and the model's variables afterwards.
    """
    configure(seed=3)
    layers = tf.keras.layers
    # Augmentation and dropout draw random numbers; batch norm updates its statistics in training.
    inputs = tf.keras.Input((8, 8, 3))
    x = small_network(tf)(layers.RandomRotation(0.2)(layers.RandomFlip()(inputs)))
    model = tf.keras.Model(inputs, layers.Dense(3)(layers.Dropout(0.5)(layers.BatchNormalization()(x))))
    make = {"keras-sgd": lambda: optimizers.keras_sgdw(0.1, 0.01, 0.9)}
    optimizer = make.get(optimizer_name, lambda: optimizers.make(optimizer_name, 0.01))()
    optimizers.build(optimizer, model.trainable_weights)
    objective = Objective(model, classification_loss())
    step = CompiledStep(objective, optimizer, model.trainable_weights)
    batches = list(ArrayData(tf, steps=4).train(0))
    losses = [step(*batches[0]).numpy()]
    if metric:
        step.trace(*batches[0])
        watched = [*step.state(), *model.variables, *optimizers.variables_of(optimizer)]
        before = [v.numpy().copy() for v in watched]
        ImportanceEvaluator(objective, optimizer, metric)(batches[1:3])
        for variable, value in zip(watched, before):
            np.testing.assert_array_equal(variable.numpy(), value, err_msg=variable.name)
        states = random_states(model)
        assert states and {id(s) for s in states} <= {id(v) for v in watched}, "no RNG state is watched"
    losses += [step(*batch).numpy() for batch in batches[2:]]
    return losses, [v.numpy() for v in model.variables]


@pytest.mark.parametrize(
    "optimizer, metrics",
    [
        ("sgd", ["update", "grad-magnitude", "weight-magnitude"]),
        ("adam", ["update"]),
        pytest.param("keras-sgd", ["update"], marks=pytest.mark.slow),
    ],
)
def test_scoring_leaves_every_variable_and_the_training_after_it_bit_identical(tf, optimizer, metrics):
    """The magnitudes use no optimizer."""
    losses, weights = train_a_little(tf, optimizer)
    for metric in metrics:
        losses_with, weights_with = train_a_little(tf, optimizer, metric)
        assert losses_with == losses
        for a, b in zip(weights_with, weights):
            np.testing.assert_array_equal(a, b)


def test_weights_are_restored_where_a_probe_fails(tf):
    objective, batch = quadratic(tf, [3.0, 2.0, 0.0])

    def failing():
        yield batch
        raise OSError("the disk is gone")

    with pytest.raises(OSError):
        ImportanceEvaluator(objective, tf.keras.optimizers.SGD(0.1))(failing())
    np.testing.assert_array_equal(objective.model.trainable_weights[0].numpy(), [[3.0, 2.0, 0.0]])


def test_scoring_refuses_unknown_metrics_no_minibatch_and_infinite_losses(tf):
    objective, batch = quadratic(tf, [3.0, 2.0, 0.0])
    with pytest.raises(UsageError, match="weight-magnitude"):
        ImportanceEvaluator(objective, None, "weight")
    with pytest.raises(UsageError, match="minibatch"):
        ImportanceEvaluator(objective, tf.keras.optimizers.SGD(0.1))([])
    objective.model.trainable_weights[0].assign([[np.inf, 0, 0]])
    with pytest.raises(RunError, match="not finite"):
        ImportanceEvaluator(objective, tf.keras.optimizers.SGD(0.1))([batch])


def test_a_tensor_the_loss_does_not_depend_on_scores_zero(tf):
    inputs = tf.keras.Input((2,))
    used, unused = tf.keras.layers.Dense(3, name="used"), tf.keras.layers.Dense(3, name="unused")
    model = tf.keras.Model(inputs, [used(inputs), unused(inputs)])
    objective = Objective(model, lambda y, out: tf.reduce_mean(tf.square(out[0] - 1.0)))
    scores = ImportanceEvaluator(objective, tf.keras.optimizers.SGD(0.1))([(tf.ones((2, 2)), tf.zeros(2))])
    connected = np.array([name.startswith("used") for name in tensor_names(model)])
    assert np.all(scores[~connected] == 0) and np.all(scores[connected] > 0)


def test_minibatches_of_another_length_build_no_new_graph_each(tf):
    model = tf.keras.Sequential(
        [tf.keras.Input((None, 2)), tf.keras.layers.GlobalAveragePooling1D(), tf.keras.layers.Dense(3)]
    )
    traced = []

    def loss(y, out):
        traced.append(out)
        return classification_loss()(y, out)

    objective, sgd = Objective(model, loss), tf.keras.optimizers.SGD(0.1)
    steps = CompiledSteps(objective, sgd)
    optimizers.build(sgd, model.trainable_variables)
    full = steps.get(np.ones(2, bool))
    full.trace(tf.TensorSpec((4, None, 2)), tf.TensorSpec(4, tf.int64))  # as a run does
    evaluator = ImportanceEvaluator(objective, sgd, steps=steps)
    for length in range(3, 11):
        evaluator([(tf.ones((4, length, 2)), tf.zeros(4, tf.int64))])
        if length == 5:
            built = len(traced)
    assert len(traced) == built


def test_a_minibatch_that_is_not_finite_is_named(tf):
    model = small_network(tf)
    optimizer = optimizers.make("sgd")
    evaluator = ImportanceEvaluator(Objective(model, classification_loss()), optimizer)
    x, y = next(ArrayData(tf).train(0))
    with pytest.raises(DataError, match="the inputs of minibatch 2 that tensors are scored on hold NaN"):
        evaluator([(x, y), (x * np.nan, y)])
    model.trainable_weights[0].assign(model.trainable_weights[0] * np.nan)
    with pytest.raises(NotFinite, match="importance of .* is not finite. Lower the learning rate"):
        evaluator([(x, y)])
