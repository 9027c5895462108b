"""The study's scripts: metrics of layers against an oracle, and correlations of known tables."""

import dataclasses
import itertools

import numpy as np
import pytest

from builders import ArrayData, small_network
from cache_builders import reusable_chain
from elastictrainer import Profile
from elastictrainer.steps.keras_compat.variables import name_of


def layers_of(script, variables):
    return script("layers").of(map(name_of, variables), [v.shape for v in variables])


def test_a_layer_is_a_kernel_and_what_stands_behind_it(tf, script):
    layers = layers_of(script, small_network(tf).trainable_variables)
    assert list(layers) == ["stem", "inner", "head"]
    assert sorted(itertools.chain(*layers.values())) == list(range(sum(map(len, layers.values()))))


@pytest.mark.parametrize("uses_cache", [False, True])
def test_a_selection_of_layers_is_the_best_of_all_that_the_budget_allows(script, uses_cache):
    random = np.random.default_rng(4)
    n, layers = 12, {"a": [0, 1], "b": [2, 3, 4], "c": [5], "d": [6, 7], "e": [8, 9], "f": [10, 11]}
    names = [f"{layer}/{k}" for layer, tensors in layers.items() for k in tensors]
    shapes = [(2, 2) if k == tensors[0] else (2,) for tensors in layers.values() for k in tensors]
    chain = Profile.from_chain(names, 5.0, random.random(n), random.random(n))
    profile = dataclasses.replace(reusable_chain(chain), shapes=tuple(shapes))
    profile = profile.with_cache if uses_cache else profile
    importance, budget = random.random(n), 0.6 * profile.full_ms
    assert script("layers").of(profile.names, profile.shapes) == layers
    mask = script("layers").select_layers(profile, importance, budget)
    best = 0.0
    for chosen in itertools.product([False, True], repeat=len(layers)):
        tried = np.repeat(chosen, [len(tensors) for tensors in layers.values()])
        if profile.step_time(tried) <= budget:
            best = max(best, importance[tried].sum())
    assert profile.step_time(mask) <= budget and importance[mask].sum() == pytest.approx(best)
    assert all(len(set(mask[tensors])) == 1 for tensors in layers.values())


def test_the_studys_schemes_select_by_their_metrics(tf, script):
    from elastictrainer.selection.importance import ImportanceEvaluator
    from elastictrainer.steps import optimizers
    from elastictrainer.steps.objective import Objective, classification_loss

    schemes = script("study_schemes")
    model = small_network(tf)
    minibatches = list(ArrayData(tf).train(0))
    for made in (schemes.Fisher(), schemes.RelativeGradient(), schemes.Size(), schemes.Random()):
        evaluator = ImportanceEvaluator(
            Objective(model, classification_loss()), optimizers.make("sgd"), made.importance_metric
        )
        scores = evaluator(minibatches)
        assert scores.shape == (len(model.trainable_variables),) and (scores >= 0).all()
    assert scores[-2:].min() > scores[:-2].sum(), "the head always trains"


def test_averaged_selects_by_the_mean_of_all_importances_so_far(tf, script):
    solver = script("study_schemes").Averaged().solver
    one_of_two = Profile.from_chain(["inner", "outer"], 1.0, [1.0, 1.0], [0.0, 0.0])
    first, second = np.array([1.0, 0.2]), np.array([50.0, 100.0])
    assert solver(one_of_two, first, 2.0).tolist() == [True, False]
    assert solver(one_of_two, second, 2.0).tolist() == [True, False], "(1 + 0.5) / 2 against (0.2 + 1) / 2"
    assert solver(one_of_two, second, 2.0).tolist() == [True, False], "a correction counts once"
    assert solver(one_of_two, np.array([0.0, 1.0]), 2.0).tolist() == [False, True]


@pytest.mark.realdata
def test_squeezenet_has_the_weights_of_its_file(tf, script, squeezenet_weights, monkeypatch):
    import h5py

    monkeypatch.setenv("SQUEEZENET_WEIGHTS", str(squeezenet_weights))
    model = script("squeezenet").classifier((224, 224, 3), 12)
    assert model.output_shape == (None, 12) and len(model.trainable_variables) == 2 * 25 + 2
    with h5py.File(squeezenet_weights) as file:
        expected = file["fire5/expand3x3/fire5/expand3x3_3/kernel:0"][()]
    np.testing.assert_array_equal(model.get_layer("fire5_expand3x3").get_weights()[0], expected)
    assert model(tf.zeros((1, 224, 224, 3))).numpy().tolist() == [[0.0] * 12], "a head of zeros"


def test_classes_are_halved_and_looks_change(script, tmp_path):
    from PIL import Image

    continual = script("continual")
    for part in ("train", "test"):
        for name in "abcd":
            (tmp_path / "all" / part / name).mkdir(parents=True)
            Image.new("RGB", (2, 2), (200,) * 3).save(tmp_path / "all" / part / name / "1.png")
    continual.link(tmp_path / "all", tmp_path)
    continual.change_looks(tmp_path)
    halves = {
        half: sorted(p.name for p in (tmp_path / half / "test").iterdir()) for half in ("first", "second")
    }
    assert halves == {"first": ["a", "b"], "second": ["c", "d"]}
    changed = sorted((tmp_path / "looks").glob("*/*/*"))
    assert len(changed) == 4 and Image.open(changed[0]).getpixel((0, 0)) == (120, 90, 72)
