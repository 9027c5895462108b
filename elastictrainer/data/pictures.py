"""A picture in a file, read as it looks: turned as its camera says, its transparent parts white."""

import functools
import io
import os
import stat
import warnings
from typing import Any, NamedTuple, Union

import numpy as np
import tensorflow as tf

SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
# Those that TensorFlow decodes, faster than Pillow, and as they look but for what `_is_plain` asks.
_TENSORFLOWS = ("JPEG", "MPO", "PNG", "GIF")
_FORMATS = (*_TENSORFLOWS, "BMP", "WEBP", "TIFF")  # TensorFlow reads a BMP of 24 bits only
_ORIENTATION = 0x0112  # the EXIF tag; 1 is upright
_WHITE = (255, 255, 255, 255)


class Header(NamedTuple):
    """What a file's first bytes tell.

    Attributes:
        problem: the file and what is wrong with it, or an empty string.
        plain: TensorFlow reads the picture as it looks.
    """

    problem: str
    plain: bool = False


def header(file: Union[str, os.PathLike]) -> Header:
    """Read a file's header; the pixels are not decoded."""
    try:
        status = os.stat(file)
    except OSError as error:
        return Header(f"{file} ({error.strerror})")
    if not stat.S_ISREG(status.st_mode):
        return Header(f"{file} (not a regular file)")
    if status.st_size == 0:
        return Header(f"{file} (empty)")
    return _read_header(os.fspath(file), status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=None)
def _read_header(file: str, size: int, time_ns: int) -> Header:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file) as image:
                if image.format not in _FORMATS:
                    return Header(f"{file} ({image.format} inside)")
                if image.mode == "F":
                    return Header(f"{file} (its pixels are not whole numbers)")
                return Header("", _is_plain(image))
    except Image.UnidentifiedImageError:
        return Header(f"{file} (not an image)")
    except (
        OSError,
        SyntaxError,
        ValueError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:
        return Header(f"{file} ({getattr(error, 'strerror', None) or error})")


def _is_plain(image: Any) -> bool:
    """Whether an opened picture is upright, opaque, and of 8 bits a channel in RGB or grey."""
    if (
        image.format not in _TENSORFLOWS
        or image.mode not in ("RGB", "L", "P")
        or "transparency" in image.info
    ):
        return False
    # Without "exif" here, getexif() would decode a PNG to look for one at its end.
    return "exif" not in image.info or image.getexif().get(_ORIENTATION, 1) == 1


def decode_plain(file: Any) -> tf.Tensor:
    """(H, W, 3) uint8 of a plain picture; the first frame of an animation."""
    return tf.io.decode_image(tf.io.read_file(file), channels=3, expand_animations=False)


def decode(file: Union[str, bytes]) -> np.ndarray:
    """(H, W, 3) uint8 of any picture; the first frame of an animation.

    Raises:
        OSError, SyntaxError, ValueError: it is damaged.
    """
    from PIL import Image

    with Image.open(os.fsdecode(file)) as stored:
        return _as_it_looks(stored)


def decode_content(content: bytes) -> np.ndarray:
    """`decode` of a file that was read, of one of the formats that are read here."""
    from PIL import Image

    formats = [name for name in _FORMATS if name != "MPO"]  # Pillow opens that as JPEG
    with Image.open(io.BytesIO(content), formats=formats) as stored:
        if stored.mode == "F":
            raise ValueError("its pixels are not whole numbers")
        return _as_it_looks(stored)


def _as_it_looks(stored: Any) -> np.ndarray:
    """(H, W, 3) uint8 of an opened picture."""
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(stored)
    if image.mode.startswith("I"):  # 16 bits of grey
        grey = (np.asarray(image, np.float32) / 257).clip(0, 255)
        return np.repeat(np.rint(grey).astype(np.uint8)[..., None], 3, axis=-1)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        opaque = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", opaque.size, _WHITE), opaque)
    return np.array(image.convert("RGB"))


def decoding_problem(file: str) -> str:
    """The file and why its pixels cannot be decoded, or an empty string."""
    try:
        decode_plain(file) if header(file).plain else decode(file)
    except tf.errors.OpError as error:
        return f"{file} ({error.message.splitlines()[0]})"
    except (OSError, SyntaxError, ValueError) as error:
        return f"{file} ({getattr(error, 'strerror', None) or error})"
    return ""
