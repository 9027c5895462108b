"""Schemes by name: the built-in ones, a user's own, and those of installed packages."""

import numpy as np
import pytest

from builders import changed_tensors, invented_timings, small_network, tensor_names, weights_of
from elastictrainer import UsageError
from elastictrainer.selection import schemes
from policy_run import PolicyRun

ELASTIC = [name for name in schemes.SCHEMES if name.startswith("elastic")]


@pytest.mark.parametrize("name", ELASTIC)
def test_an_elastic_scheme_trains_exactly_its_selection(tf, name):
    timings = invented_timings(small_network(tf))
    run = PolicyRun(tf, schemes.create(name), timings, epochs=1, steps_per_epoch=6, rho=0.7)
    before = weights_of(run.model)
    run.train(1)
    selected = {name for name, trains in zip(tensor_names(run.model), run.policy.mask) if trains}
    assert 0 < len(selected) < len(timings)
    assert changed_tensors(run.model, before) == selected


def test_a_users_own_scheme_is_found_by_its_place(tf):
    run = PolicyRun(tf, schemes.create("userschemes:OddTensors"), None, steps_per_epoch=2)
    before = weights_of(run.model)
    run.train(1)
    assert changed_tensors(run.model, before) == set(tensor_names(run.model)[1::2])


def test_a_users_own_metric_scores_the_tensors(tf):
    import userschemes

    scheme = schemes.create("by-largest-gradient")
    assert isinstance(scheme, userschemes.ByLargestGradient)
    timings = invented_timings(small_network(tf))
    run = PolicyRun(tf, scheme, timings, epochs=1, steps_per_epoch=16, rho=0.9).train(1)
    assert len(run.policy.masks) == 1 and np.all(run.policy.importance >= 0)


def test_a_scheme_of_an_installed_package_is_found(tmp_path, monkeypatch):
    import userschemes

    package = tmp_path / "odd_schemes-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-schemes\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[elastictrainer.schemes]\nodd = userschemes:OddTensors\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert isinstance(schemes.create("odd"), userschemes.OddTensors)
    with pytest.raises(UsageError, match="Valid: .*odd"):
        schemes.create("ood")


def test_an_unknown_scheme_is_refused_with_the_nearest_name():
    with pytest.raises(UsageError, match="'elastic'"):
        schemes.create("elastc")


@pytest.mark.parametrize(
    "name, message",
    [
        ("nowhere:X", "cannot import nowhere"),
        ("userschemes:X", "has no 'X'"),
        ("userschemes:NoScheme", "gave a NoScheme"),
    ],
)
def test_what_is_no_scheme_is_refused(name, message):
    with pytest.raises(UsageError, match=message):
        schemes.create(name)
