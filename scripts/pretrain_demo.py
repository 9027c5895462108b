"""Pre-train the demo network on printed letters and write its weights into the package.

    python scripts/pretrain_demo.py

The letters are those of matplotlib's fonts, drawn on photographs as the demo's handwritten digits are. Takes
some ten minutes on two cores. Prints the accuracy on pictures of the same letters that were held out.
"""

import argparse
from pathlib import Path
from typing import Tuple

import matplotlib
import numpy as np
import tensorflow as tf
from PIL import Image, ImageDraw, ImageFont

from elastictrainer.data import demo_digits
from elastictrainer.models import zoo

# Without the lower-case letters that look like their capitals, or like another.
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabdefghijmnqrty"
COPIES = 12  # of each letter in each font
HELD_OUT = 800
_NO_LETTERS = ("Display", "NonUni", "Siz", "cmex", "cmmi", "cmsy", "LastResort")  # in the names of font files


def letters() -> Tuple[np.ndarray, np.ndarray]:
    """Images (n, 32, 32, 3) uint8 and labels (n,) int64, in random order."""
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    fonts = [path for path in sorted(folder.glob("*.ttf")) if not any(w in path.name for w in _NO_LETTERS)]
    drawings = np.array([_drawing(letter, font) for letter in LETTERS for font in fonts])
    labels = np.repeat(np.arange(len(LETTERS)), len(fonts) * COPIES)
    random = np.random.default_rng(0)
    images = demo_digits.on_photographs(np.repeat(drawings, COPIES, axis=0), random, shear=0.3)
    order = random.permutation(len(images))
    return images[order], labels[order]


def _drawing(letter: str, font: Path) -> np.ndarray:
    """(8, 8) in 0..1: how much of each place the letter covers, as large as fits."""
    image = Image.new("L", (160, 160))
    ImageDraw.Draw(image).text((48, 30), letter, font=ImageFont.truetype(str(font), 64), fill=255)
    image = image.crop(image.getbbox())
    side = max(image.size)
    square = Image.new("L", (side, side))
    square.paste(image, ((side - image.width) // 2, (side - image.height) // 2))
    return np.asarray(square.resize((8, 8), Image.BOX), np.float64) / 255


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--output", default=str(zoo.DEMO_WEIGHTS))
    arguments = parser.parse_args()

    tf.keras.utils.set_random_seed(0)
    images, labels = letters()
    train, test = slice(HELD_OUT, None), slice(0, HELD_OUT)
    pixels = tf.keras.Input((demo_digits.SIZE, demo_digits.SIZE, 3))
    features = tf.keras.layers.Rescaling(1 / 127.5, offset=-1.0)(pixels)
    backbone = zoo.demo_backbone((demo_digits.SIZE, demo_digits.SIZE, 3))
    pooled = tf.keras.layers.GlobalAveragePooling2D()(backbone(features))
    model = tf.keras.Model(pixels, tf.keras.layers.Dense(len(LETTERS))(pooled))
    steps = arguments.epochs * (len(images[train]) // 32)
    model.compile(
        tf.keras.optimizers.Adam(tf.keras.optimizers.schedules.CosineDecay(2e-3, steps)),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(images[train], labels[train], batch_size=32, epochs=arguments.epochs, verbose=2)
    np.savez_compressed(arguments.output, *[w.astype(np.float16) for w in backbone.get_weights()])
    zoo.load_arrays(backbone, arguments.output)  # in the half precision that ships
    right = model.predict(images[test], verbose=0).argmax(axis=1) == labels[test]
    print(f"accuracy on pictures held out: {100 * np.mean(right):.1f} %")


if __name__ == "__main__":
    main()
