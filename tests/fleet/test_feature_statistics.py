"""Statistics of features add up over clients, and give a head as good as the features themselves do."""

import numpy as np
import pytest

from elastictrainer.fleet.feature_statistics import FeatureStatistics
from elastictrainer.models.solved_head import solve

CLASSES, WIDTH = 4, 12


def features(seed=0, count=400):
    random = np.random.default_rng(seed)
    labels = random.integers(CLASSES, size=count)
    means = np.random.default_rng(9).normal(size=(CLASSES, WIDTH))
    return (means[labels] + random.normal(size=(count, WIDTH))).astype(np.float32), labels


def test_the_statistics_of_parts_add_up_to_those_of_the_whole():
    x, y = features()
    whole = FeatureStatistics.of(x, y, CLASSES)
    by_class = [FeatureStatistics.of(x[y == label], y[y == label], CLASSES) for label in range(CLASSES)]
    total = by_class[0] + by_class[1] + by_class[2] + by_class[3]
    for name in ("counts", "sums", "moment"):
        np.testing.assert_allclose(getattr(total, name), getattr(whole, name), rtol=1e-9)


def test_drawn_examples_have_the_same_statistics():
    x, y = features(count=4000)
    drawn, labels = FeatureStatistics.of(x, y, CLASSES).examples(seed=1)
    np.testing.assert_array_equal(np.bincount(labels), np.bincount(y))
    for label in range(CLASSES):
        np.testing.assert_allclose(drawn[labels == label].mean(axis=0), x[y == label].mean(axis=0), atol=0.15)
    np.testing.assert_allclose(np.cov(drawn.T), np.cov(x.T), atol=0.25)


def test_a_head_solved_on_drawn_examples_is_as_good_as_one_on_the_images():
    (x, y), (test_x, test_y) = features(), features(seed=5)

    def accuracy(x, y):
        kernel, bias, _ = solve(x, np.eye(CLASSES, dtype=np.float32)[y])
        return ((test_x @ kernel + bias).argmax(axis=1) == test_y).mean()

    assert accuracy(*FeatureStatistics.of(x, y, CLASSES).examples(seed=1)) > accuracy(x, y) - 0.03


def test_sound_statistics_survive_the_journey():
    sent = FeatureStatistics.of(*features(), CLASSES).arrays()
    assert FeatureStatistics.from_arrays(sent).problem(CLASSES, WIDTH) is None
    assert all(values.dtype == np.float32 for values in sent.values())


@pytest.mark.parametrize(
    "name, spoil, said",
    [
        ("sums", lambda v: v * np.nan, "not finite"),
        ("sums", lambda v: np.full_like(v, 1e30), "do not go with their squares"),
        ("sums", lambda v: v[:, :3], "of the shapes"),
        ("counts", lambda v: -v, "no numbers of images"),
        ("counts", lambda v: v + 0.5, "no numbers of images"),
        ("counts", lambda v: v * 0, "no numbers of images"),
    ],
)
def test_broken_statistics_have_a_problem(name, spoil, said):
    sent = FeatureStatistics.of(*features(), CLASSES).arrays()
    sent[name] = spoil(sent[name])
    assert said in FeatureStatistics.from_arrays(sent).problem(CLASSES, WIDTH)
