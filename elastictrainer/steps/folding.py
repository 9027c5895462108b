"""Layers computed in less time: batch norms and zero padding folded into convolutions; and convolutions and
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

from elastictrainer.steps.keras_compat.layers import KEEPS, layers_inside, read_by_several, replaced_by_user
from elastictrainer.steps.keras_compat.variables import Variable, tf_variable
from elastictrainer.steps.keras_compat.version import KERAS_3

_MOST_PARTS = 8  # of a convolution in groups

Layer = Any  # of Keras
Call = Callable[..., tf.Tensor]  # of a layer


@dataclass
class _Made:
    """What a layer has made: `layer(inputs)` is `outputs`; and whether a norm was folded into it."""

    layer: Layer
    operation: Optional[Call]  # of `_operation`; None of zero padding
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
                if replaced_by_user(layer):
                    continue
                if type(layer) is tf.keras.layers.BatchNormalization:
                    layer.call = _of_norm(layer, layer.call, made, trained)
                elif not self._fold:
                    continue
                elif type(layer) is tf.keras.layers.ZeroPadding2D:
                    layer.call = _noted(layer, None, layer.call, made)
                elif _is_silu(layer):
                    layer.call = _silu
                elif (operation := _operation(layer)) is not None:
                    call = _by_operation(layer, operation) if _is_slow(layer) else layer.call
                    linear = layer.activation is tf.keras.activations.linear
                    folds = linear and id(layer) not in self._kept and not read_by_several(layer)
                    layer.call = _noted(layer, operation, call, made) if folds else call
                else:
                    continue
                changed.append(layer)
            yield made
        finally:
            for layer in changed:
                del layer.call


def _is_silu(layer: Layer) -> bool:
    """Return whether a layer is the activation x sigmoid(x), on a processor and in float32."""
    if type(layer) is not tf.keras.layers.Activation or tf.config.list_physical_devices("GPU"):
        return False
    return layer.compute_dtype == "float32" and layer.activation is tf.keras.activations.get("swish")


@tf.autograph.experimental.do_not_convert
def _silu(inputs: tf.Tensor) -> tf.Tensor:
    # TensorFlow's own computes the sigmoid again for the gradient, which holds less and takes longer.
    return inputs * tf.sigmoid(inputs)


def _is_slow(layer: Layer) -> bool:
    """Return whether Keras' own operation is slower than that of this module."""
    if type(layer) is not tf.keras.layers.Conv2D:
        return _casts_to_float32(layer)
    in_float32 = layer.compute_dtype == "float32"
    return (layer.groups > 1 or in_float32) and not tf.config.list_physical_devices("GPU")


def _casts_to_float32(layer: Layer) -> bool:
    """Return whether a layer in bfloat16 computes its depthwise part in float32: its gradient is slow."""
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


def _noted(layer: Layer, operation: Optional[Call], call: Call, made: Dict[int, _Made]) -> Call:
    """Return `call`, which then adds to `made` what it has made."""

    @tf.autograph.experimental.do_not_convert
    def noted(inputs: tf.Tensor, *arguments: Any, **options: Any) -> Any:
        outputs = call(inputs, *arguments, **options)
        if isinstance(inputs, tf.Tensor) and inputs.dtype == outputs.dtype:  # as what is folded computes
            made[id(outputs)] = _Made(layer, operation, inputs, outputs)
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
        folds = not updates and options.get("mask") is None and _scales_last(norm, inputs)
        if before is None or before.operation is None or not folds:
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
        return before.operation(*_unpadded(layer, before.inputs, made), scale, bias)

    return folded


def _add_bias(outputs: tf.Tensor, bias: Optional[tf.Tensor]) -> tf.Tensor:
    return outputs if bias is None else tf.nn.bias_add(outputs, tf.cast(bias, outputs.dtype))


def _on_cpu_in_float32(tensor: tf.Tensor) -> bool:
    """Return whether a processor computes what reads `tensor`, in float32."""
    return tensor.dtype == tf.float32 and not tf.config.list_physical_devices("GPU")


def _unpadded(layer: Layer, inputs: tf.Tensor, made: Dict[int, _Made]) -> Tuple[tf.Tensor, str]:
    """Return the inputs and the padding of a layer: without zero padding before it where SAME adds the same.

    Keras' MobileNets and EfficientNets have such layers. In bfloat16 they stay: there the gradient is fast
    with padding VALID alone.
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
    in_float32 = inputs.dtype == tf.float32 or _casts_to_float32(layer)
    last = before.layer.data_format == "channels_last"
    return (before.inputs, "SAME") if same and in_float32 and last else (inputs, padding)


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
        pointwise = groups == max(*strides, *kernel.shape[:2]) == 1
        if pointwise and _on_cpu_in_float32(x) and None not in x.shape[1:]:
            return _pointwise(x, kernel[0, 0], bias)
        return _add_bias(_grouped(x, kernel, padding, groups, strides, rates), bias)

    return compute


def _depthwise(layer: Layer, x: tf.Tensor, kernel: tf.Tensor, padding: str) -> tf.Tensor:
    """Return the depthwise part of a layer, in the format of `x`."""
    inputs = tf.cast(x, tf.float32) if _casts_to_float32(layer) else x
    kernel, strides = tf.cast(kernel, inputs.dtype), (1, *layer.strides, 1)
    outputs = tf.nn.depthwise_conv2d(inputs, kernel, strides, padding, dilations=tuple(layer.dilation_rate))
    return tf.cast(outputs, x.dtype)


def _pointwise(x: tf.Tensor, kernel: tf.Tensor, bias: Optional[tf.Tensor]) -> tf.Tensor:
    """Return a pointwise convolution as a product of matrices; `x` (batch, ..., channels) has a known shape.

    `kernel` is (channels, filters). In float32 the gradients take less time so, in bfloat16 more.
    """
    rows = _add_bias(tf.linalg.matmul(tf.reshape(x, (-1, kernel.shape[0])), kernel), bias)
    return tf.reshape(rows, (-1, *x.shape[1:-1], kernel.shape[1]))


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
