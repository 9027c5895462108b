"""A profile's file: what is written is read, and what is damaged is refused by name. No TensorFlow."""

import json

import numpy as np
import pytest

from builders import random_profile
from elastictrainer import Profile, UsageError


def test_saved_profile_loads_the_same(tmp_path):
    profile = random_profile(np.random.default_rng(3), frozen_saving=0.2)
    profile.save(tmp_path / "p.json")
    loaded = Profile.load(tmp_path / "p.json")
    assert (
        loaded.names == profile.names
        and loaded.shapes == profile.shapes
        and loaded.metadata == profile.metadata
    )
    assert loaded.validation == profile.validation
    for key in ("dw", "dy", "forward"):
        assert list(getattr(loaded, key).sets()) == list(getattr(profile, key).sets())
    for mask in np.eye(9, dtype=bool):
        assert loaded.step_time(mask) == profile.step_time(mask)
    tensors = json.loads((tmp_path / "p.json").read_text())["tensors"]
    np.testing.assert_array_equal([t["t_dy"] for t in tensors], profile.t_dy)


def _without(key):
    def change(profile):
        del profile[key]

    return change


@pytest.mark.parametrize(
    "damage",
    [
        _without("tensors"),
        _without("groups"),
        lambda p: p.update(version=99),
        lambda p: p.update(format="something"),
        lambda p: p["tensors"].clear(),
        lambda p: p["tensors"][0].update(t_update=-1.0),
        lambda p: p["groups"]["dy"][0].update(members=[[0, 99]]),
        lambda p: p["groups"]["dy"][0].update(ms=-5.0),
        lambda p: p["groups"]["dy"][0].update(ms="fast"),
    ],
)
def test_damaged_profile_is_refused_by_name(tmp_path, damage):
    path = tmp_path / "p.json"
    random_profile(np.random.default_rng(4)).save(path)
    profile = json.loads(path.read_text())
    damage(profile)
    path.write_text(json.dumps(profile))
    with pytest.raises(UsageError, match="p.json"):
        Profile.load(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe\x00", b"null"])
def test_file_that_is_no_profile_is_refused_by_name(tmp_path, content):
    (tmp_path / "p.json").write_bytes(content)
    with pytest.raises(UsageError, match="p.json"):
        Profile.load(tmp_path / "p.json")


def test_missing_profile_says_how_to_make_one(tmp_path):
    with pytest.raises(UsageError, match="et-profile"):
        Profile.load(tmp_path / "none.json")
