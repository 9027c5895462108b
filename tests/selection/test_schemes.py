import numpy as np
import pytest

from builders import ArrayData, invented_timings, small_network, tensor_names, train_classifier
from elastictrainer import Objective, UsageError, profile_model, select
from elastictrainer.selection import schemes
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import StepCache
from elastictrainer.steps.objective import classification_loss

EXPECTED = {
    "full": {
        "stem/kernel",
        "stem/bias",
        "stem_bn/gamma",
        "stem_bn/beta",
        "inner/kernel",
        "inner/bias",
        "inner_bn/gamma",
        "inner_bn/beta",
        "head/kernel",
        "head/bias",
    },
    "traditional-tl": {"head/kernel", "head/bias"},
    "bn-bias": {
        "stem/bias",
        "stem_bn/gamma",
        "stem_bn/beta",
        "inner/bias",
        "inner_bn/gamma",
        "inner_bn/beta",
        "head/kernel",
        "head/bias",
    },
}
EXPECTED["prunetrain"] = EXPECTED["full"]


def changed(model, before):
    return {
        name
        for name, v, old in zip(tensor_names(model), model.trainable_weights, before)
        if not np.array_equal(v.numpy(), old)
    }


@pytest.mark.parametrize("name", EXPECTED)
def test_fixed_scheme_touches_exactly_its_tensors_in_two_steps(tf, name):
    model = small_network(tf)
    before = [v.numpy() for v in model.trainable_weights]
    sgd = optimizers.make("sgd", 0.1)
    summary = train_classifier(tf, model, ArrayData(tf), sgd, scheme=name, epochs=1).elastic
    assert changed(model, before) == EXPECTED[name]
    assert summary["steps"] == 2 and summary["scheme"] == name


@pytest.mark.parametrize("name", [n for n in schemes.SCHEMES if n.startswith("elastic")])
def test_elastic_scheme_touches_exactly_its_selection_in_two_steps(tf, name):
    from elastictrainer import ImportanceEvaluator

    model = small_network(tf)
    optimizer = optimizers.make("sgd", 0.1)
    objective = Objective(model, classification_loss())
    batches = list(ArrayData(tf, steps=4).train(0))
    timings = profile_model(model, objective.loss, batches[0], optimizer, warmup=1, steps=2)
    metric = schemes.create(name).importance_metric
    importance = ImportanceEvaluator(objective, optimizer, metric)(batches)
    mask = select(timings, importance, (timings.rho_min + 1) / 2).mask
    assert mask.any() and not mask.all()
    before = [v.numpy() for v in model.trainable_weights]
    step = StepCache(objective, optimizer).get(mask)
    for batch in batches[:2]:
        step(*batch)
    assert changed(model, before) == {name for name, m in zip(tensor_names(model), mask) if m}


def test_prunetrain_adds_a_quarter_and_prunes_faded_channels(tf):
    model = small_network(tf, classes=3)
    scheme = schemes.create("prunetrain")
    penalty = scheme.penalty(model)
    assert float(penalty()) / (float(penalty()) + np.log(3)) == pytest.approx(0.25)
    kernel = model.get_layer("inner").kernel
    kernel.assign(kernel * [1.0, 1e-6, 1.0, 1.0])
    figures = scheme.at_interval(model, None)
    assert figures == {"pruned_channels": 1, "channels": 8}
    assert np.all(kernel.numpy()[..., 1] == 0) and np.all(kernel.numpy()[..., 0] != 0)


def test_nested_models_are_opened(tf):
    inner = small_network(tf)
    inputs = tf.keras.Input((8, 8, 3))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(2, name="top")(inner(inputs)))
    mask = schemes.create("traditional-tl").mask(model)
    assert [name for name, m in zip(tensor_names(model), mask) if m] == ["top/kernel", "top/bias"]
    assert schemes.create("bn-bias").mask(model).sum() == 6 + 1 + 2


def test_unknown_scheme_names_the_nearest(tf):
    with pytest.raises(UsageError, match="Did you mean 'elastic'"):
        schemes.create("elastc")


def test_a_scheme_of_ones_own_is_found_by_its_place(tf):
    model = small_network(tf)
    before = [v.numpy() for v in model.trainable_weights]
    sgd = optimizers.make("sgd", 0.1)
    train_classifier(tf, model, ArrayData(tf), sgd, scheme="userschemes:OddTensors", epochs=1)
    odd = set(tensor_names(model)[1::2])
    assert changed(model, before) <= odd and changed(model, before)


def test_a_metric_of_ones_own_scores_the_tensors(tf):
    import userschemes

    model = small_network(tf)
    data = ArrayData(tf, steps=16)
    scheme = schemes.create("by-largest-gradient")
    assert isinstance(scheme, userschemes.ByLargestGradient)
    options = {"scheme": scheme, "timings": invented_timings(model), "rho": 0.9}
    history = train_classifier(tf, model, data, optimizers.make("sgd", 0.05), epochs=1, **options)
    assert history.elastic["selections"] == 1


def test_an_installed_packages_scheme_is_found(monkeypatch):
    import userschemes

    class Point:
        name = "odd"

        def load(self):
            return userschemes.OddTensors

    monkeypatch.setattr(schemes, "_entry_points", lambda: [Point()])
    assert isinstance(schemes.create("odd"), userschemes.OddTensors)
    with pytest.raises(UsageError, match="Valid: .*odd"):
        schemes.create("ood")


@pytest.mark.parametrize(
    "name, message",
    [
        ("nowhere:X", "cannot import nowhere"),
        ("userschemes:X", "has no 'X'"),
        ("userschemes:NoScheme", "gave a NoScheme"),
    ],
)
def test_what_is_no_scheme_is_said(tf, name, message):
    with pytest.raises(UsageError, match=message):
        schemes.create(name)
