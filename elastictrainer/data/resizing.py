"""Pictures at the network's size, and the text that lets another program prepare them alike."""

from typing import Optional, Tuple

import tensorflow as tf

# Up to here antialiasing changes a photograph by a quarter of a grey level, and takes five times as long.
_NEARLY_EQUAL = 1.05


def resized(image: tf.Tensor, size: Tuple[int, int]) -> tf.Tensor:
    """Resize a picture by bilinear interpolation, antialiased where it shrinks.

    Args:
        image: (h, w, 3), numbers in 0..255.
        size: height H and width W; proportions may change.

    Returns:
        (H, W, 3) float32 in 0..255, not rounded.
    """
    sides = tf.shape(image)[:2]
    shrinks = tf.reduce_any(sides > [int(_NEARLY_EQUAL * side) for side in size])
    way = tf.where(shrinks, 2, tf.cast(tf.reduce_any(sides != size), tf.int32))
    pixels = tf.switch_case(
        way,
        [
            lambda: tf.cast(image, tf.float32),
            lambda: tf.image.resize(image, size),
            lambda: tf.image.resize(image, size, antialias=True),
        ],
    )
    return tf.ensure_shape(pixels, (*size, 3))


def preprocessing(size: Tuple[Optional[int], Optional[int]], dtype: str = "float32") -> str:
    """Say how pictures are prepared for a network of that height, width (None: any) and input type."""
    height, width = size
    shape = f"{height} pixels high and {width} wide" if height and width else "the size trained on"
    arguments = f"({width}, {height})" if height and width else "..."
    return (
        "Turn the picture as its EXIF orientation says, put transparent parts on white, convert it to RGB of "
        f"8 bits. Resize the whole picture, whatever its proportions, to {shape}, by bilinear interpolation "
        f"with antialiasing: Pillow's resize({arguments}, BILINEAR), or TensorFlow's tf.image.resize(..., "
        "antialias=True). A JPEG of at least 4, 8 or 16 times that size in both directions may be decoded at "
        "a half, a quarter or an eighth of its scale before. Pass the values as they are: "
        f"{dtype}, 0 to 255, channels in the order red, green, blue. Scaling and normalising are inside the "
        "model."
    )
