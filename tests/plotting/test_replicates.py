"""Runs that differ in their seed only are one group."""

import numpy as np

from elastictrainer.plotting.replicates import replicates, spread
from run_builders import make_run


def test_runs_are_repeats_where_only_the_seed_differs(tmp_path):
    runs = []
    for k, (seed, interval, model) in enumerate([(0, 4, "a"), (1, 4, "a"), (0, 2, "a"), (0, 4, "b")]):
        runs.append(make_run(tmp_path / str(k)))
        runs[-1].write_config(
            {"scheme": "elastic", "rho": 0.5, "seed": seed, "interval": interval, "model": model}
        )
    groups = replicates(runs)
    assert list(groups) == [
        f"elastic, rho 0.5, {rest}"
        for rest in ("interval 4, model a", "interval 2, model a", "interval 4, model b")
    ]
    assert list(groups.values()) == [runs[:2], [runs[2]], [runs[3]]]
    assert list(replicates(runs[:2])) == ["elastic, rho 0.5"]


def test_spread_is_the_sample_standard_deviation():
    assert spread([2.0]) is None
    np.testing.assert_allclose(spread([1.0, 3.0]), 2**0.5)
    np.testing.assert_allclose(spread(np.array([[1.0, 0.0], [3.0, 0.0]])), [2**0.5, 0.0])


def test_runs_of_two_devices_have_no_mean_and_folders_of_one_name_are_told_apart(tmp_path):
    runs = [make_run(tmp_path / name) for name in "abc"]
    runs[1].write_environment({"device": "quipu"})
    runs[2].write_config({**runs[2].config(), "dataset": "other/birds"})
    assert list(replicates(runs)) == [
        "elastic, rho 0.5, dataset photos/birds, device abacus",
        "elastic, rho 0.5, dataset photos/birds, device quipu",
        "elastic, rho 0.5, dataset other/birds, device abacus",
    ]
