"""Run folders and profiles as files, made without training: for tests of what reads them."""

import numpy as np

from elastictrainer import Profile
from elastictrainer.runs.run_folder import RunFolder

NAMES = [f"block_{i}/kernel" for i in range(12)]


def make_profile(validated=True):
    """A profile of twelve tensors: forward 10 ms, dW 1 ms and dy 0.5 ms each."""
    profile = Profile.from_chain(NAMES, 10.0, np.full(12, 1.0), np.full(12, 0.5))
    profile.metadata = {"model": "tiny <b>&", "device": "abacus"}
    if validated:
        profile.validation = [
            {"selected": [11], "predicted_ms": 12.0, "measured_ms": 12.5},
            {"selected": [0, 11], "predicted_ms": 18.0, "measured_ms": 17.0},
        ]
    return profile


def make_run(folder, scheme="elastic", seconds=100.0, accuracy=0.8):
    """A finished run of three epochs; an elastic one has two selections, of one tensor and of three."""
    run = RunFolder(folder)
    folder.mkdir()
    run.write_config(
        {"scheme": scheme, "rho": 0.5, "model": "<script>alert(1)</script>", "dataset": "photos/birds"}
    )
    run.write_environment({"device": "abacus", "versions": {"python": "3"}})
    make_profile().save(run.profile_path)
    for epoch in (1, 2, 3):
        run.add_metrics(
            {
                "epoch": epoch,
                "train_seconds_total": seconds * epoch / 3,
                "test_accuracy": accuracy * epoch / 3,
                "test_loss": 1 / epoch,
                "flops_total": 1e12 * epoch,
            }
        )
    if scheme == "elastic":
        for epoch, selected in enumerate(([11], [9, 10, 11])):
            scores = np.linspace(-0.1, 1, 12) * (epoch + 1)
            run.add_selection(
                {"epoch": epoch, "selected": selected, "importance": scores.tolist(), "predicted_ratio": 0.5}
            )
    figures = {"rho_requested": 0.5, "rho_predicted": 0.5, "rho_achieved": 0.51, "train_seconds": seconds}
    figures.update(importance_seconds=1.0, selection_seconds=0.5, trace_seconds=0.5)
    figures.update(peak_rss_bytes=2e9, flops_total=3e12, energy_joules=None)
    run.write_summary({"scheme": scheme, "accuracy": accuracy, **figures})
    return run


def make_trained_run(folder, network, names, **config):
    """A finished run with a model for classes of these `names`."""
    run = make_run(folder)
    usual = {"model": "demo", "dataset": "d/birds", "weights": "w/demo.npz", "batch_size": 4, "seed": 0}
    run.write_config({**run.config(), **usual, **config})
    run.write_summary({**run.summary(), "epochs": 3, "loss": 0.5})
    run.write_environment({**run.environment(), "class_names": names})
    network.save(run.model_path)
    return run


def make_run_on_brightness(tf, folder, **config):
    """A finished run on images of 8x8 pixels, whose model tells the class dark from the class light."""
    layers = tf.keras.layers
    stack = [layers.Rescaling(1 / 255), layers.GlobalAveragePooling2D(), layers.Dense(2, name="head")]
    model = tf.keras.Sequential([tf.keras.Input((8, 8, 3)), *stack])
    model.get_layer("head").set_weights([np.array([[-10.0, 10.0]] * 3), np.array([15.0, -15.0])])
    return make_trained_run(folder, model, ["dark", "light"], **config)
