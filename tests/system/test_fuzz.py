"""Arbitrary input to what reads and computes: a right result, or a clear error, within a second."""

import argparse
import functools
import gzip
import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elastictrainer import Profile, RunError, UsageError, select
from elastictrainer.experiment.options import load, parse
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.plotting import report
from elastictrainer.runs.run_folder import RunFolder
from log_lines import listen
from run_builders import make_run

EXAMPLES = int(os.environ.get("FUZZ", "50"))  # of each test
DATA = Path(__file__).parent.parent / "files"


def within_a_second(test):
    """Inputs, none of which takes over a second every time: once may be the machine's fault."""

    @settings(
        deadline=None,
        max_examples=EXAMPLES,
        derandomize=True,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @functools.wraps(test)
    def timed(**inputs):
        fastest = np.inf
        for _ in range(3):
            start = time.perf_counter()
            test(**inputs)
            fastest = min(fastest, time.perf_counter() - start)
            if fastest <= 1:
                return
        pytest.fail(f"it takes {fastest:.1f} s")

    return timed


awkward = st.sampled_from([0.0, 5e-324, 1e-310, 1e-9, 1.0, 1e9, 1e150, 1.7e308])
times = st.one_of(awkward, st.floats(0, 1e6))
scores = st.one_of(
    st.sampled_from([-np.inf, np.inf, np.nan]), awkward, awkward.map(lambda x: -x), st.floats(-1e6, 1e6)
)


@st.composite
def chains(draw):
    n = draw(st.integers(1, 40))
    lists = [draw(st.lists(of, min_size=n, max_size=n)) for of in (times, times, scores)]
    return (draw(times), *lists)


@given(chains(), st.floats(0, 1), st.sampled_from([1, 7, 10_000]))
@within_a_second
def test_selector(chain, rho, resolution):
    forward, t_dw, t_dy, importance = chain
    try:
        profile = Profile.from_chain([f"t{i}" for i in range(len(t_dw))], forward, t_dw, t_dy)
        selection = select(profile, importance, rho, resolution=resolution)
    except UsageError as error:
        assert str(error).endswith(".")
        return
    assert np.all(np.isfinite(importance))
    assert np.all(np.asarray(importance)[selection.mask] > 0)
    assert np.isfinite(selection.step_ms)
    if selection.mask.any():
        assert selection.step_ms <= max(rho, profile.rho_min) * profile.full_ms * (1 + 1e-9)


@st.composite
def mutated(draw, content):
    """`content` with bytes changed, pieces cut out, doubled, or put elsewhere."""
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        length = draw(st.integers(0, 40))
        new = draw(
            st.one_of(
                st.binary(max_size=12),
                st.just(bytes(data[at : at + length]) * 2),
                st.sampled_from(
                    [b"-1", b"1e999", b"NaN", b"null", b"[", b"{}", b"true", b'"x"', b"99999999999999999999"]
                ),
            )
        )
        data[at : at + length] = new
    return bytes(data)


PROFILE = json.dumps(Profile.from_chain(["a", "b", "c"], 2.0, [1.0, 2.0, 3.0], [0.5, 0.25, 0.125]).to_json())


@given(mutated(PROFILE.encode()))
@within_a_second
def test_profile(tmp_path, content):
    path = tmp_path / "p.json"
    path.write_bytes(content)
    try:
        profile = Profile.load(path)
    except UsageError as error:
        assert "p.json" in str(error) and "et-profile" in str(error)
        return
    assert np.isfinite(profile.full_ms) and profile.full_ms >= 0
    assert profile.step_time(np.zeros(len(profile), bool)) <= profile.full_ms * (1 + 1e-9)


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(["format", "version", "tensors", "groups", "metadata", "validation"]),
                inner,
                max_size=5,
            ),
        ),
    )
)
@within_a_second
def test_any_json_as_a_profile(value):
    with pytest.raises(UsageError):
        Profile.from_json(value)


TRACE = gzip.decompress((DATA / "small_network.xplane.pb.gz").read_bytes())


@given(mutated(TRACE))
@within_a_second
def test_trace(tf, tmp_path, content):
    from elastictrainer.profiler.xplane import read_trace, wall_shares

    path = tmp_path / "t.xplane.pb"
    path.write_bytes(content)
    try:
        trace = read_trace(path)
    except RunError as error:
        assert "t.xplane.pb" in str(error)
        return
    shares, outside = wall_shares(trace)
    assert shares.shape == (len(trace.steps), len(trace.ops)) and np.all(np.isfinite(shares))


scalars = st.one_of(
    *(st.none(), st.booleans(), st.integers(-5, 5), st.integers(), st.floats(), st.text(max_size=8)),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
NAMES = """rho epochs interval batch_size batch-size scheme image-size model data_dir overwrite learning_rate
rotation augment classes warmup ephocs config"""
names = st.sampled_from(["", *NAMES.split()])


@given(st.dictionaries(names, scalars, max_size=5), st.dictionaries(names, st.text(max_size=8), max_size=3))
@within_a_second
def test_config(tmp_path, file, line):
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(file), encoding="utf-8")
    arguments = ["--config", str(path)] + [
        f"--{key}={value}" for key, value in line.items() if key not in ("", "config")
    ]
    try:
        got, _ = parse(TrainSettings, arguments, argparse.ArgumentParser(allow_abbrev=False))
    except UsageError as error:
        assert str(error)
        return
    except SystemExit as stopped:
        assert stopped.code == 2
        return
    assert 0.01 <= got.rho <= 1 and got.epochs >= 1 and got.batch_size >= 1
    assert got.interval is None or got.interval >= 1
    assert isinstance(got.model, str) and isinstance(got.overwrite, bool)
    for key, value in line.items():
        if key in ("rho", "epochs", "model", "learning_rate"):
            assert getattr(got, key) == type(getattr(got, key))(value)


def data_set(tmp_path, name, content):
    """Read a data file of that content: a UsageError that names it, or images with labels."""
    from elastictrainer.data import datasets

    path = tmp_path / name
    path.write_bytes(content)
    before = sorted(p for p in tmp_path.rglob("*"))
    try:
        data = datasets.load(str(path), 1, (8, 8), validation_split=0.5)
    except UsageError as error:
        assert len(str(error)) < 2000
    else:
        for split in (data.train_split, data.test_split):
            assert split.count and 0 <= min(split.labels) and max(split.labels) < len(data.class_names)
    assert sorted(p for p in tmp_path.rglob("*")) == before


TABLE = "path,label\n" + "".join(f"{k % 2}.png,{'ab'[k % 2]}\n" for k in range(8))


@given(mutated(TABLE.encode()))
@within_a_second
def test_table(tf, tmp_path, content):
    from PIL import Image

    for k in (0, 1):
        if not (tmp_path / f"{k}.png").exists():
            Image.new("RGB", (8, 8)).save(tmp_path / f"{k}.png")
    data_set(tmp_path, "t.csv", content)


@given(mutated(b"model: demo\nrho: 0.5\nepochs: 3\nseed: 010\nexport: tflite\n# a note\ndataset: images\n"))
@within_a_second
def test_settings_file(tmp_path, content):
    (tmp_path / "c.yaml").write_bytes(content)
    try:
        got = load(TrainSettings, tmp_path / "c.yaml")
    except UsageError as error:
        assert len(str(error)) < 2000
        return
    assert 0.01 <= got.rho <= 1 and got.epochs >= 1 and 0 <= got.seed < 2**32


@pytest.mark.parametrize("name", ["config.yaml", "environment.json", "metrics.jsonl", "summary.json"])
@given(data=st.data())
@within_a_second
def test_run_folder(tmp_path, name, data):
    run = RunFolder(tmp_path / "run")
    if not run.path.exists():
        make_run(run.path)
        for path in run.path.iterdir():
            path.with_suffix(".sound").write_bytes(path.read_bytes())
    sound = (run.path / name).with_suffix(".sound").read_bytes()
    (run.path / name).write_bytes(data.draw(mutated(sound)))
    try:
        report.table_rows([run])
        run.environment().get("class_names")
        assert all(np.isfinite(line["epoch"]) for line in run.metrics())
    except UsageError as error:
        assert str(run.path / name) in str(error) or "train_seconds" in str(error)
    finally:
        (run.path / name).write_bytes(sound)


def test_checkpoint_bytes(tf, tmp_path):
    """Every damage is passed over with a word, or leaves the values that were saved."""
    from elastictrainer.training.checkpoints import CheckpointFiles

    variable = tf.Variable(np.arange(64, dtype="float32"))
    checkpoints = CheckpointFiles(tmp_path, values=[variable])
    random = np.random.default_rng(0)
    for trial in range(15):
        variable.assign(np.arange(64, dtype="float32"))
        checkpoints.save(trial, {"step": trial})
        (newest,) = tmp_path.glob(f"step-{trial:09d}")
        file = random.choice(sorted(p for p in newest.iterdir() if p.is_file()))
        content = bytearray(file.read_bytes())
        for at in random.integers(0, max(1, len(content)), 3):
            content[at : at + 4] = random.bytes(random.integers(0, 8))
        file.write_bytes(bytes(content))
        said = listen()
        try:
            state = checkpoints.restore()
        except RunError as error:
            assert said and "can be read" in str(error)
            state = None
        if state is not None:
            assert state["step"] <= trial and (said or state["step"] == trial)
            np.testing.assert_array_equal(variable, np.arange(64))
