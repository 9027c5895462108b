"""Batch norms that are folded into the layers before them, against the same networks unfolded."""

import numpy as np
import pytest

from elastictrainer import Objective
from elastictrainer.steps.graphs import SourceGraph
from elastictrainer.steps.keras_compat.layers import in_inference_mode, keep_statistics, layers_inside
from elastictrainer.steps.keras_compat.variables import name_of
from elastictrainer.steps.keras_compat.version import KERAS_3
from elastictrainer.steps.objective import classification_loss

BATCH = 11  # no number of channels below


def varied(tf, model):
    """Give every norm of a model, and every bias, values that are not those of a new one."""
    random = np.random.default_rng(0)
    for layer in layers_inside(model, recursive=True):
        if isinstance(layer, tf.keras.layers.BatchNormalization):
            layer.set_weights([random.uniform(0.5, 2, weight.shape) for weight in layer.get_weights()])
        elif getattr(layer, "bias", None) is not None:
            layer.bias.assign(random.normal(size=layer.bias.shape))
    return model


def in_inference(outputs_of):
    """A classifier on what a function of `tf.keras.layers` and images gives, always in inference mode."""

    def network(tf):
        layers = tf.keras.layers
        inputs, images = tf.keras.Input((8, 8, 4)), tf.keras.Input((8, 8, 4))
        x = in_inference_mode(tf.keras.Model(inputs, outputs_of(layers, inputs)), images)
        return tf.keras.Model(images, layers.Dense(3)(layers.Flatten()(x)))

    network.__name__ = outputs_of.__name__
    return network


def of_layers(*makers):
    """A network of layers, each followed by a norm that keeps its statistics."""

    @in_inference
    def network(layers, x):
        for make in makers:
            x = layers.ReLU()(layers.BatchNormalization(epsilon=0.01)(make(layers)(x)))
        return x

    return network


@in_inference
def without_scale_or_centre(layers, x):
    x = layers.BatchNormalization(scale=False)(layers.Conv2D(5, 3, use_bias=False)(x))
    return layers.BatchNormalization(center=False)(layers.DepthwiseConv2D(3, depth_multiplier=2)(x))


@in_inference
def read_twice(layers, x):
    """What a norm gets is read by another layer as well."""
    x = layers.Conv2D(5, 3)(x)
    return layers.Add()([x, layers.BatchNormalization()(x)])


@in_inference
def regularised(layers, x):
    """What a norm gets is read by a regulariser as well."""
    return layers.BatchNormalization()(layers.Conv2D(5, 3, activity_regularizer="l2")(x))


@in_inference
def strided_and_dilated(layers, x):
    """What TensorFlow's own operation computes in another way than Keras 3."""
    if not KERAS_3:
        pytest.skip("Keras 2 has no such layer")
    x = layers.DepthwiseConv2D(3, strides=2, dilation_rate=2, padding="same")(x)
    return layers.GlobalAveragePooling2D()(layers.BatchNormalization()(x))


@in_inference
def padded(layers, x):
    """Zeros before a convolution: those that SAME adds, and others."""
    x = layers.DepthwiseConv2D(3, strides=2)(layers.ZeroPadding2D(((0, 1), (0, 1)))(layers.Conv2D(4, 1)(x)))
    x = layers.ZeroPadding2D(1)(layers.ReLU()(layers.BatchNormalization()(x)))
    x = layers.BatchNormalization()(layers.Conv2D(5, 3, strides=2)(x))
    x = layers.ZeroPadding2D(((1, 2), (1, 2)))(layers.ReLU()(x))
    return layers.BatchNormalization()(layers.SeparableConv2D(4, 5, strides=2)(x))


@in_inference
def norm_of_zeros(layers, x):
    """A norm behind zero padding, which no norm is folded into."""
    return layers.BatchNormalization()(layers.ZeroPadding2D(1)(x))


@in_inference
def pointwise(layers, x):
    """Pointwise convolutions, with a norm and with an activation."""
    x = layers.BatchNormalization()(layers.Conv2D(5, 1)(x))
    return layers.Conv2D(6, 1, activation="relu", bias_initializer="ones")(x)


@in_inference
def swish(layers, x):
    return layers.Activation("swish")(layers.Conv2D(5, 3)(x))


@in_inference
def own_convolution(layers, x):
    """A convolution whose operation a user has put on the object."""
    import tensorflow as tf

    conv = layers.Conv2D(5, 3)
    conv.convolution_op = lambda x, kernel: tf.nn.conv2d(x, kernel - tf.reduce_mean(kernel), 1, "VALID")
    return layers.BatchNormalization()(conv(x))


@in_inference
def called_twice(layers, x):
    """A layer and a norm that are shared by two places."""
    conv, norm = layers.Conv2D(4, 3, padding="same"), layers.BatchNormalization()
    return norm(conv(layers.ReLU()(norm(conv(x)))))


@in_inference
def other_axis(layers, x):
    """A norm over rows, behind a layer that has an activation."""
    x = layers.BatchNormalization(axis=1)(layers.Conv2D(5, 3)(x))
    return layers.BatchNormalization()(layers.Conv2D(5, 3, activation="relu")(x))


def updating(tf, trainable=True):
    """A norm that normalises by the minibatch, or is frozen."""
    layers = tf.keras.layers
    norm = layers.BatchNormalization(trainable=trainable)
    parts = [layers.Conv2D(5, 3), norm, layers.Flatten(), layers.Dense(3)]
    return tf.keras.Sequential([tf.keras.Input((8, 8, 4)), *parts])


def frozen_norm(tf):
    """A norm that is frozen keeps its statistics in training as well."""
    return updating(tf, trainable=False)


def subclassed(tf, shortcut=False):
    """A model whose wiring only its own code knows, and that counts its calls."""

    class Own(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = tf.keras.layers.Conv2D(5, 3), tf.keras.layers.BatchNormalization()
            self.flatten, self.head = tf.keras.layers.Flatten(), tf.keras.layers.Dense(3)
            self.calls = self.add_weight(name="calls", shape=(), initializer="zeros", trainable=False)

        def call(self, x):
            self.calls.assign_add(1.0)
            x = self.conv(x)
            normed = self.norm(x, training=False)
            return self.head(self.flatten(x + normed if shortcut else normed))

    model = Own()
    model(tf.zeros((1, 8, 8, 4)))
    return model


def gradients(tf, model, fold, trained=None):
    """Return loss and gradients of a minibatch by name, and how many ops scale or normalise activations."""
    random = np.random.default_rng(1)
    x = tf.constant(random.normal(size=(BATCH, 8, 8, 4)), tf.float32)
    y = tf.constant(random.integers(0, 3, BATCH))
    objective = Objective(model, classification_loss(), fold=fold)
    variables = [v for v in model.trainable_variables if trained is None or name_of(v).endswith(trained)]
    function = tf.function(lambda x, y: objective.gradients(x, y, variables)[1:]).get_concrete_function(x, y)
    source = SourceGraph(function.graph)
    reached = source.upstream([function.outputs[0].op.name])
    scaling = [
        op.name
        for op in function.graph.get_operations()
        if op.name in reached
        and op.type in ("FusedBatchNormV3", "Mul")
        and op.outputs[0].shape.rank
        and op.outputs[0].shape[0] == BATCH
    ]
    loss, found = function(x, y)
    assert not any("call" in vars(layer) for layer in layers_inside(model, recursive=True))
    return loss.numpy(), {name_of(v): g.numpy() for v, g in zip(variables, found)}, len(scaling)


KINDS = of_layers(
    lambda layers: layers.Conv2D(6, 3, strides=2),
    lambda layers: layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2, use_bias=False),
    lambda layers: layers.SeparableConv2D(5, 3, padding="same"),
    lambda layers: layers.Conv2D(5, 3, dilation_rate=2, padding="same", use_bias=False),
    lambda layers: layers.Dense(6),
)


@pytest.mark.parametrize(
    ("network", "norms", "left"),
    [
        (KINDS, 5, 0),
        (without_scale_or_centre, 2, 0),
        (frozen_norm, 1, 0),
        (subclassed, 1, 0),
        (called_twice, 2, 0),
        (read_twice, 1, 1),
        (regularised, 1, 1),
        (own_convolution, 1, 1),
        (pointwise, 1, 0),
        (padded, 3, 0),
        (norm_of_zeros, 1, 1),
        (strided_and_dilated, 1, 1),
        (updating, 1, 1),
        (other_axis, 2, 2),
    ],
)
def test_folded_networks_have_the_same_gradients(tf, network, norms, left):
    tf.keras.utils.set_random_seed(0)
    model = varied(tf, network(tf))
    loss, expected, before = gradients(tf, model, fold=False)
    folded_loss, found, after = gradients(tf, model, fold=True)
    np.testing.assert_allclose(folded_loss, loss, rtol=1e-5)
    largest = max(np.abs(gradient).max() for gradient in expected.values())
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, atol=1e-5 * largest, err_msg=name)
    assert before - after == norms - left


@pytest.mark.parametrize("trained", [None, ("kernel", "gamma")])
def test_layers_in_bfloat16_are_folded_with_scales_in_float32(tf, mixed_precision, trained):
    tf.keras.utils.set_random_seed(0)
    rounding = varied(tf, KINDS(tf))
    tf.keras.mixed_precision.set_global_policy("float32")
    exact = KINDS(tf)
    exact.set_weights(rounding.get_weights())
    loss, expected, before = gradients(tf, exact, fold=False, trained=trained)
    found_loss, found, after = gradients(tf, rounding, fold=True, trained=trained)
    assert found_loss != loss and float(found_loss) == pytest.approx(float(loss), rel=0.01)
    assert before - after == 5
    difference = sum(np.sum((a - b) ** 2) for a, b in zip(found.values(), expected.values()))
    assert difference < 0.1**2 * sum(np.sum(gradient**2) for gradient in expected.values())


@pytest.mark.parametrize("fold", [True, False])
def test_norms_that_keep_their_statistics_are_as_in_inference(tf, fold):
    """Also where the network is called in training; what it saves is as it was."""
    tf.keras.utils.set_random_seed(0)
    model = varied(tf, updating(tf))
    before = {name_of(v): v.numpy() for v in model.non_trainable_variables}
    model.layers[-3].trainable = False  # the norm: frozen, it keeps them too
    loss, expected, _ = gradients(tf, model, fold=False)
    model.layers[-3].trainable = True
    assert keep_statistics(model)
    found_loss, found, _ = gradients(tf, model, fold)
    assert found_loss == pytest.approx(loss, rel=1e-5)
    assert len(found) == len(expected) + 2
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, atol=1e-5, err_msg=name)
    after = {name_of(v): v.numpy() for v in model.non_trainable_variables}
    assert all(np.array_equal(before[name], after[name]) for name in before if "moving" in name)
    assert model.get_config() == tf.keras.Sequential.from_config(model.get_config()).get_config()


def stepped(tf, model, fold, x, y):
    """Loss and gradients of a minibatch, in a graph."""
    objective = Objective(model, classification_loss(), fold=fold)
    return tf.function(lambda x, y: objective.gradients(x, y, model.trainable_variables)[1:])(x, y)


def test_integers_are_computed_on_in_the_precision_of_the_kernel(tf):
    layers = tf.keras.layers
    inputs = tf.keras.Input((6,), dtype="int32")
    norm = layers.BatchNormalization()
    norm.trainable = False
    model = varied(tf, tf.keras.Model(inputs, layers.Dense(3)(norm(layers.Dense(5)(inputs)))))
    x, y = tf.reshape(tf.range(24, dtype=tf.int32), (4, 6)) % 5, tf.constant([0, 1, 2, 0])
    found = [stepped(tf, model, fold, x, y) for fold in (False, True)]
    assert found[1][0].numpy() == pytest.approx(found[0][0].numpy(), rel=1e-5)
    for one, other in zip(found[0][1], found[1][1]):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_a_model_is_called_once_so_that_what_it_counts_moves_once(tf):
    """A folded output that others read, found where only the model's own code knows its wiring."""
    model = subclassed(tf, shortcut=True)
    x, y = tf.ones((BATCH, 8, 8, 4)), tf.zeros(BATCH, tf.int64)
    losses = []
    for fold in (False, True):
        before = float(model.calls)
        losses.append(float(stepped(tf, model, fold, x, y)[0]))
        assert float(model.calls) == before + 1
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def assert_alike(found, expected):
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize(
    ("channels", "filters", "groups", "ops"),
    [
        (4, 6, 2, ["Conv2D"] * 2),
        (22, 44, 11, ["Conv2D"]),
        (24, 12, 12, ["Conv2D"] * 6),
        (5, 10, 5, ["DepthwiseConv2dNative"]),
    ],
)
def test_a_convolution_in_groups_is_a_few_ops(tf, norm, channels, filters, groups, ops):
    @in_inference
    def grouped(layers, x):
        x = layers.Dense(channels)(x)
        x = layers.Conv2D(filters, 3, groups=groups, strides=2, padding="same", bias_initializer="ones")(x)
        return layers.BatchNormalization()(x) if norm else layers.ReLU()(x)

    tf.keras.utils.set_random_seed(0)
    model = varied(tf, grouped(tf))
    (loss, expected, _), (split_loss, found, _) = (gradients(tf, model, fold) for fold in (False, True))
    np.testing.assert_allclose(split_loss, loss, rtol=1e-5)
    assert_alike(found, expected)
    objective = Objective(model, classification_loss())
    spec = tf.TensorSpec((BATCH, 8, 8, 4)), tf.TensorSpec((BATCH,), tf.int64)
    function = tf.function(lambda x, y: objective(x, y, True)[1]).get_concrete_function(*spec)
    reached = SourceGraph(function.graph).upstream([function.outputs[0].op.name])
    used = [op.type for op in function.graph.get_operations() if op.name in reached]
    assert [kind for kind in used if "Conv" in kind] == ops and "PartitionedCall" not in " ".join(used)


@pytest.mark.parametrize("trained", [None, ("gamma", "bias")])
@pytest.mark.parametrize("arguments", [("DepthwiseConv2D", 3), ("SeparableConv2D", 6, 3)])
@pytest.mark.parametrize("strides", [1, 2])
def test_depthwise_convolutions_with_slow_gradients_are_in_float32(
    tf, mixed_precision, strides, arguments, trained
):
    kind, *numbers = arguments
    options = {"strides": strides, "padding": "same", "depth_multiplier": 2}
    network = of_layers(
        lambda layers: layers.Conv2D(5, 1), lambda layers: getattr(layers, kind)(*numbers, **options)
    )
    tf.keras.utils.set_random_seed(0)
    rounding = varied(tf, network(tf))
    tf.keras.mixed_precision.set_global_policy("float32")
    exact = network(tf)
    exact.set_weights(rounding.get_weights())
    expected, found = (gradients(tf, model, True, trained)[1] for model in (exact, rounding))
    difference = sum(np.sum((a - b) ** 2) for a, b in zip(found.values(), expected.values()))
    assert difference < 0.1**2 * sum(np.sum(gradient**2) for gradient in expected.values())
    objective = Objective(rounding, classification_loss())
    spec = tf.TensorSpec((BATCH, 8, 8, 4)), tf.TensorSpec((BATCH,), tf.int64)
    variables = [v for v in rounding.trainable_variables if trained is None or name_of(v).endswith(trained)]
    function = tf.function(lambda x, y: objective.gradients(x, y, variables)[2]).get_concrete_function(*spec)
    used = [op for op in function.graph.get_operations() if op.type.startswith("DepthwiseConv2dNative")]
    slow = strides > 1 and KERAS_3 and not tf.config.list_physical_devices("GPU")
    assert len(used) > 1
    assert {op.outputs[0].dtype.name for op in used} == {"float32" if slow else "bfloat16"}


def kinds_of_ops(tf, model, fold=True):
    """The types of the ops of a graph of gradients."""
    spec = tf.TensorSpec((BATCH, 8, 8, 4)), tf.TensorSpec((BATCH,), tf.int64)
    objective = Objective(model, classification_loss(), fold=fold)
    function = tf.function(lambda x, y: objective.gradients(x, y, model.trainable_variables)[2])
    graph = function.get_concrete_function(*spec).graph
    reached = SourceGraph(graph).upstream([tensor.op.name for tensor in graph.outputs])
    return [op.type for op in graph.get_operations() if op.name in reached]


def test_swish_takes_its_sigmoid_once(tf):
    tf.keras.utils.set_random_seed(0)
    model = varied(tf, swish(tf))
    (loss, expected, _), (once_loss, found, _) = (gradients(tf, model, fold) for fold in (False, True))
    assert once_loss == pytest.approx(loss, rel=1e-5)
    assert_alike(found, expected)
    assert [kinds_of_ops(tf, model, fold).count("Sigmoid") for fold in (False, True)] == [2, 1]


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_pointwise_convolutions_are_products_of_matrices_in_float32(tf, mixed_precision, precision):
    tf.keras.mixed_precision.set_global_policy(precision)
    used = kinds_of_ops(tf, pointwise(tf))
    assert used.count("Conv2DBackpropFilter") == (0 if precision == "float32" else 2)


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_zeros_that_a_convolution_adds_itself_are_not_added_before(tf, mixed_precision, precision):
    tf.keras.mixed_precision.set_global_policy(precision)
    used = kinds_of_ops(tf, padded(tf))
    wide = precision == "float32" or KERAS_3  # where the depthwise layers compute in float32
    assert used.count("Pad") == (1 if wide else 3)


@pytest.mark.parametrize("how", ["lora", "int8"])
def test_a_kernel_that_is_made_of_several_variables_is_not_folded(tf, how):
    model = varied(tf, of_layers(lambda layers: layers.Dense(6))(tf))
    (dense,) = (layer for layer in layers_inside(model, recursive=True) if getattr(layer, "units", 0) == 6)
    if not hasattr(dense, "enable_lora"):
        pytest.skip("Keras 2 has none")
    dense.enable_lora(2) if how == "lora" else dense.quantize("int8")
    loss, expected, before = gradients(tf, model, fold=False)
    folded_loss, found, after = gradients(tf, model, fold=True)
    assert folded_loss == pytest.approx(loss) and after == before and found.keys() == expected.keys()


def test_a_gamma_that_trains_without_its_kernel_stays_beside_the_layer(tf):
    model = varied(tf, KINDS(tf))
    _, expected, before = gradients(tf, model, False, ("gamma", "bias"))
    _, found, after = gradients(tf, model, True, ("gamma", "bias"))
    assert after == before
    assert_alike(found, expected)
    assert gradients(tf, model, True, ("beta",))[2] == before - 5  # whose gradient does not need the kernel's
