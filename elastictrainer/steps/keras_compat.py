"""What differs between Keras 2 (TensorFlow 2.15) and Keras 3 (TensorFlow 2.16 on), and Keras' private names.

No other module asks which Keras it is, or uses a name of Keras' that begins with an underscore.
"""

import contextlib
import importlib
import json
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import tensorflow as tf

KERAS_3 = hasattr(tf.keras, "ops")
# Where Keras defines the helpers that its applications call.
_HELPERS = {
    "get_file": sys.modules[tf.keras.utils.get_file.__module__],
    "obtain_input_shape": sys.modules[tf.keras.applications.imagenet_utils.preprocess_input.__module__],
}
_APPLICATIONS = _HELPERS["obtain_input_shape"].__name__.rpartition(".")[0] + "."  # "keras.src.applications."


def tf_variable(variable: Any) -> tf.Variable:
    """The variable of TensorFlow's that holds the value: a Keras 3 variable wraps one."""
    return variable if isinstance(variable, tf.Variable) else variable.value


def tf_variables(variables: Iterable[Any]) -> List[tf.Variable]:
    """`tf_variable` of each."""
    return [tf_variable(v) for v in variables]


def name_of(variable: Any) -> str:
    """The variable's name with its layers': `block/conv/kernel`."""
    return getattr(variable, "path", None) or variable.name.split(":")[0]


def layers_inside(layer: Any, recursive: bool = False) -> List[Any]:
    """The layers that `layer` holds, in their order; with `recursive` those that these hold too."""
    return list(layer._flatten_layers(include_self=False, recursive=recursive))


def random_states(model: tf.keras.Model) -> List[tf.Variable]:
    """The state variables of the model's random number generators, which are not among its weights."""
    states = {}
    for layer in [model, *layers_inside(model, recursive=True)]:
        for generator in getattr(layer, "_seed_generators", ()):  # Keras 3
            states[id(generator)] = tf_variable(generator.state)
    if not KERAS_3:
        for module in model.submodules:
            for value in vars(module).values():
                for candidate in (value, getattr(value, "_generator", None)):
                    if isinstance(candidate, tf.random.Generator):
                        states[id(candidate)] = candidate.state
    return list(states.values())


def use_random_variables() -> None:
    """Keep the random state of dropout and augmentation in variables; Keras 2 has it in ops by default."""
    if not KERAS_3:
        tf.keras.backend.experimental.enable_tf_random_generator()


def is_legacy(optimizer: Any) -> bool:
    """Whether it is one of Keras' older kind, as TensorFlow Addons' are."""
    return not hasattr(optimizer, "build")


def build_optimizer(optimizer: Any, variables: Sequence[Any]) -> None:
    """Create the optimizer's counters, and its slots for `variables`."""
    if is_legacy(optimizer):
        optimizer._create_all_weights(list(variables))
        return
    if not KERAS_3:  # by itself it has XLA compile updates on a GPU, where the profiler cannot look inside
        optimizer.jit_compile = False
    optimizer.build(list(variables))


def rate_variables(optimizer: Any) -> List[Any]:
    """Where Keras 2 keeps what a callback may set, such as the learning rate: not among its variables."""
    if KERAS_3:
        return []
    rates = optimizer._hyper.values() if is_legacy(optimizer) else [optimizer._learning_rate]
    return [rate for rate in rates if isinstance(rate, tf.Variable)]


def layers_before(tensor: Any) -> Iterator[Any]:
    """The layers by which an output of a functional model is made, the last one first; none of another."""
    history = getattr(tensor, "_keras_history", None)
    if history is None:
        return
    last = history.operation if KERAS_3 else history.layer
    nodes = [last._inbound_nodes[history.node_index]]
    for node in nodes:  # to which are added those before it
        made_by = node.operation if KERAS_3 else node.layer
        if isinstance(made_by, tf.keras.layers.Layer):
            yield made_by
        nodes += [parent for parent in node.parent_nodes if parent not in nodes]


def apply_gradients(optimizer: Any, pairs: Sequence[Tuple[Any, Any]]) -> None:
    """The optimizer's update by (gradient, variable) pairs, without an all-reduce over replicas."""
    if is_legacy(optimizer):
        optimizer.apply_gradients(pairs, experimental_aggregate_gradients=False)
    elif KERAS_3:
        with _without_all_reduce(optimizer):
            optimizer.apply_gradients(pairs)
    else:
        optimizer.apply_gradients(pairs, skip_gradients_aggregation=True)


@contextlib.contextmanager
def _without_all_reduce(optimizer: Any) -> Iterator[None]:
    """Hide the optimizer's all-reduce over replicas, for which Keras 3 has no option."""
    object.__setattr__(optimizer, "_all_reduce_sum_gradients", list)
    try:
        yield
    finally:
        object.__delattr__(optimizer, "_all_reduce_sum_gradients")


def learning_rate(optimizer: Any) -> Any:
    """The optimizer's learning rate, or its schedule: Keras 2 gives the rate of the latest update instead."""
    kept = getattr(optimizer, "_learning_rate", None)
    schedules = tf.keras.optimizers.schedules
    return kept if isinstance(kept, schedules.LearningRateSchedule) else optimizer.learning_rate


def momentum_slots(optimizer: Any, variables: Sequence[Any]) -> List[Any]:
    """The optimizer's momentum, or average of gradients, of each of `variables`; empty if it keeps none."""
    if is_legacy(optimizer):
        names = [name for name in optimizer.get_slot_names() if name in ("momentum", "m")]
        return [optimizer.get_slot(v, name) for name in names for v in variables]
    slots = getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", None) or []
    if not slots:
        return []
    if KERAS_3:
        return [slots[optimizer._get_variable_index(v)] for v in variables]
    return [slots[optimizer._index_dict[optimizer._var_key(v)]] for v in variables]


def is_compiled(model: tf.keras.Model) -> bool:
    """Whether `Model.compile` was called."""
    return bool(getattr(model, "compiled" if KERAS_3 else "_is_compiled", False))


def steps_per_execution(model: tf.keras.Model) -> int:
    """As the model was compiled; 0 where Keras 2 is to find out how many."""
    if getattr(model, "autotune_steps_per_execution", False):
        return 0
    return int(model.steps_per_execution if KERAS_3 else model._steps_per_execution or 1)


def most_steps_per_epoch() -> Optional[int]:
    """The number of steps that Keras 3 was told to end every epoch after, as in debugging; None: no limit."""
    limit = getattr(getattr(tf.keras, "config", None), "max_steps_per_epoch", None)
    return limit() if limit else None


def count_step(model: tf.keras.Model) -> None:
    """Add one to the steps that Keras 2 counts in a model; Keras 3 counts in the optimizer alone."""
    if not KERAS_3:
        model._train_counter.assign_add(1)


def compiled_loss(
    model: tf.keras.Model, x: Any, labels: Any, outputs: Any, weights: Any, training: bool
) -> tf.Tensor:
    """The loss a model was compiled with, with layers' regularisation; updates the metric "loss"."""
    if not KERAS_3:
        return model.compute_loss(x, labels, outputs, weights)
    # As Keras' own step does: a model's own compute_loss need not take `training`.
    loss = model._compute_loss(x, labels, outputs, weights, training=training)
    model._loss_tracker.update_state(loss, sample_weight=tf.shape(tf.nest.flatten(x)[0])[0])
    return loss


@tf.keras.utils.register_keras_serializable("elastictrainer")
class InferenceMode(tf.keras.layers.Wrapper):
    """A network that always runs in inference mode: frozen statistics, no dropout. It can be trained."""

    def call(self, inputs: Any) -> Any:
        return self.layer(inputs, training=False)


def in_inference_mode(network: tf.keras.Model, inputs: Any) -> Any:
    """What `network` makes of symbolic `inputs`, always with training=False.

    Keras 2 keeps the argument of a symbolic call; Keras 3 replaces it by that of the outermost call.
    """
    return InferenceMode(network)(inputs) if KERAS_3 else network(inputs, training=False)


def for_inference(model: tf.keras.Model, skipped: Tuple[type, ...]) -> tf.keras.Model:
    """The network with the same weights, in Keras' own layers, without those of the types `skipped`.

    Random layers would augment wherever nobody says otherwise. Networks inside are done likewise.
    """
    if not any(
        isinstance(layer, (InferenceMode, *skipped)) for layer in layers_inside(model, recursive=True)
    ):
        return model

    def cleaned(layer: Any) -> Any:
        return for_inference(layer, skipped) if _is_functional(layer) else layer

    def kept(layer: Any) -> Any:
        return tf.keras.layers.Identity() if isinstance(layer, skipped) else cleaned(layer)

    def call(layer: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(layer, skipped):
            return arguments[0]
        if isinstance(layer, InferenceMode):
            return cleaned(layer.layer)(*arguments)
        return layer(*arguments, **options)

    if not KERAS_3:
        return tf.keras.models.clone_model(model, clone_function=kept)
    if isinstance(model, tf.keras.Sequential):
        model = tf.keras.Model(model.inputs, model.outputs, name=model.name)
    return tf.keras.models.clone_model(model, clone_function=cleaned, call_function=call)


def _is_functional(layer: Any) -> bool:
    """Whether the layer is a network of which Keras knows the graph of its layers."""
    home = f"keras.src.{'models' if KERAS_3 else 'engine'}.functional"
    functional = importlib.import_module(home).Functional
    return isinstance(layer, (functional, tf.keras.Sequential)) and layer.built


def compute_in_float32(model: tf.keras.Model) -> None:
    """Let layers that compute in bfloat16 compute in float32, which their weights are."""
    for layer in [model, *layers_inside(model, recursive=True)]:
        if layer.compute_dtype != "bfloat16":
            continue
        if KERAS_3:
            layer.dtype_policy = "float32"
        else:
            layer._set_dtype_policy("float32")


def take(inputs: Any, indices: Any, axis: int) -> Any:
    """`tf.gather` of symbolic inputs, which Keras 3's are not to TensorFlow."""
    return tf.keras.ops.take(inputs, indices, axis=axis) if KERAS_3 else tf.gather(inputs, indices, axis=axis)


def argmax(inputs: Any) -> Any:
    """`tf.argmax` of symbolic inputs over the last axis."""
    return tf.keras.ops.argmax(inputs, axis=-1) if KERAS_3 else tf.argmax(inputs, axis=-1)


def save_for_serving(model: tf.keras.Model, folder: str) -> None:
    """Write a SavedModel of the network in inference mode."""
    if KERAS_3:  # its random layers augment wherever nobody says otherwise
        (pixels,) = model.inputs
        inputs = tf.keras.Input(pixels.shape[1:], dtype=pixels.dtype, name=pixels.name)
        tf.keras.Model(inputs, InferenceMode(model, dtype="float32")(inputs)).export(folder, verbose=False)
    else:
        tf.saved_model.save(model, folder)


def without_optionals(data: Any) -> Any:
    """A minibatch with None where Keras 3 hands out an empty tf.experimental.Optional."""
    return tf.nest.map_structure(
        lambda part: None if isinstance(part, tf.experimental.Optional) else part, data
    )


def load_model(path: Union[str, Path], safe_mode: bool = True) -> tf.keras.Model:
    """The model of a Keras file, not compiled. Raises what Keras raises. See `models.model_file` for safety.

    Keras 2 reads weights inside the archive slowly: two minutes for ViT-B/16. They are extracted first,
    unless the archive holds anything that only Keras can load: shared objects, or further files.
    """
    if KERAS_3 or not zipfile.is_zipfile(path):
        return tf.keras.models.load_model(path, compile=False, safe_mode=safe_mode)
    with zipfile.ZipFile(path) as archive:
        config = archive.read("config.json").decode()
        if "shared_object_id" in config or set(archive.namelist()) != {
            "metadata.json",
            "config.json",
            "model.weights.h5",
        }:
            return tf.keras.models.load_model(path, compile=False, safe_mode=safe_mode)
        # Keras 2 does not find the classes of its own that it has not registered.
        unregistered = application_layers() if _APPLICATIONS in config else {}
        model = tf.keras.saving.deserialize_keras_object(
            {**json.loads(config), "compile_config": None}, unregistered, safe_mode=safe_mode
        )
        with tempfile.TemporaryDirectory(prefix="elastictrainer-model-") as folder:
            model.load_weights(archive.extract("model.weights.h5", folder))
    return model


def application_layers() -> Dict[str, type]:
    """The layers that keras.applications defines for its networks, such as ConvNeXt's LayerScale, by name."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(_APPLICATIONS)]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, tf.keras.layers.Layer)
        and value.__module__ == module.__name__
    }


@contextlib.contextmanager
def application_helpers(**replacements: Callable[..., Any]) -> Iterator[None]:
    """While entered, the networks of keras.applications call these for their helpers of the same names.

    These are `get_file`, which downloads weights, and `obtain_input_shape`, which knows a network's sizes.
    What Keras warns of, such as weights made for another image size, is not shown.
    """
    before = {name: getattr(_HELPERS[name], name) for name in replacements}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for name, replacement in replacements.items():
                setattr(_HELPERS[name], name, replacement)
            yield
        finally:
            for name, original in before.items():
                setattr(_HELPERS[name], name, original)
