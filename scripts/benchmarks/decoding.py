"""The time of reading a picture: a photograph from a phone at full and at reduced scale, and a small one.

    python scripts/benchmarks/decoding.py --output decoding.json --picture photograph.jpg

Each row compares two ways, in turn in one process: milliseconds are medians, and so is the ratio of each pair
of turns. The 12-megapixel JPEG is the picture enlarged; without --picture it is made of smooth noise.
"""

import argparse
import io
import json
import statistics
import time
from typing import Any, Callable, Dict, List

import numpy as np
import tensorflow as tf
from PIL import Image

from elastictrainer.data import pictures
from elastictrainer.data.resizing import resized
from elastictrainer.runs.environment import describe

SIZE = (224, 224)
PHONE = (4032, 3024)  # width and height: 12 megapixels
SMALL = (227, 227)


def jpeg(image: Image.Image) -> bytes:
    """Return the image as a file, at a camera's quality."""
    stream = io.BytesIO()
    image.save(stream, "jpeg", quality=90)
    return stream.getvalue()


def original(path: str) -> Image.Image:
    """Return the picture at `path`, or smooth noise."""
    if path:
        return Image.open(path).convert("RGB")
    noise = np.random.default_rng(0).integers(0, 255, (48, 64, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((256, 192), Image.Resampling.BICUBIC)


def compared(name: str, first: Callable[[], Any], second: Callable[[], Any], turns: int) -> Dict[str, Any]:
    """Return a row: both ways in turn, after each was tried once."""
    difference = float(np.abs(np.asarray(first(), float) - np.asarray(second(), float)).mean())
    taken: List[List[float]] = []
    for _ in range(turns):
        pair = []
        for way in (first, second):
            start = time.perf_counter()
            way()
            pair.append(1e3 * (time.perf_counter() - start))
        taken.append(pair)
    before, after = (statistics.median(column) for column in zip(*taken))
    ratio = statistics.median(b / a for a, b in taken)
    return {
        "row": name,
        "first_ms": before,
        "second_ms": after,
        "ratio": ratio,
        "mean_difference": difference,
    }


def rows(picture: Image.Image, turns: int) -> List[Dict[str, Any]]:
    """All comparisons."""
    phone = jpeg(picture.resize(PHONE, Image.Resampling.BICUBIC))
    small = jpeg(picture.resize(SMALL, Image.Resampling.BICUBIC))

    @tf.function
    def full_scale(content: tf.Tensor) -> tf.Tensor:
        pixels = tf.io.decode_jpeg(content, channels=3, dct_method="INTEGER_ACCURATE")
        return tf.image.resize(pixels, SIZE, antialias=True)

    @tf.function
    def plain(content: tf.Tensor) -> tf.Tensor:
        return tf.image.resize(tf.io.decode_image(content, channels=3, expand_animations=False), SIZE)

    @tf.function
    def as_read(content: tf.Tensor) -> tf.Tensor:
        return resized(pictures.decode_plain(content, SIZE), SIZE)

    def by_pillow(size: Any) -> tf.Tensor:
        return tf.image.resize(pictures.decode_content(phone, size), SIZE, antialias=True)

    large, nearly = tf.constant(phone), tf.constant(small)
    return [
        compared(
            "12 MP, TensorFlow: full scale, reduced", lambda: full_scale(large), lambda: as_read(large), turns
        ),
        compared(
            "12 MP, Pillow: full scale, reduced", lambda: by_pillow(PHONE), lambda: by_pillow(SIZE), turns
        ),
        compared(
            "227x227: without antialiasing, as read",
            lambda: plain(nearly),
            lambda: as_read(nearly),
            50 * turns,
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--picture", default="", metavar="FILE", help="a photograph of any size")
    parser.add_argument(
        "--turns", type=int, default=20, help="of each comparison; 50 times as many of the small"
    )
    parser.add_argument("--output", default="decoding.json", metavar="FILE")
    options = parser.parse_args()
    found = rows(original(options.picture), options.turns)
    print(f"{'':40} {'first ms':>10} {'second ms':>10} {'ratio':>7} {'difference':>11}")
    for row in found:
        print(
            f"{row['row']:40} {row['first_ms']:10.2f} {row['second_ms']:10.2f} {row['ratio']:7.3f} "
            f"{row['mean_difference']:11.3f}"
        )
    with open(options.output, "w") as stream:
        json.dump({"size": SIZE, "rows": found, "environment": describe()}, stream, indent=1)


if __name__ == "__main__":
    main()
