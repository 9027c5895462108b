"""The differences between Keras 2 (TensorFlow 2.15) and Keras 3 (TensorFlow 2.16 on), and Keras' private
names.

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

import numpy as np
import tensorflow as tf

from elastictrainer.steps.zeros import share_zeros, zeros_like

KERAS_3 = hasattr(tf.keras, "ops")
# Where Keras defines the helpers that its applications call.
_HELPERS = {
    "get_file": sys.modules[tf.keras.utils.get_file.__module__],
    "obtain_input_shape": sys.modules[tf.keras.applications.imagenet_utils.preprocess_input.__module__],
}
_APPLICATIONS = _HELPERS["obtain_input_shape"].__name__.rpartition(".")[0] + "."  # "keras.src.applications."


def tf_variable(variable: Any) -> tf.Variable:
    """Return TensorFlow's variable that holds the value: a Keras 3 variable wraps one."""
    return variable if isinstance(variable, tf.Variable) else variable.value


def tf_variables(variables: Iterable[Any]) -> List[tf.Variable]:
    """Return TensorFlow's variable of each."""
    return [tf_variable(v) for v in variables]


def name_of(variable: Any) -> str:
    """Return the variable's name with its layers': `block/conv/kernel`."""
    return getattr(variable, "path", None) or variable.name.split(":")[0]


def layers_inside(layer: Any, recursive: bool = False) -> List[Any]:
    """Return the layers that `layer` holds, in their order; with `recursive` those that these hold too."""
    return list(layer._flatten_layers(include_self=False, recursive=recursive))


def random_states(model: tf.keras.Model) -> List[tf.Variable]:
    """Return the state variables of the model's random number generators, which are not among its weights."""
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
    """Return whether it is one of Keras' older kind, as TensorFlow Addons' are."""
    return not hasattr(optimizer, "build")


def build_optimizer(optimizer: Any, variables: Sequence[Any]) -> None:
    """Create the optimizer's counters, and its slots for `variables`, which share their zeros."""
    maker = "add_slot" if is_legacy(optimizer) else "add_variable_from_reference"
    make = getattr(optimizer, maker)

    def made(*arguments: Any, **options: Any) -> Any:
        slot = make(*arguments, **options)
        share_zeros(tf_variable(slot))  # at once: all slots of Adam take twice as much as the weights
        return slot

    if not (KERAS_3 or is_legacy(optimizer)):
        # By itself it has XLA compile updates on a GPU, where the profiler cannot look inside.
        optimizer.jit_compile = False
    build = optimizer._create_all_weights if is_legacy(optimizer) else optimizer.build
    with _replaced(optimizer, **{maker: made}):
        build(list(variables))


def rate_variables(optimizer: Any) -> List[Any]:
    """Return the variables outside the optimizer's own that a callback may set, such as Keras 2's learning
    rate.
    """
    if KERAS_3:
        return []
    rates = optimizer._hyper.values() if is_legacy(optimizer) else [optimizer._learning_rate]
    return [rate for rate in rates if isinstance(rate, tf.Variable)]


def set_learning_rate(optimizer: Any, rate: float, decay_per_rate: float) -> None:
    """Set the learning rate; and the decay of TensorFlow Addons' optimizers, which does not follow it."""
    if not is_legacy(optimizer):
        optimizer.learning_rate = rate
        return
    for name, value in (("learning_rate", rate), ("weight_decay", rate * decay_per_rate)):
        hyper = optimizer._hyper.get(name)
        if isinstance(hyper, tf.Variable):  # a built optimizer's; setting it through Keras takes far longer
            hyper.assign(value)
        elif hyper is not None:
            optimizer._set_hyper(name, value)


def untracked_variables(optimizer: Any) -> List[tf.Variable]:
    """Return state of the optimizer that Keras does not count among its variables."""
    product = None if KERAS_3 else getattr(optimizer, "_u_product", None)  # of Nadam
    found = [product, paused_steps(optimizer)]
    return [variable for variable in found if variable is not None]


def layers_before(tensor: Any) -> Iterator[Any]:
    """Return the layers that make an output of a functional model, the last first; none of another model."""
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
    """Update by (gradient, variable) pairs, without an all-reduce over replicas."""
    if is_legacy(optimizer):
        optimizer.apply_gradients(pairs, experimental_aggregate_gradients=False)
        return
    paused = paused_steps(optimizer)
    with contextlib.ExitStack() as stack:
        if paused is not None:
            stack.enter_context(_own_steps(optimizer, paused))
        if KERAS_3:  # which has no option for it
            stack.enter_context(_replaced(optimizer, _all_reduce_sum_gradients=list))
            optimizer.apply_gradients(pairs)
        else:
            optimizer.apply_gradients(pairs, skip_gradients_aggregation=True)
    count_paused(optimizer, [variable for _, variable in pairs])


def count_paused(optimizer: Any, trained: Sequence[Any]) -> None:
    """Count a step in which `trained` alone were updated."""
    paused = paused_steps(optimizer)
    if paused is not None and len(trained) < paused.shape[0]:
        numbers = {_index(optimizer, variable) for variable in trained}
        paused.assign_add([int(k not in numbers) for k in range(paused.shape[0])])


@contextlib.contextmanager
def _replaced(owner: Any, **attributes: Any) -> Iterator[None]:
    """Give `owner` other attributes for a while; Keras' own bookkeeping of attributes is passed by."""
    before = {name: vars(owner)[name] for name in attributes if name in vars(owner)}
    for name, value in attributes.items():
        object.__setattr__(owner, name, value)
    try:
        yield
    finally:
        for name in attributes:
            if name in before:
                object.__setattr__(owner, name, before[name])
            else:
                object.__delattr__(owner, name)


def updates_together(optimizer: Any, pauses: bool) -> str:
    """Return why the optimizer cannot update some tensors without the others; empty where it can.

    Args:
        pauses: the tensors change during the run.
    """
    if isinstance(optimizer, getattr(tf.keras.optimizers, "MultiOptimizer", ())):  # of Keras 3
        return "updates all tensors or none"
    if pauses and is_legacy(optimizer) and not isinstance(optimizer, tf.keras.optimizers.legacy.SGD):
        return "is of Keras' older kind, which corrects all tensors by one count of steps"
    return ""


def count_own_steps(optimizer: Any) -> bool:
    """Correct each tensor's averages by the steps that this tensor has trained in; the optimizer is built.

    Keras counts the steps of the optimizer, also for a tensor that was left out of most of them. Learning
    rate schedules follow that count as before. Where every step trains every tensor, nothing changes.

    Returns:
        Whether that is new to this optimizer.
    """
    if is_legacy(optimizer) or paused_steps(optimizer) is not None:
        return False
    dtype = tf_variable(optimizer.iterations).dtype
    paused = tf.Variable(tf.zeros(_built_for(optimizer), dtype), trainable=False, name="paused_steps")
    object.__setattr__(optimizer, "_elastictrainer_paused", paused)
    return True


def paused_steps(optimizer: Any) -> Optional[tf.Variable]:
    """Return (N,) int: by how many steps each tensor is behind the optimizer's count; None before
    `count_own_steps`.
    """
    return getattr(optimizer, "_elastictrainer_paused", None)


def slots(optimizer: Any, variables: Sequence[Any]) -> Iterator[Tuple[str, Any, tf.Variable]]:
    """Yield the slots of `variables`: its name in the optimizer, the variable it is for, and the slot."""
    if is_legacy(optimizer):
        for name in optimizer.get_slot_names():
            for variable in variables:
                yield name, variable, optimizer.get_slot(variable, name)
        return
    numbers = [_index(optimizer, variable) for variable in variables]
    for name, found in list(vars(optimizer).items()):
        if not isinstance(found, list) or len(found) != _built_for(optimizer) or name in _NO_SLOTS:
            continue
        for k, variable in zip(numbers, variables):
            if hasattr(found[k], "assign"):
                yield name, variable, tf_variable(found[k])


def reset_slots(optimizer: Any, variables: Sequence[Any]) -> None:
    """Give the slots of `variables` the values that they are made with, and count their steps from zero."""
    free = getattr(tf.keras.optimizers, "ScheduleFreeAdamW", ())  # of later versions of Keras 3
    for name, variable, slot in slots(optimizer, variables):
        if name == "_accumulators" and not is_legacy(optimizer):
            slot.assign(tf.fill(slot.shape, tf.cast(optimizer.initial_accumulator_value, slot.dtype)))
        elif name == "_momentums" and isinstance(optimizer, free):
            slot.assign(tf_variable(variable))
        else:
            slot.assign(zeros_like(slot))
    paused = paused_steps(optimizer)
    if paused is not None:  # own steps = iterations - paused: zero for the chosen tensors from here on
        chosen = {_index(optimizer, variable) for variable in variables}
        again = [k in chosen for k in range(paused.shape[0])]
        paused.assign(tf.where(again, tf_variable(optimizer.iterations), paused))


# Lists of variables that an optimizer has, and that are not one slot of each tensor.
_NO_SLOTS = ("_variables", "_trainable_variables")


def _index(optimizer: Any, variable: Any) -> int:
    """Return the number of `variable` among those that the optimizer was built for."""
    if KERAS_3:
        return int(optimizer._get_variable_index(variable))
    return int(optimizer._index_dict[optimizer._var_key(variable)])


def _built_for(optimizer: Any) -> int:
    """Return how many variables the optimizer was built for."""
    return len(optimizer._trainable_variables_indices if KERAS_3 else optimizer._index_dict)


# Nadam's momentum factor of step t is beta_1 (1 - 0.96^t / 2): the products of the brackets for 0 steps, 1,
# 2, ... up to those whose bracket is 1 in single precision.
_NADAM = np.cumprod([1.0, *(1 - 0.5 * 0.96 ** np.arange(1, 500))])


def _nadam_product(optimizer: Any, steps: tf.Tensor, dtype: Any) -> tf.Tensor:
    """Return the product of Nadam's momentum factors of so many steps."""
    power = tf.pow(tf.cast(optimizer.beta_1, dtype), tf.cast(steps, dtype))
    return power * tf.gather(tf.constant(_NADAM, dtype), tf.minimum(steps, len(_NADAM) - 1))


@contextlib.contextmanager
def _own_steps(optimizer: Any, paused: tf.Variable) -> Iterator[None]:
    """Update each tensor in this block as if the optimizer had made that tensor's own steps alone."""
    update, own = optimizer.update_step, tf.unstack(tf_variable(optimizer.iterations) - paused)
    product = getattr(optimizer, "_u_product", None)  # Nadam has one for all tensors

    def step(gradient: Any, variable: Any, *rate: Any) -> None:
        # Adam divides its averages by 1 - beta^t: t must be the tensor's own steps, not the optimizer's.
        k = _index(optimizer, variable)
        attributes = {"_iterations": own[k]}
        if product is not None and KERAS_3:
            attributes["_u_product"] = tf.where(
                paused[k] == 0, product, _nadam_product(optimizer, own[k] + 1, product.dtype)
            )
        elif product is not None:  # Keras 2 adds a factor to it where it has not been counted yet
            product.assign(_nadam_product(optimizer, own[k], product.dtype))
            attributes["_u_product_counter"] = 0
        with _replaced(optimizer, **attributes):
            update(gradient, variable, *rate)

    with _replaced(optimizer, update_step=step):
        yield


def learning_rate(optimizer: Any) -> Any:
    """Return the optimizer's learning rate, or its schedule: Keras 2 gives the rate of the latest update
    instead.
    """
    kept = getattr(optimizer, "_learning_rate", None)
    schedules = tf.keras.optimizers.schedules
    return kept if isinstance(kept, schedules.LearningRateSchedule) else optimizer.learning_rate


def is_compiled(model: tf.keras.Model) -> bool:
    """Return whether `Model.compile` was called."""
    return bool(getattr(model, "compiled" if KERAS_3 else "_is_compiled", False))


def compilation(model: tf.keras.Model) -> Any:
    """Return an object that each `Model.compile` replaces; None of a model that is not compiled."""
    return getattr(model, "_compile_config", None)


def steps_per_execution(model: tf.keras.Model) -> int:
    """Return the steps per execution of the compiled model; 0 where Keras 2 chooses."""
    if getattr(model, "autotune_steps_per_execution", False):
        return 0
    return int(model.steps_per_execution if KERAS_3 else model._steps_per_execution or 1)


def most_steps_per_epoch() -> Optional[int]:
    """Return the number of steps after which Keras 3 ends every epoch, as in debugging; None: no limit."""
    limit = getattr(getattr(tf.keras, "config", None), "max_steps_per_epoch", None)
    return limit() if limit else None


def count_step(model: tf.keras.Model) -> None:
    """Add one to the steps that Keras 2 counts in a model; Keras 3 counts in the optimizer alone."""
    if not KERAS_3:
        model._train_counter.assign_add(1)


def compiled_loss(
    model: tf.keras.Model, x: Any, labels: Any, outputs: Any, weights: Any, training: bool
) -> tf.Tensor:
    """Return the loss a model was compiled with, with layers' regularisation; updates the metric "loss"."""
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
    """Call `network` on symbolic `inputs`, always with training=False.

    Keras 2 keeps the argument of a symbolic call; Keras 3 replaces it by that of the outermost call.
    """
    return InferenceMode(network)(inputs) if KERAS_3 else network(inputs, training=False)


def for_inference(model: tf.keras.Model, skipped: Tuple[type, ...]) -> tf.keras.Model:
    """Rebuild the network with the same weights, in Keras' own layers, without those of the types `skipped`.

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
    """Return whether the layer is a network of which Keras knows the graph of its layers."""
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
    """Gather from symbolic inputs as `tf.gather` does, which rejects those of Keras 3."""
    return tf.keras.ops.take(inputs, indices, axis=axis) if KERAS_3 else tf.gather(inputs, indices, axis=axis)


def argmax(inputs: Any) -> Any:
    """Return the largest index over the last axis of symbolic inputs, as `tf.argmax` does."""
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
    """Replace empty tf.experimental.Optionals of Keras 3 in a minibatch by None."""
    return tf.nest.map_structure(
        lambda part: None if isinstance(part, tf.experimental.Optional) else part, data
    )


class FitData:
    """The data that `Model.fit` is given, read epoch after epoch, in minibatches as `fit` makes them.

    Attributes:
        steps: minibatches of an epoch; None: unknown before the data was read once.
        spec: tf.TensorSpecs of a minibatch; None before the first.
    """

    def __init__(self, model: tf.keras.Model, given: Dict[str, Any]):
        """
        Args:
            model: the one that is trained.
            given: arguments of its `fit` by name, without a validation part (see `validation_split_off`).
        """
        names = ["x", "y", "sample_weight", "batch_size", "steps_per_epoch", "class_weight"]
        if not KERAS_3:
            names += ["max_queue_size", "workers", "use_multiprocessing"]
        options = {name: given[name] for name in names if given.get(name) is not None}
        options["shuffle"] = given.get("shuffle", True)
        self.spec: Any = None
        if KERAS_3:
            trainer = importlib.import_module("keras.src.backend.tensorflow.trainer")
            strategy = tf.distribute.get_strategy()
            self._keras = trainer.TFEpochIterator(distribute_strategy=strategy, **options)
            self.steps: Optional[int] = self._keras.num_batches
        else:
            handlers = importlib.import_module("keras.src.engine.data_adapter")
            self._keras = handlers.get_data_handler(**options, epochs=sys.maxsize, model=model)
            self._epochs = self._keras.enumerate_epochs()
            self.steps = self._keras.inferred_steps

    def epoch(self) -> Iterator[Any]:
        """Read the minibatches of the next epoch, all of them that there are.

        What Keras does between two epochs is done here as well: read on after the last minibatch.
        """
        iterator: Any = None
        if KERAS_3:
            for _, _, iterator in self._keras:
                self.spec = iterator.element_spec
                yield from _next_of(iterator)
            return
        _, iterator = next(self._epochs)
        self.spec = iterator.element_spec
        for _ in self._keras.steps():
            yield from _next_of(iterator)


def _next_of(iterator: Iterator[Any]) -> List[Any]:
    """Return the next item, alone in a list; an empty one at the end of the data."""
    try:
        return [next(iterator)]
    except (StopIteration, tf.errors.OutOfRangeError):
        return []


def validation_split_off(given: Dict[str, Any]) -> Dict[str, Any]:
    """Return the arguments of `Model.fit`, by name, with `validation_data` in place of `validation_split`."""
    share = given.get("validation_split")
    if not share or given.get("validation_data") is not None:
        return given
    home = "trainers.data_adapters.array_slicing" if KERAS_3 else "engine.data_adapter"
    split = importlib.import_module(f"keras.src.{home}").train_validation_split
    names = ("x", "y", "sample_weight")
    train, validation = split(tuple(given.get(name) for name in names), share)
    return {**given, **dict(zip(names, train)), "validation_data": validation}


def initial_epoch(model: tf.keras.Model, epoch: int, steps: int) -> int:
    """Return the epoch to begin with: the one given, or where BackupAndRestore has put the model back to."""
    if KERAS_3:
        return int(getattr(model, "_initial_epoch", None) or epoch)
    return int(model._maybe_load_initial_counters_from_ckpt(steps, epoch)[0])


def load_model(path: Union[str, Path], safe_mode: bool = True) -> tf.keras.Model:
    """Load the model of a Keras file, not compiled; for safety call `models.model_file.read`. Raises what
    Keras raises.

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
    """Return the layers that keras.applications defines for its networks, such as ConvNeXt's LayerScale, by
    name.
    """
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
    """Let the networks of keras.applications call these helpers in this block, for their own of the same
    names.

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
