"""The last layer solved: against scikit-learn, and which layers can be solved."""

import numpy as np
import pytest

from elastictrainer import UsageError
from elastictrainer.models import zoo
from elastictrainer.models.solved_head import PENALTY, SolvableHead, hold_columns, solve


def problem(count=240, width=12, classes=4, seed=0):
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, count)
    centres = random.normal(size=(classes, width))
    features = centres[labels] + random.normal(size=(count, width)) + 3.0
    return features.astype(np.float32), np.eye(classes, dtype=np.float32)[labels], labels


def test_it_is_the_multinomial_logistic_regression_of_scikit_learn():
    from sklearn.linear_model import LogisticRegression

    features, targets, labels = problem()
    kernel, bias, loss = solve(features, targets)
    scale = np.sqrt(np.square(features - features.mean(axis=0)).sum(axis=1).mean())
    # Its objective is C times the sum of losses, and half the squared weights; ours is on scaled ones.
    model = LogisticRegression(C=1 / (PENALTY * scale**2), tol=1e-8, max_iter=5000).fit(features, labels)
    expected = model.predict_proba(features)
    logits = features @ kernel + bias
    found = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=0.02)
    assert (found.argmax(axis=1) == expected.argmax(axis=1)).mean() > 0.99
    assert loss == pytest.approx(-np.log(found[np.arange(len(labels)), labels]).mean(), rel=1e-3)


def test_weights_count_as_copies_do():
    features, targets, _ = problem(count=60)
    weights = np.where(np.arange(60) < 20, 3.0, 1.0)
    copied = np.repeat(np.arange(60), weights.astype(int))
    # The mean weight scales the loss against the penalty; with a mean of 1 both are the same problem.
    both = solve(features[copied], targets[copied]), solve(features, targets, weights)
    one, other = ((features @ kernel + bias).argmax(axis=1) for kernel, bias, _ in both)
    np.testing.assert_array_equal(one, other)


def test_smoothed_targets_give_smaller_logits():
    features, targets, labels = problem()
    sharp, smooth = (solve(features, t) for t in (targets, targets * 0.8 + 0.2 / 4))
    assert np.abs(smooth[0]).mean() < np.abs(sharp[0]).mean()
    assert ((features @ smooth[0] + smooth[1]).argmax(axis=1) == labels).mean() > 0.9


def test_without_a_bias_it_is_zero_and_a_class_without_examples_is_never_chosen():
    features, targets, _ = problem()
    _, bias, _ = solve(features, targets, use_bias=False)
    assert (bias == 0).all()
    kernel, bias, _ = solve(features, np.concatenate([targets, np.zeros((len(targets), 1))], axis=1))
    assert (features @ kernel + bias).argmax(axis=1).max() == 3


def test_a_feature_that_is_not_finite_is_an_error():
    features, targets, _ = problem(count=20)
    features[3, 5] = np.nan
    with pytest.raises(UsageError, match="feature.*not finite"):
        solve(features, targets)


def test_the_head_of_a_built_in_model_takes_the_pooled_features_of_inference(tf):
    model = zoo.create("demo", 3, 32, "none", "solve", augment="strong")
    head = SolvableHead(model)
    images = tf.random.uniform((2, 32, 32, 3), 0, 255)
    features = head.features(images)
    np.testing.assert_array_equal(features, head.features(images))  # neither dropout nor augmentation
    head.assign(np.ones((96, 3), np.float32), np.arange(3, dtype=np.float32))
    expected = features.numpy().sum(axis=1, keepdims=True) + np.arange(3)
    np.testing.assert_allclose(model(images, training=False), expected, rtol=1e-4)


def models_that_cannot(tf):
    layers = tf.keras.layers
    inputs = tf.keras.Input((4,))
    frozen = layers.Dense(3, trainable=False)
    return {
        "activation": tf.keras.Sequential([inputs, layers.Dense(3, activation="softmax")]),
        "a function": tf.keras.Sequential([inputs, layers.Dense(3, activation=tf.nn.softmax)]),
        "no dense layer": tf.keras.Sequential([inputs, layers.Dense(3), layers.Softmax()]),
        "an operation": tf.keras.Model(inputs, -layers.Dense(3)(inputs)),
        "frozen": tf.keras.Sequential([inputs, frozen]),
        "two outputs": tf.keras.Model(inputs, [layers.Dense(3)(inputs), layers.Dense(2)(inputs)]),
        "sequences": tf.keras.Sequential([tf.keras.Input((5, 4)), layers.Dense(3)]),
        "inside": tf.keras.Sequential([inputs, tf.keras.Sequential([layers.Dense(3)])]),
    }


@pytest.mark.parametrize(
    "which, why",
    [
        ("activation", "has the activation softmax"),
        ("a function", "has the activation"),
        ("no dense layer", r"ends in softmax.* \(Softmax\)"),
        ("an operation", r"ends in .*neg.* \("),
        ("frozen", "is frozen"),
        ("two outputs", "no functional model with one output"),
        ("sequences", r"\(None, 5, 4\)"),
        ("inside", r"\(Sequential\)"),
    ],
)
def test_why_a_head_cannot_be_solved_is_said(tf, which, why):
    with pytest.raises(UsageError, match=why):
        SolvableHead(models_that_cannot(tf)[which])


@pytest.mark.realdata
def test_on_real_photographs_the_solved_head_is_far_above_chance(tf, flowers12, mobilenet_weights):
    from elastictrainer.data import datasets

    data = datasets.load(str(flowers12), 32, (96, 96))
    model = zoo.create("mobilenetv2", 12, 96, str(mobilenet_weights), "solve")
    head, parts = SolvableHead(model), {}
    for name, split in (("train", data.train_split), ("test", data.test_split)):
        read = [(head.features(x).numpy(), y.numpy()) for x, y in data.batches_of(split)]
        parts[name] = [np.concatenate(part) for part in zip(*read)]
    kernel, bias, _ = solve(parts["train"][0], np.eye(12, dtype=np.float32)[parts["train"][1]])
    features, labels = parts["test"]
    assert ((features @ kernel + bias).argmax(axis=1) == labels).mean() > 0.85


def test_held_columns_stay_and_the_others_are_fitted_around_them():
    features, targets, labels = problem()
    all_kernel, all_bias, all_loss = solve(features, targets)
    kernel, bias, loss = solve(features, targets, held=(all_kernel[:, :2], all_bias[:2]))
    np.testing.assert_array_equal(kernel[:, :2], all_kernel[:, :2])
    np.testing.assert_array_equal(bias[:2], all_bias[:2])
    assert loss == pytest.approx(all_loss, rel=0.02), "what fits best is what was held"
    assert ((features @ kernel + bias).argmax(axis=1) == labels).mean() > 0.9
    far = solve(features, targets, held=(all_kernel[:, :2], all_bias[:2] + 5))
    assert far[1][2:].min() > bias[2:].max(), "the others make up for it"


@pytest.mark.parametrize("use_bias", [True, False])
def test_a_model_is_marked_for_it(tf, use_bias):
    head = tf.keras.layers.Dense(3, use_bias=use_bias)
    model = tf.keras.Sequential([tf.keras.Input((4,)), head])
    assert SolvableHead(model).held_columns() is None
    hold_columns(model, 2)
    kernel, bias = SolvableHead(model).held_columns()
    np.testing.assert_array_equal(kernel, head.get_weights()[0][:, :2])
    assert bias.shape == (2,)
