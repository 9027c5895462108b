"""A small fleet: images of three classes, a network that trains in milliseconds, its invented profile."""

from dataclasses import replace

import numpy as np
from PIL import Image

from builders import invented_profile

CLASSES = 3


def write_images(folder, count=90, test=30, seed=0):
    """A folder of 16x16 images, each bright in the channel of its class."""
    random = np.random.default_rng(seed)
    for number in range(count + test):
        label = number % CLASSES
        pixels = random.integers(0, 160, (16, 16, 3))
        pixels[:, :, label] += 60
        place = folder / ("train" if number < count else "test") / f"class {label}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(place / f"{number:03d}.png")
    return folder


def fleet_settings(folder, **options):
    from elastictrainer.fleet.settings import FleetSettings

    data = folder / "images"
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
