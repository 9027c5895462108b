"""The study's scripts: metrics of layers against an oracle, and correlations of known tables."""

import csv
import dataclasses
import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from builders import ArrayData, small_network
from cache_builders import reusable_chain
from elastictrainer import Profile
from elastictrainer.steps.keras_compat.variables import name_of

FOLDER = Path(__file__).resolve().parents[2] / "studies"


def written(path, columns):
    rows = [dict(zip(columns, values)) for values in zip(*columns.values())]
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_correlations_are_of_ranks_and_means_over_the_points(script, tmp_path):
    correlation = script("correlation")
    gains = [0.1, 0.2, 0.4, 0.8, 1.6, 0.3, 0.2, 0.1, 0.0, -0.1]
    table = {
        "data": ["birds"] * 10,
        "model": ["squeezenet:classifier"] * 10,
        "epoch": [0] * 5 + [3] * 5,
        "layer": list("abcde") * 2,
        "gain_0": gains,
        "gain_1": gains,
        "same": np.exp(gains),
        "opposite": [-g for g in gains],
        "turning": [1, 2, 3, 4, 5] * 2,
    }
    networks = correlation.read([written(tmp_path / "t.csv", table)])
    points = networks["squeezenet, birds"]
    found = [correlation.correlation(points, name) for name in ("same", "opposite", "turning", "repeated")]
    assert found == pytest.approx([1, -1, 0, 1])
    assert correlation.interval(points, "same") == pytest.approx([1, 1])


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


def test_what_a_selection_brings_is_what_its_layers_brought(script, tmp_path, monkeypatch, capsys):
    """Five layers of one cost; the time is enough for the head and two, or for the two nearest it."""
    names = [f"{layer}/kernel" for layer in ["a", "b", "c", "d", "head"]]
    chain = Profile.from_chain(names, 1.0, [10.0] * 5, [1e-6] * 5)
    dataclasses.replace(reusable_chain(chain), shapes=((2, 2),) * 5).save(tmp_path / "profile.json")
    right, wrong = [1.0, 2.0, 0.5, 4.0], [4.0, 3.0, 2.0, 1.0]  # of d, c, b, a
    table = {"data": ["birds"] * 4, "model": ["net"] * 4, "epoch": [3] * 4, "layer": list("dcba")}
    table.update(gain_0=right, gain_1=right, right=right, wrong=wrong)
    paths = ["--truth", written(tmp_path / "t.csv", table), "--profile", tmp_path / "profile.json"]
    monkeypatch.setattr(sys, "argv", ["captured.py", *map(str, paths), "--rho", "0.62"])
    script("captured").main()
    found = {line.split()[2]: line.split()[3] for line in capsys.readouterr().out.splitlines()[1:]}
    assert found == {"known": "100", "right": "100", "wrong": "50", "freeze-below": "50"}


def test_metrics_of_a_layer_are_those_of_its_gradients(tf, script):
    from elastictrainer.selection.importance import ImportanceEvaluator
    from elastictrainer.steps import optimizers
    from elastictrainer.steps.compiled_step import CompiledSteps
    from elastictrainer.steps.objective import Objective, classification_loss

    metrics = script("metrics")
    model = small_network(tf, dropout=0.0)
    variables, optimizer = model.trainable_variables, optimizers.make("sgd")
    optimizers.build(optimizer, variables)
    objective, layers = Objective(model, classification_loss()), layers_of(script, variables)
    full = CompiledSteps(objective, optimizer).get(np.ones(len(variables), bool))
    study = SimpleNamespace(
        layers=layers, head="head", objective=objective, optimizer=optimizer, full=full, variables=variables
    )
    minibatches = list(ArrayData(tf, steps=8).train(0))
    inner = [variables[k] for k in layers["inner"]]
    drawn = [objective.gradients(x, y, inner)[2] for x, y in minibatches]
    gradients = np.array([np.concatenate([np.ravel(g) for g in gs]) for gs in drawn])  # (minibatch, number)
    weights = np.concatenate([np.ravel(v) for v in inner])
    mean = gradients.mean(axis=0)
    update = ImportanceEvaluator(objective, optimizer)(minibatches)[layers["inner"]].sum()

    found = metrics.by_layer(study, minibatches)
    assert all(set(scores) == {"stem", "inner"} for scores in found.values())
    expected = {
        "update_48": update,  # of as many as there are
        "gradient": abs(gradients).sum(axis=1).mean(),
        "weight": abs(weights).sum(),
        "fisher": (gradients**2).sum(axis=1).mean(),
        "rgn": np.sqrt((mean**2).sum() / (weights**2).sum()),
        "snr": (mean**2).sum() / gradients.var(axis=0).sum(),
        "size": weights.size,
        "depth": 1,
    }
    assert {name: found[name]["inner"] for name in expected} == pytest.approx(expected, rel=1e-3)


def test_rules_are_compared_with_the_reference_seed_by_seed(script, tmp_path):
    rules = script("rules")
    runs = [("elastic-rho-0.5", 80), ("elastic-rho-0.5", 82), ("elastic-rho-0.5", 90), ("Size-0.25", 70)]
    runs += [("freeze-below-rho-0.5", 79), ("freeze-below-rho-0.5", 80), ("full-12", 85)]
    columns = {"run": [run for run, _ in runs], "seed": "0120010", "accuracy": [value for _, value in runs]}
    found = rules.read(written(tmp_path / "rules.csv", columns))
    assert list(found) == ["0.5", "0.25"] and found["0.25"] == {"Size": {"0": 70.0}}
    half = found["0.5"]
    assert rules.by_mean(half) == ["elastic", "freeze-below"]
    lead, error = rules.ahead(half["elastic"], half["freeze-below"])  # the reference has no third seed
    assert lead == pytest.approx(1.5) and error == pytest.approx(0.5)
    rules.draw({"one": found, "other": {"0.25": found["0.25"]}}, tmp_path / "rules.png")
    assert (tmp_path / "rules.png").stat().st_size > 1000


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


FUNCTION = """
def area(width, height):
    '''Of a rectangle.'''
    size = width * height
    return size
"""


def test_a_function_is_its_words_or_its_syntax_tree(script):
    functions = script("python_functions")
    (function,) = functions.ast.parse(FUNCTION).body
    tokens = functions.as_tokens(function)["tokens"]
    assert tokens.shape == (functions.LENGTH,) and (tokens < functions.WORDS).all()
    assert len(set(tokens[tokens > 0])) < (tokens > 0).sum(), "size and width stand there twice"
    graph = functions.as_graph(function)
    used = (graph["kinds"] > 0).sum()
    assert used == sum(1 for _ in functions.ast.walk(function))
    edges = graph["edges"]
    np.testing.assert_array_equal(edges, edges.T)
    assert not edges[used:].any() and np.linalg.eigvalsh(edges)[-1] == pytest.approx(1), "normalised"
    # A tree: an edge less than nodes, beside those of each node to itself.
    assert np.count_nonzero(edges) == used + 2 * (used - 1)


def test_functions_are_tested_on_other_files(script):
    functions = script("python_functions")
    packages = ("json", "xml", "email")
    (x, y), (test_x, test_y) = functions.load(
        packages, 30, lambda f: {"name": np.array([f.name, f.body[0].lineno])}
    )
    assert set(y) == set(test_y) == {0, 1, 2}
    assert np.bincount(y).max() <= 20 and np.bincount(test_y).max() <= 10
    in_both = set(map(tuple, x["name"])) & set(map(tuple, test_x["name"]))
    assert len(in_both) <= 1, in_both


@pytest.mark.long
@pytest.mark.parametrize("name", ["gru", "graph"])
def test_networks_that_are_no_chains_are_fine_tuned(tf, script, tmp_path, monkeypatch, name):
    no_chains = script("no_chains")
    monkeypatch.setattr(no_chains, "BEFORE", ("json", "xml", "email"))
    monkeypatch.setattr(no_chains, "AFTER", ("logging", "http", "unittest"))
    path = tmp_path / "rows.csv"
    arguments = f"{name} --epochs 4 --pretrain 1 --most 60 --seeds 0 --csv {path}".split()
    monkeypatch.setattr(sys, "argv", ["no_chains.py", *arguments])
    no_chains.main()
    rows = list(csv.DictReader(path.open()))
    assert [row["run"] for row in rows] == [
        "full",
        "full, half the epochs",
        "elastic",
        "freeze-below",
        "traditional-tl",
    ]
    assert all(0 <= float(row["accuracy"]) <= 100 for row in rows)
    assert float(rows[2]["achieved"]) > 0  # so short a run is mostly graphs to build


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
