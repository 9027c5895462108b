"""A picture in a file, read as it looks: turned as its camera says, its transparent parts white."""

import functools
import io
import os
import stat
from typing import Any, Callable, List, NamedTuple, Optional, Tuple, Union

import numpy as np
import tensorflow as tf

from elastictrainer.errors import reason

SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
# Those that TensorFlow decodes, faster than Pillow, and as they look but for what `_is_plain` asks.
_TENSORFLOWS = ("JPEG", "MPO", "PNG", "GIF")
_FORMATS = (*_TENSORFLOWS, "BMP", "WEBP", "TIFF")  # TensorFlow reads a BMP of 24 bits only
_ORIENTATION = 0x0112  # the EXIF tag; 1 is upright
_WHITE = (255, 255, 255, 255)
_SCALED = ("JPEG", "MPO")  # formats that are decoded at a fraction of their scale where that is enough
_SCALES = (2, 4, 8)
_CHANNELS = 3
_TENSORFLOWS_LIMIT = 2**29  # bytes of a decoded picture
_ENDS = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "PNG": b"IEND\xaeB`\x82", "GIF": b";"}
_TAIL = 4096  # bytes in which the end is looked for; some cameras fill up with zeros
_SMALLEST = (1, 1)
MEMORY = 256 * 10**6  # bytes for decoding a picture, by default

Size = Tuple[int, int]  # height and width


class Header(NamedTuple):
    """The first bytes of a file, decoded.

    Attributes:
        problem: the file and what is wrong with it, or an empty string.
        format: Pillow's name of the format.
        plain: TensorFlow reads the picture as it looks.
        memory: bytes that decoding takes, at the smallest scale that the format allows.
    """

    problem: str
    format: str = ""
    plain: bool = False
    memory: int = 0


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
    from PIL import UnidentifiedImageError

    try:
        with _opened(file) as image:
            if image.format not in _FORMATS:
                return Header(f"{file} ({image.format} inside)")
            if image.mode == "F":
                return Header(f"{file} (its pixels are not whole numbers)")
            memory = _memory(image)
            plain = _is_plain(image) and (image.format in _SCALED or memory < _TENSORFLOWS_LIMIT)
            return Header("", image.format, plain, memory)
    except UnidentifiedImageError:
        return Header(f"{file} (not an image)")
    except (OSError, SyntaxError, ValueError) as error:
        return Header(f"{file} ({getattr(error, 'strerror', None) or error})")


def _opened(source: Any, formats: Optional[List[str]] = None) -> Any:
    """Return Pillow's image of a file or stream, its pixels not decoded."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # what counts is memory, see `problem`
    return Image.open(source, formats=formats)


def _memory(image: Any) -> int:
    """Return the bytes that decoding an opened picture takes; a JPEG's smallest scale is an eighth."""
    values = _CHANNELS * image.width * image.height
    if image.format not in _SCALED:
        return values
    # A progressive JPEG comes in passes over all coefficients, which are kept: 2 bytes each.
    coefficients = 2 * values if image.info.get("progressive") else 0
    return values // _SCALES[-1] ** 2 + coefficients


def problem(file: Union[str, os.PathLike], memory: int = MEMORY) -> str:
    """Return the file and why it cannot be used, by its header, last bytes and size; an empty string if it
    can.

    Only a file that does not end as its format does is decoded.

    Args:
        file: of a picture.
        memory: bytes that decoding may take.
    """
    found = header(file)
    if not found.problem and found.memory > memory:
        return f"{file} ({_too_large(found.memory)})"
    if not found.problem and not _ends_well(file, found.format):
        return decoding_problem(os.fspath(file))
    return found.problem


def _too_large(memory: int) -> str:
    megabytes = -(-memory // 10**6)
    return f"takes {megabytes} MB to decode; --image-memory {megabytes}MB allows it"


def _ends_well(file: Union[str, os.PathLike], format: str) -> bool:
    """Return whether a file has the end that its format asks for; True for formats that ask for none."""
    with open(file, "rb") as stream:
        if format == "WEBP":
            return int.from_bytes(stream.read(8)[4:], "little") + 8 <= os.fstat(stream.fileno()).st_size
        stream.seek(-min(_TAIL, os.fstat(stream.fileno()).st_size), os.SEEK_END)
        return stream.read().rstrip(b"\0").endswith(_ENDS.get(format, b""))


def _is_plain(image: Any) -> bool:
    """Return whether an opened picture is upright, opaque, and of 8 bits a channel in RGB or grey."""
    if (
        image.format not in _TENSORFLOWS
        or image.mode not in ("RGB", "L", "P")
        or "transparency" in image.info
    ):
        return False
    # Without "exif" here, getexif() would decode a PNG to look for one at its end.
    return "exif" not in image.info or image.getexif().get(_ORIENTATION, 1) == 1


def decode_plain(content: tf.Tensor, size: Size) -> tf.Tensor:
    """Decode a plain picture's file to (H, W, 3) uint8; the first frame of an animation.

    Args:
        content: of the file, () string.
        size: height and width that it will be resized to: a JPEG comes at the smallest scale that has twice
            as many. With fewer it would look sharper than one that is resized from full scale.
    """

    def jpeg(scale: int) -> Callable[[], tf.Tensor]:
        # TensorFlow's default is off by a grey level in red and blue; this is exact, as Pillow, and as fast.
        return lambda: tf.io.decode_jpeg(content, 3, scale, dct_method="INTEGER_ACCURATE")

    def other() -> tf.Tensor:
        return tf.io.decode_image(content, channels=3, expand_animations=False)

    def chosen() -> tf.Tensor:
        times = tf.reduce_min(tf.io.extract_jpeg_shape(content)[:2] // _ample(size))
        return tf.reduce_sum(tf.cast(times >= _SCALES, tf.int32))

    number = tf.cond(tf.io.is_jpeg(content), chosen, lambda: tf.constant(len(_SCALES) + 1))
    pixels = tf.switch_case(number, [*map(jpeg, (1, *_SCALES)), other])
    return tf.ensure_shape(pixels, (None, None, 3))


def _ample(size: Size) -> Size:
    return 2 * size[0], 2 * size[1]


def decode(file: Union[str, bytes], size: Size) -> np.ndarray:
    """Decode any picture to (H, W, 3) uint8; the first frame of an animation. `size` is as for
    `decode_plain`.

    Raises:
        OSError, SyntaxError, ValueError: it is damaged.
    """
    with _opened(os.fsdecode(file)) as stored:
        return _as_it_looks(stored, size)


def decode_content(content: bytes, size: Size, memory: int = MEMORY) -> np.ndarray:
    """Decode the content of a file of one of the formats that are read here, as `decode` does.

    Raises:
        OSError, SyntaxError, ValueError: it is damaged, or takes more than `memory` bytes.
    """
    formats = [name for name in _FORMATS if name != "MPO"]  # Pillow opens that as JPEG
    with _opened(io.BytesIO(content), formats) as stored:
        if stored.mode == "F":
            raise ValueError("its pixels are not whole numbers")
        if _memory(stored) > memory:
            raise ValueError(_too_large(_memory(stored)))
        return _as_it_looks(stored, size)


def _as_it_looks(stored: Any, size: Size) -> np.ndarray:
    """Return (H, W, 3) uint8 of an opened picture."""
    from PIL import Image, ImageOps

    if stored.format in _SCALED:
        lies = stored.getexif().get(_ORIENTATION, 1) > 4
        ample = _ample(size)
        stored.draft(None, ample if lies else ample[::-1])  # it takes width and height
    image = ImageOps.exif_transpose(stored)
    if image.mode.startswith("I"):  # 16 bits of grey
        grey = (np.asarray(image, np.float32) / 257).clip(0, 255)
        return np.repeat(np.rint(grey).astype(np.uint8)[..., None], 3, axis=-1)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        opaque = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", opaque.size, _WHITE), opaque)
    return np.array(image.convert("RGB"))


def decoding_problem(file: str) -> str:
    """Return the file and why its pixels cannot be decoded, or an empty string."""
    try:
        if header(file).plain:
            decode_plain(tf.io.read_file(file), _SMALLEST)
        else:
            decode(file, _SMALLEST)
    except tf.errors.OpError as error:
        return f"{file} ({reason(error)})"
    except (OSError, SyntaxError, ValueError) as error:
        return f"{file} ({getattr(error, 'strerror', None) or error})"
    return ""
