"""What clients send: statistics that add up, an average of what each trained, and all that is refused."""

import numpy as np
import pytest

from elastictrainer.fleet.answers import Description, FeatureStatistics, Limits, Refused, Trained, average
from elastictrainer.models.solved_head import solve

CLASSES, WIDTH = 4, 12
LIMITS = Limits(CLASSES, WIDTH, images=1000, mean_square=float(2 * WIDTH), seconds=60.0)
WEIGHTS = [np.zeros((2, 3), np.float32), np.ones(4, np.float32), np.full((1,), 7, np.float32)]


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


def test_millions_of_images_are_drawn_from_in_the_memory_of_a_server():
    one = FeatureStatistics.of(*features(), CLASSES)
    million = FeatureStatistics(2500 * one.counts, 2500 * one.sums, 2500 * one.moment)
    drawn, labels = million.examples(seed=1)
    assert 20_000 <= len(drawn) < 20_010
    np.testing.assert_allclose(np.bincount(labels) / len(labels), one.counts / one.images, atol=1e-3)


def test_sound_statistics_survive_the_journey():
    sent = FeatureStatistics.of(*features(), CLASSES).arrays()
    assert FeatureStatistics.from_arrays(sent, LIMITS).images == 400
    assert all(values.dtype == np.float32 for values in sent.values())


def opposite_sums(sums):
    """Sums of two classes that cancel each other, so that their total says nothing."""
    return sums + np.array([1e6, -1e6, 0, 0])[:, None].astype(np.float32)


@pytest.mark.parametrize(
    "spoil, said",
    [
        ({"sums": lambda v: v * np.nan}, "not finite"),
        ({"moment": lambda v: v + np.inf}, "not finite"),
        ({"sums": lambda v: np.full_like(v, 1e30)}, "do not go with their squares"),
        ({"sums": opposite_sums}, "do not go with their squares"),
        ({"counts": lambda v: v * [0, 1, 1, 1]}, "do not go with their squares"),
        ({"moment": lambda v: v + 1e20 * (v != np.diag(v))}, "do not go with their squares"),
        ({"sums": lambda v: v[:, :3]}, "of the shape"),
        ({"moment": lambda v: v[..., None]}, "of the shape"),
        ({"counts": lambda v: -v}, "no numbers of images"),
        ({"counts": lambda v: v + 0.5}, "no numbers of images"),
        ({"counts": lambda v: v * 0}, "no numbers of images"),
        ({"counts": lambda v: v + 2.5e8}, r"10000004\d\d images; most-images is 1000"),
        ({"counts": lambda v: v + 601 * (v == v.max())}, "1001 images; most-images is 1000"),
        ({"sums": lambda v: 1e3 * v, "moment": lambda v: 1e6 * v}, "times those of the server's own"),
    ],
)
def test_statistics_that_no_images_can_have_are_refused(spoil, said):
    sent = FeatureStatistics.of(*features(), CLASSES).arrays()
    for name, change in spoil.items():
        sent[name] = np.asarray(change(sent[name]))
    with pytest.raises(Refused, match=said):
        FeatureStatistics.from_arrays(sent, LIMITS)


@pytest.mark.parametrize(
    "full_s, pass_s",
    [(np.nan, 1), (np.inf, 1), (1e300, 1), (5, np.nan), (5, -1), (5, 6), (1e9, 1e8), (-1, -1), (0, 0)],
)
def test_times_that_no_client_can_have_are_refused(full_s, pass_s):
    sent = FeatureStatistics.of(*features(), CLASSES).arrays()
    with pytest.raises(Refused, match="passes over its images"):
        Description.from_arrays(sent, {"full-seconds": full_s, "pass-seconds": pass_s}, LIMITS)


def test_a_tensor_is_averaged_over_those_that_trained_it_by_their_examples():
    one = Trained({0: np.full((2, 3), 1, np.float32), 1: np.full(4, 2, np.float32)}, 10, 1.0)
    other = Trained({0: np.full((2, 3), 5, np.float32)}, 30, 1.0)
    new = average([one, other], WEIGHTS)
    for values, expected in zip(new, (4.0, 2.0, 7.0)):
        np.testing.assert_allclose(values, np.full_like(values, expected))
        assert values.dtype == np.float32


def check(examples=10, seconds=1.0, **tensors):
    """Check what a client with 40 images, which takes 5 s to train on them, says of a round of 2 s."""
    client = Description(FeatureStatistics.of(*features(count=40), CLASSES), 5.0, 1.0)
    Trained({int(name[1:]): values for name, values in tensors.items()}, examples, seconds).check(
        client, WEIGHTS, 2.0
    )


@pytest.mark.parametrize(
    "tensors, said",
    [
        ({"t1": np.array([1, np.nan, 1, 1], np.float32)}, "tensor 1 has values that are not finite"),
        ({"t1": np.array([1, np.inf, 1, 1], np.float32)}, "tensor 1 has values that are not finite"),
        ({"t1": np.array([1, 1e30, 1, 1], np.float32)}, "tensor 1 has a value of 1e+30"),
        ({"t0": np.zeros((3, 2), np.float32)}, "tensor 0 has the shape (3, 2), not (2, 3)"),
        ({"t0": np.zeros((2, 3), np.float64)}, "tensor 0 is float64, not float32"),
        ({"t0": np.array([["a"] * 3] * 2)}, "tensor 0 is <U1, not float32"),
        ({"t3": np.zeros(1, np.float32)}, "tensor 3, and the model has 3"),
    ],
)
def test_a_broken_update_is_refused(tensors, said):
    with pytest.raises(Refused) as refused:
        check(**tensors)
    assert said in str(refused.value)


def test_a_sound_update_is_not_refused():
    check(40, 2.0, t0=np.full((2, 3), 0.1, np.float32), t2=np.full(1, 9, np.float32))
    check(0, 0.0)  # sat the round out


@pytest.mark.parametrize("examples", [0, -3, 41, 10**9])
def test_a_client_cannot_claim_more_examples_than_it_has(examples):
    with pytest.raises(Refused, match=f" {examples} examples, and has 40"):
        check(examples, t2=np.zeros(1, np.float32))


@pytest.mark.parametrize("seconds", [-1.0, 51.0, 1e300, np.inf, np.nan])
def test_a_client_cannot_claim_any_time(seconds):
    with pytest.raises(Refused, match="at most 50 s"):
        check(0, seconds)
