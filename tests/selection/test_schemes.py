"""Schemes: what each trains and says of itself; the built-in ones, a user's, those of installed packages."""

import numpy as np
import pytest

from builders import changed_tensors, invented_profile, small_network, tensor_names, weights_of
from elastictrainer import UsageError
from elastictrainer.selection import schemes
from selector_run import SelectorRun

ELASTIC = [name for name in schemes.SCHEMES if name.startswith("elastic")]
ALL = {
    *("stem/kernel", "stem/bias", "stem_bn/gamma", "stem_bn/beta"),
    *("inner/kernel", "inner/bias", "inner_bn/gamma", "inner_bn/beta"),
    *("head/kernel", "head/bias"),
}
TRAINED = {
    "full": ALL,
    "traditional-tl": {"head/kernel", "head/bias"},
    "bn-bias": ALL - {"stem/kernel", "inner/kernel"},
    "prunetrain": ALL,
    "userschemes:OddTensors": {name for name in ALL if name.endswith(("/bias", "/beta"))},
}


def test_the_last_quarter_of_the_tensors_trains_by_rule_with_the_head_at_least(tf):
    model = small_network(tf)
    names = tensor_names(model)
    assert np.array(names)[schemes.LastLayers().mask(model)].tolist() == [
        names[7],
        "head/kernel",
        "head/bias",
    ]
    more = schemes.LastLayers()
    more.SHARE = 0.4
    assert np.flatnonzero(more.mask(model)).tolist() == [6, 7, 8, 9] and len(names) == 10


def test_a_users_own_metric_scores_the_tensors(tf):
    import userschemes

    scheme = schemes.create("userschemes:ByLargestGradient")
    assert isinstance(scheme, userschemes.ByLargestGradient)
    profile = invented_profile(small_network(tf))
    run = SelectorRun(tf, scheme, profile, steps_per_epoch=16, rho=0.9).train(1)
    assert len(run.selector.masks) == 1 and np.all(run.selector.importance >= 0)


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


@pytest.mark.parametrize("name", [*ELASTIC, *TRAINED])
def test_a_scheme_trains_exactly_its_tensors(tf, name):
    profile = None if name in TRAINED else invented_profile(small_network(tf))
    run = SelectorRun(tf, schemes.create(name), profile, steps_per_epoch=6 if profile else 2, rho=0.7)
    before = weights_of(run.model)
    run.train(1)
    selected = {name for name, trains in zip(tensor_names(run.model), run.selector.mask) if trains}
    assert selected == TRAINED[name] if name in TRAINED else 0 < len(selected) < len(profile)
    assert changed_tensors(run.model, before) == selected


def test_prunetrain_adds_a_quarter_of_the_loss_and_prunes_faded_channels(tf):
    model = small_network(tf, classes=3)
    scheme = schemes.create("prunetrain")
    penalty = scheme.penalty(model)
    assert float(penalty()) / (float(penalty()) + np.log(3)) == pytest.approx(0.25)
    kernel = model.get_layer("inner").kernel
    kernel.assign(kernel * [1.0, 1e-6, 1.0, 1.0])
    assert scheme.at_interval(model, None) == {"pruned_channels": 1, "channels": 8}
    assert np.all(kernel.numpy()[..., 1] == 0) and np.all(kernel.numpy()[..., 0] != 0)


def test_prunetrain_logs_the_pruned_channels_at_every_interval(tf):
    run = SelectorRun(tf, schemes.create("prunetrain"), None, steps_per_epoch=2).train(2)
    assert run.records == [{"step": 2, "pruned_channels": 0, "channels": 8}]


def test_prunetrain_penalises_nothing_without_a_convolution(tf):
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(2)])
    scheme = schemes.create("prunetrain")
    assert float(scheme.penalty(model)()) == 0.0
    assert scheme.at_interval(model, None) == {"pruned_channels": 0, "channels": 0}


def test_a_scheme_says_whether_it_selects_and_whether_by_the_state_of_training():
    names = {name for name in schemes.SCHEMES if schemes.selects(name)}
    assert names == {*ELASTIC, "freeze-below"}
    assert names == {name for name in schemes.SCHEMES if schemes.create(name).selects}
    scored = {name for name in schemes.SCHEMES if schemes.create(name).needs_scores}
    assert scored == {"elastic", "elastic-grad-magnitude"}


def test_a_users_scheme_says_it_by_its_metric():
    class Mine(schemes.Scheme):
        importance_metric = "update"

    assert Mine().selects and Mine().needs_scores
    assert schemes.selects("nowhere:Mine") is None, "it is not imported"
