"""A picture in a file, read as it looks: turned as its camera says, its transparent parts white."""

import functools
import importlib.util
import io
import os
import stat
from typing import Any, BinaryIO, Optional, Tuple, Union

import numpy as np

HEIC = (".heic", ".heif")  # Apple's phones save it; pip install ".[heic]" brings what reads it
_READS_HEIC = importlib.util.find_spec("pi_heif") is not None
SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff") + HEIC * _READS_HEIC
_FORMATS = ("JPEG", "MPO", "PNG", "GIF", "BMP", "WEBP", "TIFF", "HEIF")
_ORIENTATION = 0x0112  # the EXIF tag; 1 is upright
_WHITE = (255, 255, 255, 255)
_SCALED = ("JPEG", "MPO")  # formats that are decoded at a fraction of their scale where that is enough
_ENDS = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "PNG": b"IEND\xaeB`\x82", "GIF": b";"}
_TAIL = 4096  # bytes in which the end is looked for; some cameras fill up with zeros
_MOST_PIXELS = 256 * 10**6  # of a picture: 768 MB where it is no JPEG, which is decoded at a smaller scale

Size = Tuple[int, int]  # height and width
File = Union[str, os.PathLike]


def decode(source: Union[File, bytes], size: Size) -> np.ndarray:
    """Decode a picture and resize it to `size`: (H, W, 3) uint8; the first frame of an animation.

    A JPEG is decoded at the smallest scale that has twice as many pixels in both directions: with fewer it
    would look sharper than one that is resized from full scale.

    Args:
        source: a file's name, or its content.
        size: height and width; proportions may change.

    Raises:
        OSError, SyntaxError, ValueError and others of Pillow's: it is damaged, or has too many pixels.
    """
    from PIL import Image, ImageOps

    with _open(source) as image:
        orientation = image.getexif().get(_ORIENTATION, 1)
        if image.format in _SCALED:
            height, width = 2 * size[0], 2 * size[1]
            image.draft(None, (height, width) if orientation > 4 else (width, height))  # > 4: it lies
        if orientation != 1:
            image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I"):  # 16 bits of grey
            grey = (np.asarray(image, np.float32) / 257).clip(0, 255)
            image = Image.fromarray(np.rint(grey).astype(np.uint8))
        elif image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
            opaque = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", opaque.size, _WHITE), opaque)
        if image.mode != "RGB":
            image = image.convert("RGB")
        return np.asarray(image.resize(size[::-1], Image.Resampling.BILINEAR))


def resize(pixels: np.ndarray, size: Size) -> np.ndarray:
    """Resize (h, w, 3) numbers in 0..255 by bilinear interpolation, antialiased where they shrink.

    Returns:
        (H, W, 3) uint8; pixels that have the size already are returned as they are.
    """
    from PIL import Image

    if pixels.shape[:2] == size:
        return pixels
    image = Image.fromarray(np.rint(pixels).astype(np.uint8))
    return np.asarray(image.resize(size[::-1], Image.Resampling.BILINEAR))


def _open(source: Union[File, bytes]) -> Any:
    """Return Pillow's image, its pixels not decoded; ValueError where it is none to be read here."""
    from PIL import Image

    _register_heic()
    Image.MAX_IMAGE_PIXELS = None  # Pillow's own limit is a warning, and lower
    image = Image.open(io.BytesIO(source) if isinstance(source, bytes) else source)
    pixels, problem = image.width * image.height, ""
    if image.format not in _FORMATS:
        problem = f"{image.format} inside"
    elif image.mode == "F":
        problem = "its pixels are not whole numbers"
    elif pixels > _MOST_PIXELS:
        problem = f"{pixels} pixels; at most {_MOST_PIXELS} are read"
    if problem:
        image.close()
        raise ValueError(problem)
    return image


@functools.lru_cache(maxsize=None)
def _register_heic() -> None:
    """Let Pillow read HEIC where the package for that is installed."""
    if _READS_HEIC:
        import pi_heif

        pi_heif.register_heif_opener()


def find_problem(file: File, thorough: bool = False) -> str:
    """Return the file and why it cannot be used; an empty string if it can.

    Args:
        file: of a picture.
        thorough: decode it. Without, its header and end are read, and only a file that does not end as its
            format does is decoded.
    """
    try:
        status = os.stat(file)
        if not stat.S_ISREG(status.st_mode):
            return f"{file} (not a regular file)"
        if status.st_size == 0:
            return f"{file} (empty)"
        with _open(file) as image, open(file, "rb") as stream:
            thorough = thorough or not _ends_well(stream, status.st_size, image.format)
        if thorough:
            decode(file, (1, 1))
    except Exception as error:  # Pillow raises many kinds
        return f"{file} ({cause(error)})"
    return ""


def cause(error: Exception) -> str:
    """Return why a picture could not be read, by the error that it raised."""
    from PIL import UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


def _ends_well(stream: BinaryIO, size: int, format: str) -> bool:
    """Return whether a file has the end that its format asks for; True for formats that ask for none."""
    if format == "WEBP":
        return int.from_bytes(stream.read(8)[4:], "little") + 8 <= size
    stream.seek(-min(_TAIL, size), os.SEEK_END)
    return stream.read().rstrip(b"\0").endswith(_ENDS.get(format, b""))


def describe_preprocessing(size: Tuple[Optional[int], Optional[int]], dtype: str = "float32") -> str:
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
