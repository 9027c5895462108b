"""Pictures in files: which of a folder's there are, and each read as it looks.

A picture is turned as its camera says, and its transparent parts are white.
"""

import functools
import importlib.util
import io
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Dict, Iterator, Optional, Sequence, Tuple, Union

import numpy as np
from PIL import Image, UnidentifiedImageError

HEIC = (".heic", ".heif")  # Apple's phones save it; pip install ".[heic]" brings what reads it
_READS_HEIC = importlib.util.find_spec("pi_heif") is not None
SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff") + HEIC * _READS_HEIC
_FORMATS = ("JPEG", "MPO", "PNG", "GIF", "BMP", "WEBP", "TIFF", "HEIF")
_ORIENTATION = 0x0112  # the EXIF tag; 1 is upright
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_WHITE = (255, 255, 255, 255)
_SCALED = ("JPEG", "MPO")  # formats that are decoded at a fraction of their scale where that is enough
# How a whole file of a format ends. One of a format that is not here, nor WebP, is decoded to be checked.
_ENDS = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "PNG": b"IEND\xaeB`\x82"}
_TAIL = 4096  # bytes in which the end is looked for; some cameras fill up with zeros
_MOST_PIXELS = 256 * 10**6  # of a picture: 768 MB where it is no JPEG, which is decoded at a smaller scale

# Hidden names besides those that begin with a dot: of macOS' archives, of network drives, of Windows.
_HIDDEN = ("__MACOSX", "@eaDir", "Thumbs.db", "desktop.ini")

Size = Tuple[int, int]  # height and width
File = Union[str, os.PathLike]


def is_hidden(name: str) -> bool:
    """Return whether a file or folder of that name is a system's, not a user's."""
    return name.startswith(".") or name in _HIDDEN


def has_picture_name(file: Path) -> bool:
    """Return whether a file counts as a picture by its name."""
    return file.suffix.lower() in SUFFIXES and not is_hidden(file.name)


def files_inside(folder: Path, around: Tuple[str, ...] = ()) -> Iterator[Path]:
    """Return the files in a folder and its folders, sorted, none hidden; no link to those `around` it."""
    place = os.path.realpath(folder)
    for path in sorted(folder.iterdir()) if place not in around else ():
        if path.is_dir() and not is_hidden(path.name):
            yield from files_inside(path, (*around, place))
        elif not is_hidden(path.name):
            yield path


def decode(source: Union[File, bytes], size: Size) -> np.ndarray:
    """Decode a picture, a file or its content, and resize it to `size`: (H, W, 3) uint8.

    Of an animation it is the first frame. A JPEG is decoded at the smallest scale that has twice as many
    pixels in both directions: with fewer it would look sharper than one that is resized from full scale.
    Pillow's OSError, SyntaxError, ValueError and others where it is damaged, or has too many pixels.
    """
    with _open(source) as image:
        if image.format not in _SCALED:
            image.load()  # damage is an error here; `_orientation` takes it for a malformed tag
        orientation = _orientation(image)
        if image.format in _SCALED:
            height, width = 2 * size[0], 2 * size[1]
            image.draft(None, (height, width) if orientation > 4 else (width, height))  # > 4: it lies
        opaque: Image.Image = image.transpose(_TURNS[orientation]) if orientation in _TURNS else image
        if image.mode.startswith("I"):  # 16 bits of grey
            grey = (np.asarray(opaque, np.float32) / 257).clip(0, 255)
            opaque = Image.fromarray(np.rint(grey).astype(np.uint8))
        elif image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
            clear = opaque.convert("RGBA")
            opaque = Image.alpha_composite(Image.new("RGBA", clear.size, _WHITE), clear)
        return np.asarray(opaque.convert("RGB").resize(size[::-1], Image.Resampling.BILINEAR))


def _orientation(image: Image.Image) -> int:
    """Return how the camera was held, 1 to 8; 1 where its tags say nothing that can be understood."""
    try:
        value = image.getexif().get(_ORIENTATION)
    except Exception:  # Pillow raises many kinds for tags that are malformed; the pixels can be whole
        return 1
    return value if value in _TURNS else 1


def resize(pixels: np.ndarray, size: Size) -> np.ndarray:
    """Resize (h, w, 3) numbers in 0..255 as `decode` does, to uint8; as they are if they have the size."""
    if pixels.shape[:2] == size:
        return pixels
    image = Image.fromarray(np.rint(pixels).astype(np.uint8))
    return np.asarray(image.resize(size[::-1], Image.Resampling.BILINEAR))


def _open(source: Union[File, bytes]) -> Image.Image:
    """Return Pillow's image, its pixels not decoded; ValueError where it is none to be read here."""
    _register_heic()
    Image.MAX_IMAGE_PIXELS = None  # Pillow's own limit is a warning, and lower
    image = Image.open(io.BytesIO(source) if isinstance(source, bytes) else source)
    pixels, problem = image.width * image.height, ""
    if image.format not in _FORMATS:
        problem = f"{image.format} inside"
    elif image.mode == "F":
        problem = "its pixels are not whole numbers"
    elif image.mode == "I" and image.format == "TIFF":  # what is white in it nobody knows
        problem = "its pixels have 32 bits or a sign; 8 bits, or 16 without a sign, are read"
    elif pixels > _MOST_PIXELS:
        problem = f"{pixels} pixels; at most {_MOST_PIXELS} are read"
    if problem:
        image.close()
        raise ValueError(problem)
    return image


@functools.lru_cache(maxsize=None)
def _register_heic() -> None:
    if _READS_HEIC:
        import pi_heif

        pi_heif.register_heif_opener()


def find_problem(file: File, thorough: bool = False) -> str:
    """Return the picture's file and why it cannot be used; an empty string if it can.

    `thorough` decodes it. Without, its header and end are read, and it is decoded where it does not end as
    its format does, or the format has no end that tells a whole file.
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


def find_problems(files: Sequence[File], thorough: bool = False) -> Dict[str, str]:
    """Return by their names the files that cannot be used, and why; see `find_problem`."""
    with ThreadPoolExecutor(os.cpu_count() if thorough else 1) as threads:
        found = threads.map(lambda file: find_problem(file, thorough), files)
        return {str(file): problem for file, problem in zip(files, found) if problem}


def cause(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


def _ends_well(stream: BinaryIO, size: int, format: Optional[str]) -> bool:
    """Return whether a file has the end that its format asks for; False for formats that ask for none."""
    if format == "WEBP":
        return int.from_bytes(stream.read(8)[4:], "little") + 8 <= size
    if format not in _ENDS:
        return False
    stream.seek(-min(_TAIL, size), os.SEEK_END)
    return stream.read().rstrip(b"\0").endswith(_ENDS[format])


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
