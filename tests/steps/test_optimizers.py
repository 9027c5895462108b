import importlib.util

import numpy as np
import pytest

from elastictrainer import UsageError
from elastictrainer.steps import optimizers
from elastictrainer.steps.keras_compat import own_steps
from elastictrainer.steps.keras_compat.version import KERAS_3


@pytest.mark.skipif(
    not importlib.util.find_spec("tensorflow_addons"), reason="no TensorFlow Addons on this platform"
)
def test_addons_and_keras_make_the_same_update(tf):
    pair = {"addons": optimizers.addons_sgdw(0.1, 0.05, 0.9), "keras": optimizers.keras_sgdw(0.1, 0.05, 0.9)}
    weights = {}
    for name, optimizer in pair.items():
        variables = [tf.Variable([1.0, -2.0, 3.0]), tf.Variable([[0.5]])]
        optimizers.build(optimizer, variables)
        random = np.random.default_rng(0)
        for k in range(8):
            gradients = [tf.constant(random.normal(size=v.shape), tf.float32) for v in variables]
            pairs = list(zip(gradients, variables))
            optimizers.set_rate(optimizer, 0.1 * (1 - k / 10))
            own_steps.apply(optimizer, pairs[:1] if k % 3 == 2 else pairs)  # the second rests now and then
        weights[name] = [v.numpy() for v in variables]
    for a, b in zip(weights["addons"], weights["keras"]):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_update_by_hand(tf):
    variable = tf.Variable([2.0])
    optimizer = optimizers.make("sgd", learning_rate=0.1, weight_decay=0.5, momentum=0.9)
    optimizers.build(optimizer, [variable])
    w, momentum = 2.0, 0.0
    for gradient in (1.0, -0.5, 2.0):
        optimizer.apply_gradients([(tf.constant([gradient]), variable)])
        w -= 0.1 * 0.5 * w
        momentum = 0.9 * momentum - 0.1 * gradient
        w += momentum
    np.testing.assert_allclose(variable.numpy(), [w], rtol=1e-6)


OPTIMIZERS = [
    *("Adadelta Adafactor Adagrad Adam AdamW Adamax Ftrl Lion Nadam RMSprop SGD".split()),
    *("Lamb Muon ScheduleFreeAdamW".split() if KERAS_3 else ()),
]
QUICK = ("SGD", "Adam", "AdamW", "Nadam")  # with momentum, counted steps, decay, and what all tensors share
CASES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in OPTIMIZERS]
OPTIONS = {
    "SGD": {"momentum": 0.9, "nesterov": True},
    "RMSprop": {"momentum": 0.5, "centered": True},
    "Adam": {"amsgrad": True},
    "AdamW": {"weight_decay": 0.01},
}


def make(tf, name):
    """One of Keras' optimizers, with the slots that it may have; or one of ours."""
    if name == "sgd":
        return optimizers.make("sgd", 0.1, weight_decay=0.0)
    return getattr(tf.keras.optimizers, name)(0.1, **OPTIONS.get(name, {}))


class Tensors:
    """Two kernels and a bias, and a gradient of each for each step."""

    def __init__(self, tf):
        self.tf, self.random = tf, np.random.default_rng(0)
        begin = [np.linspace(-1, 2, np.prod(shape)).reshape(shape) for shape in [(2, 3), (3,), (3, 2)]]
        variable = tf.keras.Variable if KERAS_3 else tf.Variable
        self.variables = [variable(value, dtype="float32") for value in begin]

    def train(self, apply, chosen, steps, graph=True):
        """Update the chosen tensors."""
        variables = [self.variables[k] for k in chosen]

        def step(*gradients):
            apply(list(zip(gradients, variables)))

        step = self.tf.function(step) if graph else step
        for _ in range(steps):
            drawn = [self.random.normal(1, 1, v.shape) for v in self.variables]
            step(*(self.tf.constant(drawn[k], self.tf.float32) for k in chosen))

    def values(self):
        return [v.numpy() for v in self.variables]


def test_every_optimizer_of_keras_is_tried(tf):
    optimizer = tf.keras.optimizers.Optimizer
    kinds = {name: value for name, value in vars(tf.keras.optimizers).items() if isinstance(value, type)}
    there = {name for name, kind in kinds.items() if issubclass(kind, optimizer) and kind is not optimizer}
    refused = {"LossScaleOptimizer", "MultiOptimizer"}  # see steps.requirements
    assert there - refused == set(OPTIMIZERS)


@pytest.mark.parametrize("name", CASES)
def test_where_all_tensors_always_train_the_update_is_keras_own_to_the_bit(tf, name):
    if name == "Nadam" and not KERAS_3:
        pytest.skip("Keras 2 multiplies the factors of all tensors into one product")
    ours, keras = Tensors(tf), Tensors(tf)
    optimizer, own = make(tf, name), make(tf, name)
    optimizers.prepare_freezing(optimizer, ours.variables)
    optimizers.build(own, keras.variables)
    ours.train(lambda pairs: own_steps.apply(optimizer, pairs), [0, 1, 2], 30)
    keras.train(own.apply_gradients, [0, 1, 2], 30)
    for a, b in zip(ours.values(), keras.values()):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", [*CASES, "sgd"])
def test_a_tensor_that_rested_is_updated_as_by_a_new_optimizer_and_the_others_go_on(tf, name):
    def apply(pairs):
        own_steps.apply(optimizer, pairs)

    tensors, optimizer = Tensors(tf), make(tf, name)
    optimizers.prepare_freezing(optimizer, tensors.variables)
    tensors.train(apply, [0, 1, 2], 30)
    frozen = tensors.values()
    optimizers.reset_slots(optimizer, tensors.variables[:2])
    tensors.train(apply, [2], 40)
    for before, after in zip(frozen[:2], tensors.values()):
        np.testing.assert_array_equal(after, before)
    tensors.train(apply, [0, 1, 2], 5)

    for k in range(3):
        alone, new = Tensors(tf), make(tf, name)
        if k < 2:
            alone.train(lambda pairs: None, [], 70)  # draws the gradients
            alone.variables[k].assign(frozen[k])
        optimizers.build(new, alone.variables[k : k + 1])
        # Without a graph: in one, Keras 2's Nadam is wrong.
        alone.train(new.apply_gradients, [k], 5 if k < 2 else 75, graph=False)
        np.testing.assert_allclose(
            tensors.values()[k], alone.values()[k], rtol=1e-5, atol=1e-6, err_msg=str(k)
        )


def test_an_optimizer_of_another_process_starts_again(tf):
    """The steps of each of its tensors are not in its file."""
    variable, optimizer = tf.Variable([1.0]), tf.keras.optimizers.Adam(0.1)
    optimizers.build(optimizer, [variable])
    own_steps.apply(optimizer, [(tf.ones(1), variable)])
    optimizer.iterations.assign(3000)
    optimizers.prepare_freezing(optimizer, [variable])
    before = variable.numpy()
    own_steps.apply(optimizer, [(tf.ones(1), variable)])
    np.testing.assert_allclose(before - variable.numpy(), [0.1], rtol=1e-5)
    slots = [v.numpy() for v in optimizers.variables_of(optimizer)]
    optimizers.prepare_freezing(optimizer, [variable])  # a second run of this process
    for slot, after in zip(slots, optimizers.variables_of(optimizer)):
        np.testing.assert_array_equal(slot, after.numpy())


@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_after_a_rest_no_update_exceeds_the_learning_rate_and_its_schedule_goes_on(tf, name):
    schedule = tf.keras.optimizers.schedules.PolynomialDecay(1.0, 3000, 0.0)
    variables = [tf.Variable([0.0]), tf.Variable([0.0])]
    optimizer = getattr(tf.keras.optimizers, name)(schedule, weight_decay=0.0)
    optimizers.prepare_freezing(optimizer, variables)

    def updates(chosen, steps):
        for _ in range(steps):
            before = variables[0].numpy()[0]
            own_steps.apply(optimizer, [(tf.ones(1), v) for v in chosen])
            yield float(before - variables[0].numpy()[0]) / float(schedule(int(optimizer.iterations) - 1))

    assert list(updates(variables, 48)) == pytest.approx(48 * [1.0], rel=1e-3)
    optimizers.reset_slots(optimizer, variables[:1])
    optimizer.iterations.assign(2000)
    list(updates(variables[1:], 1))
    optimizers.reset_slots(optimizer, variables[:1])
    assert list(updates(variables, 20)) == pytest.approx(20 * [1.0], rel=1e-3)


def test_unknown_optimizer_names_the_valid_ones(tf):
    with pytest.raises(UsageError, match="'sgd'.*sgd, adam, adamw"):
        optimizers.make("sdg")


@pytest.mark.skipif(KERAS_3, reason="Keras 2 alone compiles updates")
def test_updates_are_not_compiled_by_xla(tf):
    """As Keras 2 does by itself where it sees a GPU: the profiler could not tell the tensors apart."""
    variable, optimizer = tf.Variable([1.0]), tf.keras.optimizers.Adam(0.1)
    optimizer.jit_compile = True
    optimizers.build(optimizer, [variable])

    @tf.function
    def update():
        own_steps.apply(optimizer, [(tf.ones(1), variable)])

    library = update.get_concrete_function().graph.as_graph_def().library
    assert not [f for f in library.function if f.attr["_XlaMustCompile"].b]
