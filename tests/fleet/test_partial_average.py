"""The average over clients that trained different tensors, and the updates that it must not contain."""

import numpy as np
import pytest

from elastictrainer.fleet.partial_average import Update, average, refusal

WEIGHTS = [np.zeros((2, 3), np.float32), np.ones(4, np.float32), np.full((1,), 7, np.float32)]


def update(client="client 1", examples=10, **tensors):
    return Update(client, examples, {int(name[1:]): values for name, values in tensors.items()})


def test_a_tensor_is_averaged_over_those_that_trained_it_by_their_examples():
    one = update(examples=10, t0=np.full((2, 3), 1, np.float32), t1=np.full(4, 2, np.float32))
    other = update("client 2", examples=30, t0=np.full((2, 3), 5, np.float32))
    new = average([one, other], WEIGHTS)
    np.testing.assert_allclose(new[0], np.full((2, 3), 4.0))
    np.testing.assert_allclose(new[1], np.full(4, 2.0))
    np.testing.assert_array_equal(new[2], WEIGHTS[2])
    assert all(values.dtype == np.float32 for values in new)


def test_where_all_train_everything_it_is_fedavg():
    random = np.random.default_rng(0)
    updates = [
        Update(
            f"client {k}", k + 1, {i: random.normal(size=w.shape).astype("f4") for i, w in enumerate(WEIGHTS)}
        )
        for k in range(3)
    ]
    for index, new in enumerate(average(updates, WEIGHTS)):
        expected = np.average([u.tensors[index] for u in updates], axis=0, weights=[1, 2, 3])
        np.testing.assert_allclose(new, expected, rtol=1e-6)


def test_without_an_update_nothing_changes():
    for new, before in zip(average([], WEIGHTS), WEIGHTS):
        np.testing.assert_array_equal(new, before)


def test_a_sound_update_is_not_refused():
    assert refusal(update(t0=np.full((2, 3), 0.1, np.float32), t2=np.full(1, 9, np.float32)), WEIGHTS) is None


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
def test_a_broken_update_is_refused_with_the_name_of_its_client(tensors, said):
    line = refusal(update("client 5", **tensors), WEIGHTS)
    assert line.startswith("client 5: refused: ") and said in line


@pytest.mark.parametrize("examples", [0, -3, 11])
def test_a_client_cannot_claim_more_examples_than_it_has(examples):
    line = refusal(update(examples=examples, t2=np.zeros(1, np.float32)), WEIGHTS, most_examples=10)
    assert f" {examples} examples" in line
