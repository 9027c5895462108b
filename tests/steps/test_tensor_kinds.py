import numpy as np

from builders import small_network, tensor_names
from elastictrainer.steps.tensor_kinds import bias_and_norm_mask, convolution_kernels, head_mask


def chosen(model, mask):
    return [name for name, wanted in zip(tensor_names(model), mask) if wanted]


def test_kinds_of_a_small_network(tf):
    model = small_network(tf)
    assert chosen(model, head_mask(model)) == ["head/kernel", "head/bias"]
    biases_and_norms = (
        "stem/bias stem_bn/gamma stem_bn/beta inner/bias inner_bn/gamma inner_bn/beta head/bias"
    )
    assert chosen(model, bias_and_norm_mask(model)) == biases_and_norms.split()
    assert [kernel.shape for kernel in convolution_kernels(model)] == [(3, 3, 3, 4), (3, 3, 4, 4)]


def test_a_model_inside_a_model_is_opened(tf):
    inner = small_network(tf)
    inputs = tf.keras.Input((8, 8, 3))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(2, name="outer_head")(inner(inputs)))
    assert [name.split("/")[-2] for name in chosen(model, head_mask(model))] == ["outer_head"] * 2
    assert len(convolution_kernels(model)) == 2
    inner.trainable = False
    assert convolution_kernels(model) == [] and np.all(head_mask(model))


def test_each_output_has_a_head(tf):
    layers = tf.keras.layers
    inputs = tf.keras.Input((4,))
    shared = layers.Dense(5, name="shared")(inputs)
    size = layers.Dense(2, name="last")(layers.Activation("relu")(layers.Dense(1, name="size")(shared)))
    outputs = {"kind": layers.Softmax()(layers.Dense(3, name="kind")(shared)), "size": size * 2.0}
    model = tf.keras.Model(inputs, outputs)
    assert chosen(model, head_mask(model)) == ["kind/kernel", "kind/bias", "last/kernel", "last/bias"]


def test_an_output_of_a_deep_frozen_network_is_looked_through_once(tf):
    """Forty blocks with two ways each: every way by itself would take for ever."""
    layers = tf.keras.layers
    inputs = features = tf.keras.Input((2,))
    for _ in range(40):
        features = layers.Add()([features, layers.Dense(2, trainable=False)(features)])
    model = tf.keras.Model(inputs, [layers.Dense(1, name="one")(features), features])
    assert chosen(model, head_mask(model)) == ["one/kernel", "one/bias"]
