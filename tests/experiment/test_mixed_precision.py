"""`--mixed-precision`: layers compute in bfloat16, weights are float32; profiled, trained and exported."""

import dataclasses
import re

import numpy as np
import pytest

from elastictrainer import UsageError
from elastictrainer.experiment import assembly, profiling
from elastictrainer.experiment.exporting import export_run
from elastictrainer.experiment.run import train
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.models import predictor
from elastictrainer.runs.run_folder import RunFolder


@pytest.fixture(autouse=True)
def float32_again(tf):
    yield
    tf.keras.mixed_precision.set_global_policy("float32")


@pytest.fixture
def settings(image_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"model": "usermodels:with_float32_head", "mixed_precision": True, "image_size": 16}
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
    settings = TrainSettings(model="demo", mixed_precision=True, augment="strong")
    assembly.configure(0, mixed_precision=True)
    model = assembly.make_model(settings, 10)
    found = {layer.name.split("_")[0]: str(layer.compute_dtype) for layer in model.layers}
    assert found["head"] == found["preprocess"] == found["random"] == "float32"
    assert found["dropout"] == "bfloat16"
    assembly.configure(0)
    assert set(map(str, (layer.compute_dtype for layer in assembly.make_model(settings, 10).layers))) == {
        "float32"
    }


def test_a_profile_is_of_one_precision(tf, settings, tmp_path):
    assembly.configure(0, mixed_precision=True)
    model = assembly.make_model(settings, 2)
    metadata = assembly.profile_metadata(settings, model, (16, 16, 3), 2)
    images, labels = tf.zeros((4, 16, 16, 3)), tf.constant([0, 1, 0, 1])
    options = {"warmup_steps": 1, "steps": 1, "calibrate_s": 0}
    optimizer = assembly.make_optimizer(settings)
    profile = profiling.make_profile(model, (images, labels), optimizer, metadata, **options)
    assert not profiling.differences(profile, model, metadata)
    plain = assembly.profile_metadata(
        dataclasses.replace(settings, mixed_precision=False), model, (16, 16, 3), 2
    )
    assert profiling.profile_path(plain) != profiling.profile_path(metadata)
    (said,) = profiling.differences(profile, model, plain)
    assert re.fullmatch("precision: .*mixed_bfloat16.*float32", said)


def test_a_model_that_cannot_have_it_is_refused(tf, settings):
    assembly.configure(0, mixed_precision=True)
    with pytest.raises(UsageError, match="gives bfloat16 logits.*dtype=.float32."):
        assembly.make_model(dataclasses.replace(settings, model="usermodels:good"), 2)
