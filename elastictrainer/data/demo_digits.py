"""The demo data: scikit-learn's handwritten digits on patches of its two photographs."""

from typing import Tuple

import numpy as np

SIZE = 32
CLASSES = tuple(str(d) for d in range(10))
# The 1,797 digits are divided once: training set and test set share none of them. A test digit comes twice,
# on other patches, so that less of an accuracy is chance.
_PARTS = {"train": (slice(0, 1397), 1), "test": (slice(1397, 1797), 2)}


def digits(split: str) -> Tuple[np.ndarray, np.ndarray]:
    """Return digits for fine-tuning, each turned, scaled and shifted a little, on photographs.

    `split` is "train" (1,397 digits) or "test" (2 copies of each of the 400 others). Returns images (n, 32,
    32, 3) uint8 and labels (n,) int64.
    """
    from sklearn.datasets import load_digits

    part, copies = _PARTS[split]
    random = np.random.default_rng([0, part.start])
    data = load_digits()
    drawings = np.repeat(data.images[part] / 16.0, copies, axis=0)
    return on_photographs(drawings, random), np.repeat(data.target[part].astype(np.int64), copies)


def on_photographs(drawings: np.ndarray, random: np.random.Generator, shear: float = 0.0) -> np.ndarray:
    """Lighten and tint, by each drawing, a patch of one of scikit-learn's two sample photographs.

    `drawings`, (n, 8, 8) in 0..1, say how much of each place is covered. They are enlarged, turned by up to
    23 degrees, shifted, and slanted by up to `shear` of their heights. Returns (n, 32, 32, 3) uint8.
    """
    from sklearn.datasets import load_sample_images

    photographs = load_sample_images().images
    pixels = np.empty((len(drawings), SIZE, SIZE, 3), np.float64)
    for k, drawing in enumerate(drawings):
        photograph = photographs[random.integers(len(photographs))]
        top = random.integers(photograph.shape[0] - 2 * SIZE)
        left = random.integers(photograph.shape[1] - 2 * SIZE)
        patch = 0.6 * photograph[top : top + 2 * SIZE : 2, left : left + 2 * SIZE : 2]
        ink = np.clip(patch + random.uniform(40, 120, 3), 0, 255)
        cover = _enlarged(drawing, random, shear)[..., None] * random.uniform(0.75, 1.0)
        pixels[k] = patch * (1 - cover) + ink * cover
    pixels += random.normal(0, 8, pixels.shape)
    return np.clip(pixels, 0, 255).astype(np.uint8)


def _enlarged(drawing: np.ndarray, random: np.random.Generator, shear: float) -> np.ndarray:
    """Return an 8x8 drawing turned, slanted, scaled and shifted at random: (32, 32) in 0..1."""
    from scipy.ndimage import affine_transform

    angle, scale = random.uniform(-0.4, 0.4), random.uniform(0.28, 0.36)
    turned = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    matrix = turned @ np.array([[1.0, 0.0], [random.uniform(-shear, shear), 1.0]])
    middle = np.full(2, (SIZE - 1) / 2) + random.uniform(-2.5, 2.5, 2)
    offset = np.full(2, 3.5) - matrix @ middle
    return np.clip(affine_transform(drawing, matrix, offset, (SIZE, SIZE), order=3, mode="constant"), 0, 1)
