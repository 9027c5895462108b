"""FLOPs against counts by hand."""

import importlib.util

import pytest

from builders import image_batch, quick_profile, traced_step
from elastictrainer import Profile

BATCH = 4


@pytest.fixture(scope="module")
def counted(tf):
    """A 3x3 convolution of 16 channels on 8x8x3, and a dense layer of 10: its profile."""
    layers = tf.keras.layers
    pixels = tf.keras.Input((8, 8, 3))
    features = layers.Conv2D(16, 3, padding="same", use_bias=False, name="convolution")(pixels)
    model = tf.keras.Model(pixels, layers.Dense(10, use_bias=False, name="dense")(layers.Flatten()(features)))
    batch = tf.random.normal((BATCH, 8, 8, 3)), tf.zeros((BATCH,), tf.int64)
    # The default's update takes two operations a weight where TensorFlow Addons fuses it, Keras' own more.
    optimizer = None if importlib.util.find_spec("tensorflow_addons") else tf.keras.optimizers.SGD(0.01)
    return quick_profile(model, batch, optimizer=optimizer)


CONVOLUTION = 2 * BATCH * 8 * 8 * 16 * (3 * 3 * 3)  # a multiplication and an addition for each product
DENSE = 2 * BATCH * (8 * 8 * 16) * 10


def near(flops, updated=0):
    """The loss adds a little, and the update of `updated` weights two operations each at most."""
    return pytest.approx(flops + updated, abs=updated + 0.001 * flops)


def test_forward_is_the_sum_of_the_layers(counted):
    forward = counted.step_flops([False, False])
    assert forward == near(CONVOLUTION + DENSE) and forward >= CONVOLUTION + DENSE


def test_each_tensor_adds_its_own_gradient_and_what_leads_to_it(counted):
    forward = counted.step_flops([False, False])
    kernel, dense = 3 * 3 * 3 * 16, 8 * 8 * 16 * 10
    assert counted.step_flops([False, True]) - forward == near(DENSE, dense)
    # The kernel's gradient, and the gradient through the dense layer; the input needs none.
    assert counted.step_flops([True, False]) - forward == near(CONVOLUTION + DENSE, kernel)
    assert counted.step_flops([True, True]) - forward == near(CONVOLUTION + 2 * DENSE, kernel + dense)


def test_depthwise_gradients_are_counted(tf):
    from elastictrainer.profiler.flops import flops_of

    with tf.Graph().as_default() as graph:
        x, kernel = tf.zeros((2, 8, 8, 5)), tf.zeros((3, 3, 5, 1))
        y = tf.nn.depthwise_conv2d(x, kernel, [1, 1, 1, 1], "SAME")
        tf.gradients(y, [x, kernel])
        operations = graph.get_operations()
        count = dict(zip((op.type for op in operations), flops_of(operations)))
    expected = 2 * (2 * 8 * 8 * 5) * 9
    for kind in (
        "DepthwiseConv2dNative",
        "DepthwiseConv2dNativeBackpropInput",
        "DepthwiseConv2dNativeBackpropFilter",
    ):
        assert count[kind] == expected, kind


def test_the_count_is_saved(counted, tmp_path):
    counted.save(tmp_path / "p.json")
    loaded = Profile.load(tmp_path / "p.json")
    assert loaded.step_flops([True, False]) == counted.step_flops([True, False])


def test_a_profile_without_a_count_says_so():
    assert Profile.from_chain(["a"], 1.0, [1.0], [1.0]).step_flops([True]) is None


def test_flops_of_a_convolution_and_a_dense_layer_by_hand(tf):

    from elastictrainer.profiler.flops import flops_of

    layers = tf.keras.layers
    inputs = tf.keras.Input((8, 8, 3))
    x = layers.Flatten()(layers.Conv2D(5, 3, padding="same", use_bias=False)(inputs))
    step = traced_step(tf, tf.keras.Model(inputs, layers.Dense(3, use_bias=False)(x)), image_batch(tf))
    by_type = {}
    operations = step.graph.get_operations()
    for op, count in zip(operations, flops_of(operations)):
        by_type.setdefault(op.type, []).append(count)
    assert by_type["Conv2D"] == [2 * 2 * 8 * 8 * 5 * 3 * 3 * 3]  # 2 images, 2 FLOPs per multiply-add
    assert by_type["MatMul"] == [2 * 2 * 320 * 3] * 3  # forward, dW, dy
