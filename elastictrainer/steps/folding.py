"""Layers computed in less time: batch norms and zeros folded into convolutions; and convolutions, biases and
swish by operations whose gradients are faster on a processor.

A batch norm that keeps its statistics makes gamma (conv(x, W) + bias - mean) / sqrt(var + eps) + beta. The
graph has conv(x, W s) + b instead, with s = gamma / sqrt(var + eps) and b = beta + (bias - mean) s for each
output channel. It computes s and b from the live variables: names, checkpoints and exports stay as they are,
and W, gamma and beta get the same gradients. Each direction makes one pass over the activations less ("tune
mode" of arXiv 2305.11624).

Where there is no GPU, Keras has XLA compile a convolution in groups, again for each graph. As one dense
convolution it took 4 to 8 % of that time (layers of RegNet, one x86 core, both stacks), and can be profiled.

TensorFlow 2.21 has no fast kernel for the gradient, in bfloat16, of a depthwise convolution with strides: the
four of MobileNetV2 took 9.5 of a step's 22.5 ms an image (one core of machine F). TensorFlow 2.15 has one.
"""

import contextlib
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import tensorflow as tf

from elastictrainer.steps.keras_compat.layers import KEEPS, layers_inside, read_by_several
from elastictrainer.steps.keras_compat.variables import Variable, tf_variable
from elastictrainer.steps.keras_compat.version import KERAS_3

_MOST_PARTS = 8  # of a convolution in groups
# What computes a layer's outputs, where a user has put something else on the object.
_OWN = {"call", "convolution_op", "_jit_compiled_convolution_op"}

Layer = Any  # of Keras
Call = Callable[..., tf.Tensor]  # of a layer


@dataclass
class _Made:
    """What a layer has made: `layer(inputs)` is `outputs`; and whether a norm was folded into it."""

    layer: Layer
    inputs: tf.Tensor
    outputs: tf.Tensor
    folded: bool = False


class FoldedModel:
    """Calls a model, in a graph with such layers replaced by others that compute the same."""

    def __init__(self, model: tf.Module, fold: bool = True):
        """Take a model; of one without Keras layers, or without `fold`, nothing is folded."""
        self._model, self._fold = model, fold
        self._kept: Set[int] = set()  # ids of layers whose outputs more than their norm reads

    def __call__(self, x: Any, trained: Optional[Sequence[Variable]] = None, **options: Any) -> Any:
        """Return the model's outputs for `x` and the options of its call, with norms folded and groups split.

        Where an output that was folded away is read by other layers as well, the layer computes twice: in
        the next graph such a pair stays as it is. (To call again would do the model's assignments twice.)
        `trained` are the variables whose gradients are wanted; None: all. Without its layer's kernel a gamma
        has a cheaper gradient outside of the layer.
        """
        if tf.executing_eagerly() or not isinstance(self._model, tf.keras.Model):
            return self._model(x, **options)
        chosen = None if trained is None else {id(tf_variable(variable)) for variable in trained}
        with self._folded(chosen) as made:
            outputs = self._model(x, **options)
        self._kept |= {id(one.layer) for one in made.values() if one.folded and one.outputs.consumers()}
        return outputs

    @contextlib.contextmanager
    def _folded(self, trained: Optional[Set[int]]) -> Iterator[Dict[int, _Made]]:
        """Replace the calls of the layers for a while; yields what they have made, by the ids of outputs."""
        made: Dict[int, _Made] = {}
        changed: List[Layer] = []
        try:
            for layer in layers_inside(self._model, recursive=True):
                if not _OWN.isdisjoint(vars(layer)):  # the user's
                    continue
                if type(layer) is tf.keras.layers.BatchNormalization:
                    layer.call = _of_norm(layer, layer.call, made, trained)
                elif not self._fold:
                    continue
                elif type(layer) is tf.keras.layers.ZeroPadding2D:
                    layer.call = _noted(layer, layer.call, made)
                elif _is_silu(layer):
                    layer.call = _silu
                elif (operation := _operation(layer)) is not None:
                    call = _by_operation(layer, operation) if _is_slow(layer) else layer.call
                    linear = layer.activation is tf.keras.activations.linear
                    folds = linear and id(layer) not in self._kept and not read_by_several(layer)
                    layer.call = _noted(layer, call, made) if folds else call
                else:
                    continue
                changed.append(layer)
            yield made
        finally:
            for layer in changed:
                del layer.call


def _is_silu(layer: Layer) -> bool:
    """Return whether a layer is the activation x sigmoid(x), of which TensorFlow does the half twice."""
    silu = tf.keras.activations.get("swish")  # silu in Keras 3
    own = type(layer) is tf.keras.layers.Activation and layer.activation is silu
    return own and layer.compute_dtype == "float32"  # in bfloat16 it is slower


@tf.autograph.experimental.do_not_convert
def _silu(inputs: tf.Tensor) -> tf.Tensor:
    return inputs * tf.sigmoid(inputs)


def _is_slow(layer: Layer) -> bool:
    """Return whether Keras' own operation is slower than that of this module."""
    if type(layer) is not tf.keras.layers.Conv2D:
        return _is_widened(layer)
    in_float32 = layer.compute_dtype == "float32"
    return (layer.groups > 1 or in_float32) and not tf.config.list_physical_devices("GPU")


def _is_widened(layer: Layer) -> bool:
    """Return whether a depthwise layer computes in float32, as its gradient in bfloat16 is slow."""
    depthwise = type(layer) in (tf.keras.layers.DepthwiseConv2D, tf.keras.layers.SeparableConv2D)
    rounds = KERAS_3 and layer.compute_dtype == "bfloat16"
    return depthwise and rounds and max(layer.strides) > 1 and not tf.config.list_physical_devices("GPU")


def _by_operation(layer: Layer, operation: Call) -> Call:
    """Return the `call` of a layer by `operation`, with its bias and its activation."""

    @tf.autograph.experimental.do_not_convert
    def compute(inputs: tf.Tensor) -> tf.Tensor:
        bias = None if layer.bias is None else _value(layer.bias)
        return layer.activation(operation(inputs, layer.padding.upper(), None, bias))

    return compute


def _noted(layer: Layer, call: Call, made: Dict[int, _Made]) -> Call:

    @tf.autograph.experimental.do_not_convert
    def noted(inputs: tf.Tensor, *arguments: Any, **options: Any) -> Any:
        outputs = call(inputs, *arguments, **options)
        if isinstance(inputs, tf.Tensor) and inputs.dtype == outputs.dtype:  # as what is folded computes
            made[id(outputs)] = _Made(layer, inputs, outputs)
        return outputs

    return noted


def _of_norm(norm: Layer, call: Call, made: Dict[int, _Made], trained: Optional[Set[int]]) -> Call:
    """Return the `call` of a batch norm that is folded into the layer that has made its inputs."""

    @tf.autograph.experimental.do_not_convert  # it is Python alone, and so are the calls of Keras' layers
    def folded(inputs: tf.Tensor, *arguments: Any, **options: Any) -> Any:
        if getattr(norm, KEEPS, False):
            arguments, options = (), {**options, "training": False}
        training = options.get("training", arguments[0] if arguments else None)
        before = made.get(id(inputs))
        updates = not isinstance(training, (bool, int)) or (training and norm.trainable)
        if before is None or updates or not _scales_last(norm, inputs) or options.get("mask") is not None:
            return call(inputs, *arguments, **options)
        layer = before.layer
        if trained is not None and norm.gamma is not None:
            kernel = {id(tf_variable(_kernel(layer)))} & trained
            if not kernel and id(tf_variable(norm.gamma)) in trained:
                return call(inputs, *arguments, **options)
        before.folded = True
        scale = tf.math.rsqrt(_value(norm.moving_variance) + norm.epsilon)
        if norm.gamma is not None:
            scale *= _value(norm.gamma)
        bias = -_value(norm.moving_mean)
        if layer.bias is not None:
            bias += _value(layer.bias)
        bias *= scale
        if norm.beta is not None:
            bias += _value(norm.beta)
        return _operation(layer)(*_unpadded(layer, before.inputs, made), scale, bias)

    return folded


def _add_bias(outputs: tf.Tensor, bias: Optional[tf.Tensor]) -> tf.Tensor:
    """Add a bias, if there is one.

    In float32 oneDNN computes the gradient of BiasAdd together with that of a convolution's kernel, in much
    more time than both take by themselves. The gradient of its older name is a sum, and the pass forward is
    the same.
    """
    if bias is None:
        return outputs
    if outputs.shape.rank == 4 and _is_wide(outputs):
        return tf.raw_ops.BiasAddV1(value=outputs, bias=bias)
    return tf.nn.bias_add(outputs, tf.cast(bias, outputs.dtype))


def _is_wide(tensor: tf.Tensor) -> bool:
    """Return whether a processor computes on it in float32."""
    return tensor.dtype == tf.float32 and not tf.config.list_physical_devices("GPU")


def _unpadded(layer: Layer, inputs: tf.Tensor, made: Dict[int, _Made]) -> Tuple[tf.Tensor, str]:
    """Return what a layer computes its outputs from, and its padding: SAME where that adds the same zeros.

    Keras' MobileNets and EfficientNets have a layer that adds them. Not in bfloat16: there VALID alone has a
    fast gradient.
    """
    padding, before = getattr(layer, "padding", "").upper(), made.get(id(inputs))
    if before is None or type(before.layer) is not tf.keras.layers.ZeroPadding2D or padding != "VALID":
        return inputs, padding
    zeros = []
    for size, kernel, stride in zip(before.inputs.shape[1:3], layer.kernel_size, layer.strides):
        if size is None:
            return inputs, padding
        total = max(0, (-(-size // stride) - 1) * stride + kernel - size)
        zeros.append((total // 2, total - total // 2))
    same = tuple(zeros) == before.layer.padding and max(layer.dilation_rate) == 1
    rounds = inputs.dtype != tf.float32 and not _is_widened(layer)
    wide = before.layer.data_format == "channels_last" and not rounds
    return (before.inputs, "SAME") if same and wide else (inputs, padding)


def _operation(layer: Layer) -> Any:
    """Return the function of (inputs, padding, scale, bias) that computes a layer with other parameters.

    Its kernels are scaled, by a number for each output channel, and the bias is this one; None: neither. It
    has no activation. None for another type, channels first, strides with dilation, or a kernel of several
    variables.
    """
    kinds = tf.keras.layers
    if type(layer) not in (kinds.Conv2D, kinds.DepthwiseConv2D, kinds.SeparableConv2D, kinds.Dense):
        return None
    if getattr(layer, "lora_enabled", False) or getattr(layer, "quantization_mode", None):
        return None
    if type(layer) is not kinds.Dense and (
        layer.data_format != "channels_last" or max(layer.strides) > 1 < max(layer.dilation_rate)
    ):
        return None

    def compute(
        x: tf.Tensor, padding: str, scale: Optional[tf.Tensor], bias: Optional[tf.Tensor]
    ) -> tf.Tensor:
        kernel = _scaled(layer, scale)
        if type(layer) is kinds.Dense:
            return _add_bias(tf.linalg.matmul(x, tf.cast(kernel, x.dtype)), bias)
        if type(layer) is kinds.DepthwiseConv2D:
            return _add_bias(_depthwise(layer, x, kernel, padding), bias)
        groups, strides, rates = 1, (1, 1), (1, 1)
        if type(layer) is kinds.SeparableConv2D:
            x = _depthwise(layer, x, _value(layer.depthwise_kernel), padding)
        else:
            groups, strides, rates = layer.groups, tuple(layer.strides), tuple(layer.dilation_rate)
        kernel = tf.cast(kernel, x.dtype)
        single = groups == max(*strides, *kernel.shape[:2]) == 1
        if single and _is_wide(x) and None not in x.shape[1:]:
            return _of_pixels(x, kernel[0, 0], bias)
        return _add_bias(_grouped(x, kernel, padding, groups, strides, rates), bias)

    return compute


def _depthwise(layer: Layer, x: tf.Tensor, kernel: tf.Tensor, padding: str) -> tf.Tensor:
    """Return the depthwise part of a layer, in float32 where it is slow otherwise."""
    wide = tf.cast(x, tf.float32) if _is_widened(layer) else x
    strides, rates = (1, *layer.strides, 1), tuple(layer.dilation_rate)
    made = tf.nn.depthwise_conv2d(wide, tf.cast(kernel, wide.dtype), strides, padding, dilations=rates)
    return tf.cast(made, x.dtype)


def _of_pixels(x: tf.Tensor, kernel: tf.Tensor, bias: Optional[tf.Tensor]) -> tf.Tensor:
    """Return a convolution of single pixels, (channels, filters), as a product of matrices.

    In float32 its gradients take less time so, in bfloat16 more.
    """
    channels, filters = kernel.shape
    rows = _add_bias(tf.linalg.matmul(tf.reshape(x, (-1, channels)), kernel), bias)
    return tf.reshape(rows, (-1, *x.shape[1:-1], filters))


def _grouped(
    inputs: tf.Tensor,
    kernel: tf.Tensor,
    padding: str,
    groups: int,
    strides: Sequence[int],
    rates: Sequence[int],
) -> tf.Tensor:
    """Return a convolution without bias; one in groups in few ops, or building the graph would take minutes.

    Groups of one channel are a depthwise convolution. Otherwise an op has several groups, each of its kernels
    being zero outside of its group.
    """
    if groups == 1:
        return tf.nn.convolution(inputs, kernel, strides, padding, dilations=rates)
    height, width, channels, filters = kernel.shape
    if channels == 1:
        kernel = tf.reshape(kernel, (height, width, groups, filters // groups))
        return tf.nn.depthwise_conv2d(inputs, kernel, (1, *strides, 1), padding, dilations=rates)
    parts = max(n for n in range(1, _MOST_PARTS + 1) if groups % n == 0)
    each = groups // parts
    apart = tf.reshape(tf.eye(each, dtype=kernel.dtype), (1, 1, each, 1, each, 1))
    made = []
    for x, k in zip(tf.split(inputs, parts, axis=-1), tf.split(kernel, parts, axis=-1)):
        if each > 1:
            k = apart * tf.reshape(k, (height, width, 1, channels, each, filters // groups))
            k = tf.reshape(k, (height, width, each * channels, filters // parts))
        made.append(tf.nn.convolution(x, k, strides, padding, dilations=rates))
    return tf.concat(made, axis=-1)


def _kernel(layer: Layer) -> Variable:
    for name in ("pointwise_kernel", "depthwise_kernel"):
        if hasattr(layer, name):
            return getattr(layer, name)
    return layer.kernel


def _scaled(layer: Layer, scale: Optional[tf.Tensor]) -> tf.Tensor:
    kernel = _value(_kernel(layer))
    if scale is None:
        return kernel
    if type(layer) is tf.keras.layers.DepthwiseConv2D:
        scale = tf.reshape(scale, kernel.shape[2:])  # (channels, multiplier)
    return kernel * scale


def _value(variable: Variable) -> tf.Tensor:
    """Return the value of a variable in its own precision, whatever its layer computes in."""
    return tf.convert_to_tensor(tf_variable(variable))


def _scales_last(norm: Layer, inputs: tf.Tensor) -> bool:
    """Return whether a batch norm scales the last axis of its inputs, and does nothing else."""
    axes = [norm.axis] if isinstance(norm.axis, int) else list(norm.axis)
    plain = not getattr(norm, "renorm", False) and not getattr(norm, "virtual_batch_size", None)
    return plain and axes in ([-1], [len(inputs.shape) - 1])
