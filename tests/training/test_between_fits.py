"""Calls of `fit` one after the other: what the next one need not make again."""

import gc
import itertools
import json

import numpy as np
import pytest

from builders import bright_images, compiled_trainer, invented_profile
from elastictrainer import Elastic
from log_lines import listen
from networks import residual


def trainer_of(tf, model=None, **options):
    tf.keras.utils.set_random_seed(1)
    model = model or residual(tf)
    options = {"rho": 0.8, "profile": invented_profile(model), "importance_batches": 1, **options}
    return compiled_trainer(tf, model, tf.keras.optimizers.SGD(0.01, momentum=0.9), **options)


def fit(trainer, seed=0, **options):
    """One epoch of four minibatches; returns its figures and selections."""
    history = trainer.fit(*bright_images(32, seed), batch_size=8, **{"epochs": 1, "verbose": 0, **options})
    return history.elastic, history.selections


def tracing(results):
    return results["trace_seconds"] + results["seconds"].get("building", 0.0)


def test_a_long_call_after_a_short_one_goes_on_by_the_same_graphs(tf):
    trainer = trainer_of(tf, scheme="full")
    first, second = fit(trainer)[0], fit(trainer, 1, epochs=3)[0]
    assert second["steps"] == 12 and tracing(second) < tracing(first) / 3


def test_a_second_call_trains_on_by_the_same_graphs_and_selection(tf):
    trainer = trainer_of(tf)
    first, selected = fit(trainer)
    assert len(selected) == 1 and first["cached_share"] == 0, "one epoch would cache for nothing"
    for seed in (1, 2, 3, 4):
        results, selections = fit(trainer, seed)
        assert results["steps"] == 4 and results["trace_seconds"] == results["importance_seconds"] == 0
        assert not selections and tracing(results) < tracing(first) / 3
    # After as many steps as an interval has, tensors are scored again.
    assert len(fit(trainer, 5)[1]) == 1


def test_a_head_that_was_solved_is_not_solved_again(tf):
    said = listen()
    trainer = trainer_of(tf, head="solve")
    fit(trainer)
    assert sum(line.startswith("head solved") for line in said) == 1
    fit(trainer, 1)
    again = trainer_of(tf, trainer.model, head="solve")  # as in a new process
    again.restore(trainer.state())
    fit(again, 2)
    trainer.compile(tf.keras.optimizers.SGD(0.01), tf.keras.losses.SparseCategoricalCrossentropy(True))
    fit(trainer, 3)
    assert sum(line.startswith("head solved") for line in said) == 1


def test_only_what_was_selected_trains_in_the_calls_that_follow(tf):
    trainer = trainer_of(tf)
    (record,) = fit(trainer)[1]
    before = [v.numpy() for v in trainer.model.trainable_variables]
    fit(trainer, 1)
    changed = {
        k for k, v in enumerate(trainer.model.trainable_variables) if not np.array_equal(v.numpy(), before[k])
    }
    assert changed == set(record["selected"]) and len(changed) < len(before)


@pytest.mark.parametrize("change", ["frozen", "loss", "batch shape", "weights"])
def test_what_has_changed_is_noticed_and_told(tf, change):
    said = listen()
    trainer = trainer_of(tf)
    model = trainer.model
    fit(trainer)
    data = bright_images(32, 1)
    if change == "frozen":
        model.layers[1].trainable = False
        trainer.profile = invented_profile(model)
    elif change == "loss":
        model.compile(model.optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    elif change == "batch shape":
        data = data[0].astype(np.float64), data[1]
    else:
        model.set_weights([value + 0.01 for value in model.get_weights()])
    assert not [line for line in said if "again" in line]
    history = trainer.fit(*data, batch_size=8, epochs=1, verbose=0)
    expected = "weights were changed" if change == "weights" else "compiling again"
    if change != "batch shape":  # Keras may cast it
        assert len([line for line in said if expected in line]) == 1
        assert len(history.selections) == 1, "scored again"
    assert np.isfinite(history.history["loss"][0])


def test_a_selection_outlives_the_process(tf, tmp_path):
    trainer = trainer_of(tf)
    (record,) = fit(trainer)[1]
    saved = json.loads(json.dumps(trainer.state()))
    weights = trainer.model.get_weights()
    other = trainer_of(tf, profile=None)
    other.restore(saved)
    assert len(other.profile) == len(trainer.profile)
    fit_other = other.fit(*bright_images(32, 1), batch_size=8, epochs=1, verbose=0)
    assert len(fit_other.selections) == 1, "other weights: scored again"
    third = trainer_of(tf, profile=None)
    third.model.set_weights(weights)
    third.restore(saved)
    history = third.fit(*bright_images(32, 1), batch_size=8, epochs=1, verbose=0)
    assert not history.selections and history.history["selected"] == [len(record["selected"])]


@pytest.mark.parametrize("epochs", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_calls_that_select_anew_leave_no_graph_and_no_function_of_earlier_ones(tf, epochs):
    from tensorflow.python.eager import context

    turn = itertools.count()

    def another(profile, importance, budget_ms):
        # Which tensors are chosen depends neither on the machine's speed nor on the weights.
        return np.arange(len(profile)) == next(turn) % len(profile)

    trainer, selected, kept = trainer_of(tf, scheme=Elastic("update", another)), set(), []
    random = np.random.default_rng(0)
    for seed in range(8):
        # Weights that were changed from outside are scored again.
        trainer.model.set_weights([random.normal(0, 0.3, w.shape) ** 2 for w in trainer.model.get_weights()])
        selections = fit(trainer, seed, epochs=epochs)[1]
        selected |= {tuple(record["selected"]) for record in selections}
        gc.collect()
        graphs = sum(isinstance(value, tf.Graph) for value in gc.get_objects())
        kept.append((graphs, len(context.context().list_function_names())))
    assert len(selected) > 3, "of the full step, this selection and the one before graphs are kept"
    graphs, functions = np.array(kept).T
    assert graphs[4:].max() <= graphs[:4].max() and functions[4:].max() <= functions[:4].max()


def test_going_back_to_an_earlier_state_uses_the_graphs_that_are_there(tf):
    trainer = trainer_of(tf)
    fit(trainer)
    trainer.keep_steps(9)
    weights, saved = trainer.model.get_weights(), trainer.state()
    fit(trainer, 1)
    trainer.model.set_weights(weights)
    trainer.restore(saved)
    results, selections = fit(trainer, 1)
    assert not selections and results["trace_seconds"] == 0
