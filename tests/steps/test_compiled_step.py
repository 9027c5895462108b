import gc
import weakref

import numpy as np
import pytest

from builders import ArrayData, address, small_network
from elastictrainer import Objective
from elastictrainer.runs import resident
from elastictrainer.steps import optimizers
from elastictrainer.steps.compiled_step import CompiledStep, CompiledSteps
from elastictrainer.steps.keras_compat.variables import tf_variables
from elastictrainer.steps.keras_compat.version import KERAS_3
from elastictrainer.steps.objective import classification_loss


def make_cache(tf, size):
    model = small_network(tf)
    optimizer = optimizers.make("sgd", 0.1)
    optimizers.build(optimizer, model.trainable_weights)
    return CompiledSteps(Objective(model, classification_loss()), optimizer, size=size)


@pytest.fixture(params=["all objects", "new objects"])
def collected(request):
    """Count the objects in Python's search for unreachable ones."""
    gc.unfreeze()
    if request.param == "new objects":
        resident.exempt_from_collection()
    yield
    gc.unfreeze()


def test_compiled_steps_are_kept_within_the_bound_and_old_graphs_are_freed(tf, collected):
    cache = make_cache(tf, size=2)
    batch = next(ArrayData(tf).train(0))
    masks = np.eye(10, dtype=bool)[:4]
    graphs = []
    for mask in masks:
        step = cache.get(mask)
        step.trace(*batch)
        step(*batch)
        graphs.append(weakref.ref(step.graph))
        assert cache.get(mask) is step
        del step
    gc.collect()
    assert len(cache) == 2 and [cache.has(m) for m in masks] == [False, False, True, True]
    assert [graph() is None for graph in graphs] == [True, True, False, False]


def test_the_memory_of_steps_that_go_is_given_back(tf, monkeypatch):
    given_back = []
    monkeypatch.setattr(resident, "release_memory", lambda: given_back.append(True))
    cache = make_cache(tf, size=1)
    cache.get(np.eye(10, dtype=bool)[0])
    assert not given_back
    cache.get(np.eye(10, dtype=bool)[1])
    assert len(given_back) == 1
    cache.clear()
    assert len(given_back) == 2


def test_the_least_recently_used_step_goes_first(tf):
    cache = make_cache(tf, size=2)
    masks = np.eye(10, dtype=bool)[:3]
    cache.get(masks[0]), cache.get(masks[1]), cache.get(masks[0]), cache.get(masks[2])
    assert [cache.has(m) for m in masks] == [True, False, True]


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_step_that_undoes_itself_computes_the_same_and_keeps_no_second_value(tf, name):
    model, optimizer = small_network(tf, dropout=0), optimizers.make(name, 0.1)
    variables = model.trainable_weights
    optimizers.build(optimizer, variables)
    batch = next(ArrayData(tf).train(0))
    objective = Objective(model, classification_loss())
    state = tf_variables([*variables, *optimizers.variables_of(optimizer)])
    undone = CompiledStep(objective, optimizer, variables, undone=state)
    before, places = [v.numpy() for v in state], [address(v) for v in state]
    losses = [float(undone(*batch)) for _ in range(3)]
    for variable, value in zip(state, before):
        np.testing.assert_array_equal(variable.numpy(), value)
    assert [address(v) for v in state] == places
    assert losses == 3 * [float(CompiledStep(objective, optimizer, variables)(*batch))]
    assert float(undone(*batch)) != losses[0], "the other step has trained"


def test_a_users_optimizer_is_called_as_keras_does_in_a_step_cut_out_or_traced(tf):
    """Its method takes no more than Keras gives it, and changes the gradients of the selected tensors."""

    class Halved(tf.keras.optimizers.SGD):
        def compute_gradients(self, loss, var_list, tape=None):  # of Keras 2
            return [(g / 2, v) for g, v in super().compute_gradients(loss, var_list, tape)]

        def apply_gradients(self, grads_and_vars, name=None):
            divisor = 2 if KERAS_3 else 1
            return super().apply_gradients([(g / divisor, v) for g, v in grads_and_vars])

    def trained(optimizer, scale, whole):
        tf.keras.utils.set_random_seed(0)
        model = small_network(tf, dropout=0)
        variables = model.trainable_weights
        optimizers.build(optimizer, variables)
        steps = CompiledSteps(Objective(model, classification_loss()), optimizer)
        batch = next(ArrayData(tf).train(0))
        mask = np.arange(len(variables)) % 3 == 0
        if whole:
            steps.get(np.ones_like(mask)).trace(*batch)
        step = steps.get(mask)
        step.trace(*batch)
        assert (not step.gradients) == whole  # a step that is cut out has none
        before = [v.numpy() for v in variables]
        step(*batch)
        return [(v.numpy() - w) * scale for v, w in zip(variables, before)]

    expected = trained(tf.keras.optimizers.SGD(0.1), 1, False)
    for whole in (False, True):
        for update, other in zip(trained(Halved(0.1), 2, whole), expected):
            np.testing.assert_allclose(update, other, rtol=1e-3, atol=1e-6)
