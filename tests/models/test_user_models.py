"""The user's models: made by a function, refused where they give no logits."""

import pytest

from elastictrainer import UsageError
from elastictrainer.models import user_models


def test_a_function_gets_the_arguments_that_it_takes(tf):
    model = user_models.from_function("usermodels:good", 4, (16, 24, 3))
    assert model.input_shape == (None, 16, 24, 3) and model.output_shape == (None, 4)
    assert user_models.from_function("usermodels:no_model", 4, (16, 24, 3)) == 42  # it takes no arguments


@pytest.mark.parametrize(
    "name, message",
    [
        ("usermodels:raises", "usermodels:raises failed: ZeroDivisionError: the user's own mistake"),
        ("usermodels:needs_more", "failed: TypeError"),
        ("usermodels:nothing", "has no 'nothing'"),
        ("nonets:net", "cannot import nonets"),
    ],
)
def test_a_function_that_fails_is_named(tf, name, message):
    with pytest.raises(UsageError, match=message):
        user_models.from_function(name, 2, (16, 16, 3))


@pytest.mark.parametrize(
    "name, message",
    [
        ("no_model", "not a Keras model"),
        ("not_built", "is not built"),
        ("too_wide", r"outputs of shape \(None, 3\); the data has 2 classes: \(None, 2\)"),
        ("two_outputs", "the data has 2 classes"),
        ("a_map", "the data has 2 classes"),
        ("softmax", "ends in a softmax"),
        ("softmax_by_function", "ends in a softmax"),
        ("softmax_inside", "ends in a softmax"),
        ("sigmoid_by_function", "ends in a sigmoid"),
    ],
)
def test_a_model_without_logits_is_refused(tf, name, message):
    model = user_models.from_function(f"usermodels:{name}", 2, (16, 16, 3))
    with pytest.raises(UsageError, match=f"--model mine .*{message}"):
        user_models.require_logits("mine", model, 2)


def test_probabilities_by_activation_are_refused_and_logits_are_not(tf):
    layers = tf.keras.layers
    for activation, refused in (("softmax", True), ("sigmoid", True), (None, False)):
        model = tf.keras.Sequential([tf.keras.Input((3,)), layers.Dense(2, activation=activation)])
        if refused:
            with pytest.raises(UsageError, match=activation):
                user_models.require_logits("mine", model, 2)
        else:
            user_models.require_logits("mine", model, 2)
