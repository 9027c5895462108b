"""A small fleet: images of three classes, a network that trains in milliseconds, its invented profile."""

from dataclasses import replace

import numpy as np

from builders import invented_profile

CLASSES = 3


def write_images(file, count=90, test=30, seed=0):
    """An .npz of 16x16 images, each bright in the channel of its class."""
    random = np.random.default_rng(seed)
    labels = np.arange(count + test) % CLASSES
    pixels = random.integers(0, 160, (count + test, 16, 16, 3))
    pixels[np.arange(count + test), :, :, labels] += 60
    pixels = pixels.astype(np.uint8)
    np.savez(
        file, x_train=pixels[:count], y_train=labels[:count], x_test=pixels[count:], y_test=labels[count:]
    )
    return file


def fleet_settings(folder, **options):
    from elastictrainer.fleet.settings import FleetSettings

    data = folder / "images.npz"
    if not data.exists():
        write_images(data)
    options = {"model": "usermodels:residual", "image_size": 16, "batch_size": 4, "rounds": 2, **options}
    settings = FleetSettings(
        dataset=str(data), learning_rate=1e-3, profile=str(folder / "profile.json"), **options
    )
    if not (folder / "profile.json").exists():
        from elastictrainer.fleet.local_training import LocalTraining

        model = LocalTraining(replace(settings, profile=""), CLASSES).model
        invented_profile(model).save(folder / "profile.json")
    return settings
