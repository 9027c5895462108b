"""`--precision bfloat16`: layers compute in bfloat16, weights are float32; profiled, trained and exported."""

import dataclasses
import re

import numpy as np
import pytest

from elastictrainer import UsageError
from elastictrainer.experiment import assembly, profiling
from elastictrainer.experiment.exporting import export_run
from elastictrainer.experiment.options import inherit
from elastictrainer.experiment.run import train
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.models import predictor
from elastictrainer.profiler.profile import Profile
from elastictrainer.runs import environment
from elastictrainer.runs.log import printed
from elastictrainer.runs.run_folder import RunFolder
from elastictrainer.steps.keras_compat.layers import compute_in_float32
from elastictrainer.training.evaluation import Evaluator


@pytest.fixture
def settings(image_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"model": "usermodels:with_float32_head", "precision": "bfloat16", "image_size": 16}
    options.update(dataset=str(image_folder), batch_size=4, learning_rate=0.003, epochs=3)
    return TrainSettings(**options, importance_batches=2, scheme="traditional-tl", calibration_seconds=0.5)


def precisions(model):
    return {layer.name: str(layer.compute_dtype) for layer in model.layers if layer.weights}


def test_a_run_trains_caches_resumes_and_is_exported(tf, settings, tmp_path):
    run = RunFolder.create(tmp_path / "run")
    summary = train(settings, run, resume=False)
    assert summary["steps"] == 18 and summary["cached_share"] > 0 and np.isfinite(summary["loss"])
    assert train(settings, run, resume=True)["loss"] == summary["loss"]
    model = tf.keras.models.load_model(run.model_path)
    assert precisions(model) == {"first": "bfloat16", "second": "bfloat16", "exact_head": "float32"}
    assert {str(tf.as_dtype(v.dtype).name) for v in model.weights} == {"float32"}
    *exports, _ = export_run(run, ["tflite", "keras"])
    images = np.random.default_rng(0).uniform(0, 255, (4, 16, 16, 3)).astype(np.float32)
    expected = predictor.load(run.path)(images)
    for path in exports:
        np.testing.assert_allclose(predictor.load(path)(images), expected, atol=1e-5)
    trained = tf.nn.softmax(model(images, training=False)).numpy()
    np.testing.assert_allclose(trained, expected, atol=0.02)
    assert not np.array_equal(trained, expected), "as it was trained, it rounds"


def test_a_built_in_network_ends_in_float32_and_starts_with_exact_pixels(tf):
    settings = TrainSettings(model="demo", precision="bfloat16", augment="strong")
    assembly.configure(0, precision="bfloat16")
    model = assembly.make_model(settings, 10)
    found = {layer.name.split("_")[0]: str(layer.compute_dtype) for layer in model.layers}
    assert found["head"] == found["preprocess"] == found["random"] == "float32"
    assert found["dropout"] == "bfloat16"
    assembly.configure(0)
    assert set(map(str, (layer.compute_dtype for layer in assembly.make_model(settings, 10).layers))) == {
        "float32"
    }


def test_a_profile_is_of_one_precision_which_a_model_must_be_able_to_have(tf, settings):
    assembly.configure(0, precision="bfloat16")
    model = assembly.make_model(settings, 2)
    metadata = assembly.profile_metadata(settings, model, (16, 16, 3), 2)
    images, labels = tf.zeros((4, 16, 16, 3)), tf.constant([0, 1, 0, 1])
    options = {"warmup_steps": 1, "steps": 1, "calibrate_s": 0}
    optimizer = assembly.make_optimizer(settings)
    profile = profiling.make_profile(model, (images, labels), optimizer, metadata, **options)
    assert not profiling.differences(profile, model, metadata)
    in_float32 = dataclasses.replace(settings, precision="float32")
    plain = assembly.profile_metadata(in_float32, model, (16, 16, 3), 2)
    assert profiling.profile_path(plain) != profiling.profile_path(metadata)
    (said,) = profiling.differences(profile, model, plain)
    assert re.fullmatch("precision: .*mixed_bfloat16.*float32", said)
    with pytest.raises(UsageError, match="gives bfloat16 logits.*dtype=.float32."):
        assembly.make_model(dataclasses.replace(settings, model="usermodels:good"), 2)


def test_a_continued_run_has_the_precision_of_the_earlier_one(tf, settings, tmp_path):
    run = RunFolder.create(tmp_path / "run")
    settings = dataclasses.replace(settings, epochs=1, scheme="full")
    train(settings, run, resume=False)
    later = TrainSettings(dataset=settings.dataset, init_from=str(run.path))
    assert inherit(later, ["--rho"]).precision == "bfloat16"
    with pytest.raises(UsageError, match="leave out --precision"):
        inherit(later, ["--precision"])


@pytest.mark.parametrize("ratio, chosen", [(0.8, "bfloat16"), (0.95, "float32"), (1.4, "float32")])
def test_auto_measures_both_formats_once_where_the_device_has_both(settings, monkeypatch, ratio, chosen):
    asked, auto = [], dataclasses.replace(settings, precision="auto", model="demo")

    def took(settings, precision):
        asked.append(precision)
        return 100.0 * (ratio if precision == "bfloat16" else 1.0)

    monkeypatch.setattr(profiling, "_full_step_ms", took)
    monkeypatch.setattr(environment, "has_bfloat16", lambda: False)
    assert profiling.choose_precision(auto) == "float32" and not asked
    monkeypatch.setattr(environment, "has_bfloat16", lambda: True)
    assert profiling.choose_precision(auto) == profiling.choose_precision(auto) == chosen
    assert asked == ["float32", "bfloat16"], "the second time they are known"
    for unmeasured in (
        {"deterministic": True},
        {"memory": "1GB"},
        {"model": "mine.keras"},
        {"model": settings.model},
    ):
        assert profiling.choose_precision(dataclasses.replace(auto, **unmeasured)) == "float32"


def test_a_run_that_is_too_short_to_measure_formats_takes_what_is_known(settings, monkeypatch):
    took = {"float32": 100.0, "bfloat16": 50.0}
    monkeypatch.setattr(profiling, "_full_step_ms", lambda settings, precision: took[precision])
    monkeypatch.setattr(profiling, "process_age_s", lambda: 6.0)
    monkeypatch.setattr(environment, "has_bfloat16", lambda: True)
    auto = dataclasses.replace(settings, precision="auto", model="demo")
    short, longer = (dataclasses.replace(auto, time=time) for time in ("1m", "3m"))
    found = [profiling.choose_precision(each) for each in (short, longer, short)]
    assert found == ["float32", "bfloat16", "bfloat16"]


def test_auto_is_the_format_of_the_profile_that_is_named(settings, tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "has_bfloat16", lambda: True)
    chain = Profile.from_chain(list("ab"), 30.0, [10] * 2, [7.5] * 2)
    for policy, expected in (("mixed_bfloat16", "bfloat16"), ("float32", "float32")):
        path = tmp_path / f"{policy}.json"
        dataclasses.replace(chain, metadata={**chain.metadata, "precision": policy}).save(path)
        for changes in ({}, {"memory": "1GB"}, {"deterministic": True}, {"model": "demo", "time": "10s"}):
            named = dataclasses.replace(settings, precision="auto", profile=str(path), **changes)
            assert profiling.choose_precision(named) == expected


def test_a_run_goes_on_in_float32_where_the_device_has_no_bfloat16(
    tf, settings, tmp_path, monkeypatch, capsys
):
    run = RunFolder.create(tmp_path / "run")
    train(settings, run, resume=False)
    monkeypatch.setattr(environment, "has_bfloat16", lambda: False)
    tf.keras.backend.clear_session()
    again = TrainSettings(dataset=settings.dataset, init_from=str(run.path), batch_size=4, epochs=1)
    later = RunFolder.create(tmp_path / "later")
    with printed():
        train(inherit(dataclasses.replace(again, scheme="traditional-tl"), []), later, resume=False)
    assert "computed in bfloat16, which this device has not: float32" in capsys.readouterr().out
    assert set(precisions(tf.keras.models.load_model(later.model_path)).values()) == {"float32"}


def test_auto_times_real_steps_and_leaves_no_trace(tf, settings, monkeypatch):
    auto = dataclasses.replace(settings, precision="auto", model="demo", image_size=None)
    monkeypatch.setattr(profiling.environment, "has_bfloat16", lambda: True)
    names = [v.name for v in assembly.make_model(auto, 2).trainable_variables]
    tf.keras.backend.clear_session()
    assert profiling.choose_precision(auto) in ("float32", "bfloat16")
    assembly.configure(0)
    assert [v.name for v in assembly.make_model(auto, 2).trainable_variables] == names


@pytest.mark.parametrize(
    "text, expected",
    [
        ("flags : fpu avx2 avx512f\n", False),
        ("flags : fpu avx512_bf16\n", True),
        ("flags : fpu amx_bf16\n", True),
        ("Features : fp asimd\n", False),  # a Pi
        ("Features : fp asimd bf16\n", True),
        (None, False),
    ],
)
def test_a_processor_says_whether_it_has_bfloat16(tf, tmp_path, monkeypatch, text, expected):
    path = tmp_path / "cpuinfo"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(environment, "CPUINFO", path)
    assert environment.has_bfloat16() == expected


def test_a_run_in_bfloat16_is_evaluated_as_its_network_is_used(tf, settings):
    """In float32, like et-evaluate and et-predict; its steps go on in bfloat16."""
    assembly.configure(0, precision="bfloat16")
    model = assembly.make_model(settings, 3)
    model.layers[-1].kernel.assign(tf.random.normal(model.layers[-1].kernel.shape))
    x, y = tf.random.uniform((8, 16, 16, 3), 0, 255), tf.range(8, dtype=tf.int64) % 3
    found = Evaluator(model)([(x, y)]).loss
    assert precisions(model) == {"first": "bfloat16", "second": "bfloat16", "exact_head": "float32"}
    rounded = model(x, training=False)
    compute_in_float32(model)
    exact = model(x, training=False)
    losses = [
        tf.keras.losses.sparse_categorical_crossentropy(y, z, from_logits=True) for z in (exact, rounded)
    ]
    assert found == pytest.approx(float(tf.reduce_mean(losses[0])), rel=1e-5)
    assert found != pytest.approx(float(tf.reduce_mean(losses[1])), rel=1e-5)
