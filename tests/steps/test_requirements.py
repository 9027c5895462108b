"""What a model must be like to be trained here."""

import contextlib
import inspect

import numpy as np
import pytest

from builders import small_network
from elastictrainer import Trainer, UsageError
from elastictrainer.steps import optimizers
from elastictrainer.steps.keras_compat.fitting import PASSED_BY, own_methods
from elastictrainer.steps.keras_compat.version import KERAS_3
from elastictrainer.steps.objective import KerasObjective, crossentropy_terms
from elastictrainer.steps.requirements import require_apart, require_supported, require_trainable

REFUSED = [name for names in PASSED_BY for name in names.split()]
# Of Keras' classes, by what a user gives: they have every method that `Model.fit` calls.
KINDS = {
    "model": "Sequential",
    "optimizer": "optimizers.Adam",
    "loss": "losses.MeanSquaredError",
    "metric": "metrics.MeanAbsoluteError",
    **({} if KERAS_3 else {"older optimizer": "optimizers.legacy.SGD"}),
}
BOOKKEEPING = {"trainable", *"_get_trainable_state _delete_tracking _unconditional_dependency_names".split()}
BOOKKEEPING.add("_maybe_initialize_trackable")
UNTOUCHED = ("name", "dtype", "reset_states")  # the last only calls reset_state, and is called by it


def keras_class(tf, kind):
    found = tf.keras
    for name in KINDS[kind].split("."):
        found = getattr(found, name)
    return found


def methods_of(base, kind):
    """The methods and properties of a Keras class by name, those of Python itself left out."""
    found = {}
    for home in reversed(base.__mro__[:-1]):
        for name, value in vars(home).items():
            method = callable(value) and not inspect.isclass(value)
            hidden = name.startswith("_" if kind == "metric" else "__") and name != "__call__"
            if (method or isinstance(value, property)) and not hidden and name not in UNTOUCHED:
                found[name] = value
    return found


def called_in(tf, kind, where, training):
    """Which of them `training` calls, where a user overrides all that is not refused; the trained weights."""
    base, called = keras_class(tf, kind), set()
    refused = () if training == "Model.fit" else REFUSED
    overridden = {n: v for n, v in methods_of(base, kind).items() if n not in refused}

    def override(name, value, of):
        def method(self, *arguments, **options):
            called.add(name)
            return getattr(of(self), name)(*arguments, **options)

        def read(self):
            called.add(name)
            return getattr(of(self), name)

        return property(read, value.fset, value.fdel) if isinstance(value, property) else method

    own = type(f"Own{base.__name__}", (base,), {})
    if where == "subclass":
        for name, value in overridden.items():
            setattr(own, name, override(name, value, lambda self: super(own, self)))
    tf.keras.utils.set_random_seed(0)
    made = {k: keras_class(tf, k) for k in KINDS}
    made.update({kind: own})
    network = made["model"]([tf.keras.layers.Dense(3, activation="tanh"), tf.keras.layers.Dense(1)])
    network.build((None, 4))
    optimizer = made["older optimizer" if kind == "older optimizer" else "optimizer"](0.1)
    loss, metric = made["loss"](), made["metric"]()
    if where == "object":
        theirs = {"model": network, "loss": loss, "metric": metric}.get(kind, optimizer)
        for name, value in overridden.items():
            if callable(value) and name != "__call__":
                plain = getattr(theirs, name)
                setattr(theirs, name, recorded(plain, name, called))
    trainer = Trainer(network, scheme="full") if training == "Trainer.fit" else network
    trainer.compile(optimizer, loss, metrics=[metric])
    called.clear()
    x = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
    options = {"epochs": 2, "batch_size": 8, "shuffle": False, "verbose": 0}
    trainer.fit(x, x[:, :1], validation_data=(x, x[:, :1]), **options)
    return called - BOOKKEEPING, network.get_weights()


def recorded(method, name, called):
    def record(*arguments, **options):
        called.add(name)
        return method(*arguments, **options)

    return record


@pytest.mark.slow
@pytest.mark.parametrize("where", ["subclass", "object"])
@pytest.mark.parametrize("kind", KINDS)
def test_all_that_fit_calls_is_called_or_refused(tf, kind, where):
    by_keras, expected = called_in(tf, kind, where, "Model.fit")
    by_us, weights = called_in(tf, kind, where, "Trainer.fit")
    assert by_keras - by_us - set(REFUSED) == set()
    for ours, theirs in zip(weights, expected):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("where", ["subclass", "object"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_passed_by_is_refused_by_name(tf, name, where):
    """Also of the other Keras, where such a name means nothing."""
    places = {"model": tf.keras.Sequential, "optimizer": tf.keras.optimizers.SGD}
    kind = (
        "optimizer" if hasattr(places["optimizer"], name) or not hasattr(places["model"], name) else "model"
    )
    is_property = isinstance(inspect.getattr_static(places[kind], name, None), property)
    if is_property and where == "object":
        pytest.skip("no method")
    own = type("Own", (places[kind],), {})
    plain = getattr(own, name, None)
    theirs = property(lambda self: plain.fget(self)) if is_property else (lambda *a, **k: plain(*a, **k))
    if where == "subclass":
        setattr(own, name, theirs)
    optimizer = (own if kind == "optimizer" else places["optimizer"])(0.1)
    model = (own if kind == "model" else places["model"])([tf.keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    if where == "object":
        setattr(model if kind == "model" else optimizer, name, theirs)
    with pytest.raises(UsageError, match=f"{kind} Own has its own {name}, "):
        require_supported(model)


def test_what_keras_itself_has_overridden_or_set_is_not_the_users(tf):
    places = [tf.keras.optimizers, getattr(tf.keras.optimizers, "legacy", None)]
    for kind in {k for place in places for k in vars(place or tf).values() if inspect.isclass(k)}:
        if hasattr(kind, "apply_gradients") and not inspect.isabstract(kind):
            assert own_methods(object.__new__(kind)) == []
    model = small_network(tf)
    model.compile("sgd", "sparse_categorical_crossentropy")
    model.fit(np.zeros((2, 8, 8, 3)), np.zeros(2), verbose=0)
    assert own_methods(model) == own_methods(model.optimizer) == []


def of_pairs(change):
    """A method apply_gradients that `change`s the pairs; its arguments are all that Keras asks for."""

    def apply_gradients(self, grads_and_vars):
        return super(type(self), self).apply_gradients(change(list(grads_and_vars)))

    return apply_gradients


def norm(tf, pairs):
    return tf.linalg.global_norm([g for g, _ in pairs])


@pytest.mark.parametrize(
    "change, alone",
    [
        (lambda tf, pairs: [(tf.clip_by_norm(g, 1.0), v) for g, v in pairs], True),
        (lambda tf, pairs: [(g + tf.random.normal(g.shape), v) for g, v in pairs], True),
        (lambda tf, pairs: [(g * (0.5 if len(v.shape) > 1 else 1.0), v) for g, v in pairs], True),
        (lambda tf, pairs: [(g / (1.0 + norm(tf, pairs)), v) for g, v in pairs], False),
        (lambda tf, pairs: [(g / len(pairs), v) for g, v in pairs], False),
        (lambda tf, pairs: [(g * 0.9**k, v) for k, (g, v) in enumerate(pairs)], False),
        (lambda tf, pairs: [(g + 0.0 * pairs[1][0][0], v) for g, v in pairs], False),
    ],
    ids=["norms", "noise", "kernels", "global norm", "count", "place", "needs two"],
)
def test_an_optimizer_must_update_each_tensor_as_it_does_among_all(tf, change, alone):
    own = type("Own", (tf.keras.optimizers.SGD,), {})
    own.apply_gradients = of_pairs(lambda pairs: change(tf, pairs))
    variables = [tf.Variable(tf.ones(shape)) for shape in ((3, 2), (2,), (2, 1))]
    optimizer = own(0.1, momentum=0.9)
    optimizers.build(optimizer, variables)
    if alone:
        require_apart(optimizer, variables)
    else:
        with pytest.raises(UsageError, match="Own has its own apply_gradients, .* tensors pause"):
            require_apart(optimizer, variables)
    assert all((v.numpy() == 1).all() for v in variables)
    assert all(not np.any(slot.numpy()) for slot in optimizers.variables_of(optimizer)[2:])


def test_state_that_goes_by_the_place_of_a_pair_is_refused(tf):
    class Own(tf.keras.optimizers.SGD):
        sums = None

        def apply_gradients(self, grads_and_vars, name=None):
            pairs = list(grads_and_vars)
            if self.sums is None:
                with tf.init_scope():
                    self.sums = [tf.Variable(tf.zeros(v.shape)) for _, v in pairs]
            return super().apply_gradients([(s.assign_add(g), v) for s, (g, v) in zip(self.sums, pairs)])

    variables = [tf.Variable(tf.ones(2)) for _ in range(3)]
    optimizer = Own(0.1)
    optimizers.build(optimizer, variables)
    with pytest.raises(UsageError, match="Own has its own apply_gradients"):
        require_apart(optimizer, variables)


@pytest.mark.skipif(KERAS_3, reason="an optimizer of Keras 3 computes no gradients")
def test_an_optimizer_that_differentiates_another_loss_is_refused(tf):
    class Other(tf.keras.optimizers.SGD):
        def compute_gradients(self, loss, var_list, tape=None):
            with tape:
                loss = 2 * loss
            return super().compute_gradients(loss, var_list, tape)

    variables, optimizer = [tf.Variable(tf.ones(2))], Other(0.1)
    optimizers.build(optimizer, variables)
    with pytest.raises(UsageError, match="Other has its own compute_gradients, .*another loss"):
        require_apart(optimizer, variables, pauses=False)


def test_a_head_is_not_solved_for_a_users_own_loss(tf):
    kind = tf.keras.losses.SparseCategoricalCrossentropy

    class Focal(kind):
        def call(self, y_true, y_pred):
            return super().call(y_true, y_pred) ** 2

    changed = kind(from_logits=True)
    changed.call = lambda y_true, y_pred: y_pred
    for loss in (Focal(from_logits=True), changed):
        with pytest.raises(UsageError, match=f"{type(loss).__name__} is no cross-entropy"):
            crossentropy_terms(loss)
    assert crossentropy_terms(kind(from_logits=True)) == (0.0, None)


@pytest.mark.parametrize(
    "options, message",
    [
        (None, "not compiled: call compile"),
        ({"run_eagerly": True}, "run_eagerly"),
        ({"jit_compile": True}, "jit_compile=False"),
        ({"steps_per_execution": 4}, "steps_per_execution must be 1"),
        pytest.param(
            {"steps_per_execution": "auto"},
            "steps_per_execution must be 1",
            marks=pytest.mark.skipif(KERAS_3, reason="Keras 3 takes numbers only"),
        ),
    ],
)
def test_a_way_of_training_that_excludes_selection_is_refused(tf, options, message):
    model = small_network(tf)
    if options is not None:
        model.compile(optimizer="sgd", loss="mse", **options)
    with pytest.raises(UsageError, match=message):
        require_supported(model)


@pytest.mark.skipif(KERAS_3, reason="of Keras 2, whose loss is that of the regularisers then")
def test_labels_that_were_forgotten_are_asked_for(tf):
    layer = tf.keras.layers.Dense(1, kernel_regularizer="l2")
    trainer = Trainer(tf.keras.Sequential([tf.keras.Input((4,)), layer]), scheme="full")
    trainer.compile("sgd", "mse")
    with pytest.raises(UsageError, match="there are no labels: pass y"):
        trainer.fit(np.ones((8, 4), np.float32), batch_size=4, verbose=0)


def test_auto_clustering_is_refused(tf):
    tf.config.optimizer.set_jit("autoclustering")
    try:
        with pytest.raises(UsageError, match="set_jit"):
            require_trainable(small_network(tf))
    finally:
        tf.config.optimizer.set_jit("")
    require_trainable(small_network(tf))


def around(tf):
    class Around(tf.keras.optimizers.SGD):
        def __init__(self):
            super().__init__(0.1)
            self.inner = tf.keras.optimizers.Adam()

    return Around()


def multiple(kinds):
    return kinds.MultiOptimizer(kinds.OptimizerMap(kinds.Adam()))


# Of each optimizer: why it is refused, whether it trains where no tensor pauses, and of which Keras it is.
UNFIT = {
    "scales": (
        lambda tf: tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.SGD(0.1)),
        *("loss scaling", False, None),
    ),
    "a factor": (
        lambda tf: tf.keras.optimizers.SGD(0.1, loss_scale_factor=1024.0),
        *("loss scaling", False, True),
    ),
    "accumulates": (
        lambda tf: tf.keras.optimizers.SGD(0.1, gradient_accumulation_steps=4),
        *("gradient_accumulation_steps", False, True),
    ),
    "averages": (lambda tf: tf.keras.optimizers.SGD(0.1, use_ema=True), "use_ema", False, None),
    "counts steps": (lambda tf: tf.keras.optimizers.legacy.Adam(), "Adam .*older", True, False),
    "needs all gradients": (lambda tf: multiple(tf.keras.optimizers), "MultiOptimizer", False, True),
    "around another": (around, "Around has another one inside", True, None),
}


@pytest.mark.parametrize("case", UNFIT)
def test_an_optimizer_that_cannot_train_a_part_is_refused(tf, case):
    make, message, trains_all, of_keras_3 = UNFIT[case]
    if of_keras_3 not in (None, KERAS_3):
        pytest.skip("of the other Keras")
    model = small_network(tf)
    model.compile(make(tf), loss="mse")
    for pauses in (True, False):
        refused = pytest.raises(UsageError, match=message)
        with contextlib.nullcontext() if trains_all and not pauses else refused:
            require_supported(model, pauses=pauses)


def test_other_optimizers_are_accepted(tf):
    model, kinds = small_network(tf), tf.keras.optimizers
    older = [] if KERAS_3 else [kinds.legacy.SGD(0.1, momentum=0.9)]
    for optimizer in ("sgd", kinds.Adam(1e-4), *older):
        model.compile(optimizer, loss="mse")
        require_supported(model)


def test_a_model_with_its_own_loss_is_trained_by_it_and_one_with_own_metrics_refused(tf):
    class OwnLoss(tf.keras.Model):
        def call(self, x):
            return x

        def compute_loss(self, x, y, y_pred, sample_weight):
            return 7.0 * tf.reduce_sum(y_pred)

    class OwnMetrics(OwnLoss):
        def compute_metrics(self, x, y, y_pred, sample_weight):
            return {}

    model = OwnLoss()
    model.compile(optimizer="sgd", loss="mse")
    require_supported(model)
    x = tf.ones((2, 1))
    _, loss = KerasObjective(model)(x, (x, None), training=True)
    assert float(loss) == 14.0
    with pytest.raises(UsageError, match="OwnMetrics .*compute_metrics"):
        require_supported(OwnMetrics())
