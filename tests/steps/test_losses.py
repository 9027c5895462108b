import numpy as np
import pytest

from elastictrainer.steps.losses import SmoothedCrossentropy, training_loss

LOGITS = np.array([[2.0, -1.0, 0.5], [0.0, 3.0, 1.0], [1.0, 1.0, 1.0], [-2.0, 0.0, 4.0]], np.float32)
LABELS = np.array([0, 1, 2, 0])


def by_hand(smoothing, weights):
    log_p = LOGITS - np.log(np.exp(LOGITS).sum(axis=1, keepdims=True))
    targets = np.eye(3)[LABELS] * (1 - smoothing) + smoothing / 3
    return float(np.mean(np.asarray(weights)[LABELS] * -(targets * log_p).sum(axis=1)))


def test_training_loss_is_plain_cross_entropy_by_default(tf):
    assert type(training_loss()) is tf.keras.losses.SparseCategoricalCrossentropy
    assert float(training_loss()(LABELS, LOGITS)) == pytest.approx(by_hand(0.0, [1, 1, 1]), rel=1e-6)


@pytest.mark.parametrize("smoothing, weights", [(0.2, None), (0.0, [0.5, 2.0, 1.5]), (0.1, [3.0, 0.1, 1.0])])
@pytest.mark.parametrize(
    "labels", [LABELS, LABELS[:, None], LABELS.astype(np.float32)], ids=["1d", "2d", "float"]
)
def test_smoothed_crossentropy_by_hand(tf, smoothing, weights, labels):
    loss = training_loss(smoothing, weights)
    assert float(loss(labels, LOGITS)) == pytest.approx(by_hand(smoothing, weights or [1, 1, 1]), rel=1e-6)


def test_weights_count_as_keras_own_class_weights_do(tf):
    weights = {0: 0.5, 1: 2.0, 2: 1.5}
    inputs = tf.keras.Input((3,))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(3, use_bias=False)(inputs))
    model.set_weights([np.eye(3, dtype=np.float32)])
    model.compile(tf.keras.optimizers.SGD(0.1), training_loss())
    model.train_on_batch(LOGITS, LABELS, class_weight=weights)
    keras, variable = model.get_weights()[0], tf.Variable(np.eye(3, dtype=np.float32))
    with tf.GradientTape() as tape:
        value = training_loss(class_weights=list(weights.values()))(LABELS, tf.matmul(LOGITS, variable))
    ours = variable - 0.1 * tape.gradient(value, variable)
    np.testing.assert_allclose(ours.numpy(), keras, rtol=1e-5)


def test_smoothed_crossentropy_is_made_again_from_its_config(tf):
    loss = SmoothedCrossentropy(0.1, [1.0, 2.0, 0.5])
    again = tf.keras.losses.deserialize(tf.keras.losses.serialize(loss))
    assert type(again) is SmoothedCrossentropy and again.get_config() == loss.get_config()
