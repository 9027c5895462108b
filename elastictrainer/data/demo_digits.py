"""The demo data: scikit-learn's digits on smooth patterns (source) and on photographs (target)."""

from typing import Tuple

import numpy as np

SIZE = 32
CLASSES = tuple(str(d) for d in range(10))
# The 1,797 digits are divided once: the source domain, the training set and the test set share none of them.
_SOURCE, _TRAIN, _TEST = slice(0, 797), slice(797, 1397), slice(1397, 1797)
SOURCE_COPIES, TRAIN_COPIES = 8, 3


def source(split: str, seed: int = 0) -> Tuple[np.ndarray, np.ndarray]:
    """The source domain, on which the demo network was pre-trained.

    Each digit is lighter than the smooth pattern behind it, and shifted and rotated a little.

    Args:
        split: "train" (8 copies of each of 797 digits) or "test" (the 400 test digits of the target domain).
        seed: of colours, patterns, rotations and shifts.

    Returns:
        Images (n, 32, 32, 3) uint8 and labels (n,) int64.
    """
    part, copies = {"train": (_SOURCE, SOURCE_COPIES), "test": (_TEST, 1)}[split]
    random = np.random.default_rng([seed, 1, part.start])
    strokes, labels = _strokes(part, copies, random)
    paper = random.uniform(0, 160, (len(strokes), 1, 1, 3)) + _patterns(len(strokes), random)
    ink = paper + random.uniform(50, 170, (len(strokes), 1, 1, 3))
    pixels = paper + (ink - paper) * strokes[..., None] * random.uniform(0.75, 1.0, (len(strokes), 1, 1, 1))
    pixels += random.normal(0, 4, pixels.shape)
    return np.clip(pixels, 0, 255).astype(np.uint8), labels


def target(split: str, seed: int = 0) -> Tuple[np.ndarray, np.ndarray]:
    """The target domain, for fine-tuning: the digit lightens and tints a patch of a photograph.

    The photographs are scikit-learn's two sample images.

    Args:
        split: "train" (3 copies of each of 600 digits) or "test" (400 other digits).
        seed: of patches, tints, rotations, shifts and noise.

    Returns:
        Images (n, 32, 32, 3) uint8 and labels (n,) int64.
    """
    from sklearn.datasets import load_sample_images

    part, copies = {"train": (_TRAIN, TRAIN_COPIES), "test": (_TEST, 1)}[split]
    random = np.random.default_rng([seed, 2, part.start])
    strokes, labels = _strokes(part, copies, random)
    photographs = load_sample_images().images
    pixels = np.empty((len(strokes), SIZE, SIZE, 3), np.float64)
    for k, stroke in enumerate(strokes):
        photograph = photographs[random.integers(len(photographs))]
        top = random.integers(photograph.shape[0] - 2 * SIZE)
        left = random.integers(photograph.shape[1] - 2 * SIZE)
        patch = 0.6 * photograph[top : top + 2 * SIZE : 2, left : left + 2 * SIZE : 2]
        ink = np.clip(patch + random.uniform(60, 170, 3), 0, 255)
        cover = stroke[..., None] * random.uniform(0.75, 1.0)
        pixels[k] = patch * (1 - cover) + ink * cover
    pixels += random.normal(0, 8, pixels.shape)
    return np.clip(pixels, 0, 255).astype(np.uint8), labels


def _patterns(count: int, random: np.random.Generator) -> np.ndarray:
    """(count, 32, 32, 3) float64 with mean about 0: smooth brightness, a few tens of grey levels at most."""
    from scipy.ndimage import zoom

    coarse = random.normal(0, 1, (count, 8, 8, 1)) + 0.3 * random.normal(0, 1, (count, 8, 8, 3))
    return zoom(coarse, (1, SIZE / 8, SIZE / 8, 1), order=1) * random.uniform(0, 40, (count, 1, 1, 1))


def _strokes(part: slice, copies: int, random: np.random.Generator) -> Tuple[np.ndarray, np.ndarray]:
    """The 8x8 digits of `part`, enlarged; each copy is rotated, scaled and shifted at random.

    Returns:
        How much of each pixel is covered by the digit, (n, 32, 32) in 0..1; labels (n,) int64.
    """
    from scipy.ndimage import affine_transform
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.repeat(digits.images[part] / 16.0, copies, axis=0)
    labels = np.repeat(digits.target[part].astype(np.int64), copies)
    strokes = np.empty((len(images), SIZE, SIZE))
    for k, image in enumerate(images):
        angle, scale = random.uniform(-0.25, 0.25), random.uniform(0.28, 0.36)
        matrix = scale * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        middle = np.full(2, (SIZE - 1) / 2) + random.uniform(-2.5, 2.5, 2)
        offset = np.full(2, 3.5) - matrix @ middle
        strokes[k] = affine_transform(image, matrix, offset, (SIZE, SIZE), order=3, mode="constant")
    return np.clip(strokes, 0, 1), labels
