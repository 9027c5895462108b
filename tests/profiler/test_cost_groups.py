"""Cost groups, against sets of Python's. No TensorFlow."""

import json

import numpy as np
import pytest

from elastictrainer import UsageError
from elastictrainer.profiler.cost_groups import CostGroups

SETS = [(), (0,), (1, 2), (0, 1, 2, 9)]
AMOUNT = [1.0, 2.0, 4.0, 8.0]


@pytest.fixture
def groups():
    return CostGroups.from_sets(10, SETS, AMOUNT)


def test_sets_and_amounts_are_read_back(groups):
    assert list(groups.sets()) == [(list(members), ms) for members, ms in zip(SETS, AMOUNT)]
    assert len(groups) == 4 and groups.has_members().tolist() == [False, True, True, True]


def test_a_group_is_touched_by_a_selected_member(groups):
    for mask in np.random.default_rng(0).random((50, 10)) < 0.2:
        selected = set(np.flatnonzero(mask))
        assert groups.active_groups(mask).tolist() == [bool(selected & set(members)) for members in SETS]


def test_the_members_of_each_group_in_a_mask(groups):
    mask = np.zeros(10, bool)
    mask[[0, 2, 9]] = True
    assert groups.members_in(mask).tolist() == [len({0, 2, 9} & set(members)) for members in SETS]


def test_time_and_number_of_groups_per_tensor(groups):
    assert groups.amount_per_tensor().tolist() == [10, 12, 12, 0, 0, 0, 0, 0, 0, 8]
    first = groups.rows(np.array([True, True, True, False]))
    assert first.amount_per_tensor().tolist() == [2, 4, 4, *[0] * 7]
    assert groups.groups_per_tensor().tolist() == [2, 2, 2, 0, 0, 0, 0, 0, 0, 1]


def test_each_group_is_paid_at_its_first_member_in_the_given_order(groups):
    assert groups.amount_at_first_member(np.arange(10)).tolist() == [10, 4, *[0] * 8]
    assert groups.amount_at_first_member(np.arange(10)[::-1]).tolist() == [2, 0, 4, 0, 0, 0, 0, 0, 0, 8]


def test_singletons_and_prefixes():
    assert list(CostGroups.singletons([1.0, 2.0]).sets()) == [([0], 1.0), ([1], 2.0)]
    assert list(CostGroups.prefixes([1.0, 2.0, 3.0]).sets()) == [([0], 1.0), ([0, 1], 2.0), ([0, 1, 2], 3.0)]


def test_more_groups_than_are_unpacked_at_once():
    n = 1500
    chain = CostGroups.prefixes(np.ones(n))
    np.testing.assert_array_equal(chain.amount_per_tensor(), np.arange(n, 0, -1))
    assert [members[-1] for members, _ in chain.sets()] == list(range(n))


def test_rows_joined_and_scaled_groups(groups):
    two = groups.rows(np.array([False, True, False, True]))
    assert list(two.sets()) == [([0], 2.0), ([0, 1, 2, 9], 8.0)]
    assert list(groups.joined(two).sets()) == [*groups.sets(), *two.sets()]
    assert groups.scaled(0.5).amount.tolist() == [0.5, 1.0, 2.0, 4.0]


def test_json_has_runs_of_members(groups):
    rows = json.loads(json.dumps(groups.to_json("flops")))
    assert rows[3] == {"members": [[0, 2], [9, 9]], "flops": 8.0} and rows[0]["members"] == []
    assert list(CostGroups.from_json(10, rows, "flops").sets()) == list(groups.sets())


@pytest.mark.parametrize("run", [[0, 10], [-1, 2], [3, 2]])
def test_a_member_out_of_range_is_refused(run):
    with pytest.raises(UsageError, match="there are 10"):
        CostGroups.from_json(10, [{"members": [run], "ms": 1.0}])


def test_a_file_that_would_fill_the_memory_is_refused():
    with pytest.raises(UsageError, match="too many"):
        CostGroups.from_json(10**6, [{"members": [], "ms": 0.0}] * 1001)
