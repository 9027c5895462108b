"""Pictures as they look, whatever their format: compared with what was drawn."""

import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from elastictrainer.data import pictures

RED, GREEN, WHITE = (220, 30, 30), (30, 200, 60), (255, 255, 255)


def drawn():
    """Red above green, twice as wide as high."""
    pixels = np.empty((16, 32, 3), np.uint8)
    pixels[:8], pixels[8:] = RED, GREEN
    return pixels


def read(file, size=(16, 32)):
    return pictures.decode(file, size).astype(float)


@pytest.mark.parametrize(
    "name", ["a.png", "a.jpg", "a.jpeg", "a.jfif", "a.bmp", "a.gif", "a.webp", "a.tif", "a.tiff"]
)
def test_every_format_gives_the_same_picture(tmp_path, name):
    image = Image.fromarray(drawn())
    image.save(tmp_path / name, **({"quality": 95} if name[2] == "j" else {"lossless": True}))
    assert name[1:] in pictures.SUFFIXES and not pictures.find_problem(tmp_path / name)
    for source in (tmp_path / name, (tmp_path / name).read_bytes()):
        assert np.abs(read(source) - drawn()).mean() <= (8 if name[2] == "j" else 2)  # JPEG blurs the edge


@pytest.mark.parametrize(
    "name, mode",
    [*(("a.bmp", mode) for mode in ("1", "L", "P", "RGBA")), ("a.png", "1"), ("print.jpg", "CMYK")],
)
def test_colours_of_any_depth_and_of_print_are_read(tmp_path, name, mode):
    image = Image.fromarray(drawn()).convert(mode)
    image.save(tmp_path / name)
    assert not pictures.find_problem(tmp_path / name)
    expected = np.asarray(image.convert("RGB"), float)
    assert np.abs(read(tmp_path / name) - expected).mean() <= (8 if mode == "CMYK" else 2)


@pytest.mark.parametrize("suffix", ["jpg", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_as_its_camera_says(tmp_path, suffix, orientation):
    image, exif, file = Image.fromarray(drawn()), Image.Exif(), tmp_path / f"a.{suffix}"
    exif[0x0112] = orientation
    image.save(file, exif=exif)
    with Image.open(file) as stored:
        upright = np.asarray(ImageOps.exif_transpose(stored).convert("RGB"), float)
    assert upright.shape[0] == (32 if orientation > 4 else 16)
    assert np.abs(read(file, upright.shape[:2]) - upright).mean() <= 1


def tag(number, kind, count, value):
    """An EXIF entry; `value` in four bytes."""
    return struct.pack("<HHI", number, kind, count) + value


TURNED = tag(0x112, 3, 1, b"\6\0\0\0")
MALFORMED = {
    "resolution is text": [TURNED, tag(0x11A, 2, 3, b"72\0\0")],
    "unit is negative": [TURNED, tag(0x128, 9, 1, struct.pack("<i", -1))],
    "orientation is text": [tag(0x112, 2, 2, b"6\0\0\0")],
    "orientation is out of range": [tag(0x112, 3, 1, b"\x63\0\0\0")],
    "orientations": [tag(0x112, 3, 2, b"\6\0\6\0")],
    "points nowhere": [TURNED, tag(0x8769, 4, 1, b"\xff\xff\0\0")],
    "unknown kind": [TURNED, tag(0x9000, 99, 9, b"\xff\xff\xff\xff")],
    "cut": [TURNED[:6]],
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_picture_with_malformed_tags_is_read(tmp_path, what):
    entries, turned = MALFORMED[what], np.rot90(drawn(), -1)
    exif = b"Exif\0\0II*\0" + struct.pack("<IH", 8, len(entries)) + b"".join(entries) + bytes(4)
    Image.fromarray(drawn()).save(tmp_path / "a.jpg", quality=95)
    content = (tmp_path / "a.jpg").read_bytes()
    segment = b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif
    (tmp_path / "a.jpg").write_bytes(content[:2] + segment + content[2:])
    expected = drawn() if what in ("orientation is text", "orientation is out of range", "cut") else turned
    assert np.abs(read(tmp_path / "a.jpg", expected.shape[:2]) - expected).mean() <= 8
    assert not pictures.find_problem(tmp_path / "a.jpg", thorough=True)


def test_all_files_in_folders_are_found_through_links(tmp_path):
    camera, album = tmp_path / "camera", tmp_path / "album"
    for file in (camera / "1.jpg", camera / ".hidden" / "2.jpg", album / "a.png", album / "note.txt"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (album / "linked").symlink_to(camera)
    (camera / "back").symlink_to(album)
    (camera / "here").symlink_to(camera)
    found = [str(file.relative_to(album)) for file in pictures.files_inside(album)]
    assert found == ["a.png", "linked/1.jpg", "note.txt"]


@pytest.mark.parametrize("name", ["a.png", "a.webp", "a.tif"])
def test_transparent_parts_are_white_whatever_colour_they_hide(tmp_path, name):
    alpha = np.zeros((16, 32, 1), np.uint8)
    alpha[:8] = 255
    Image.fromarray(np.concatenate([drawn(), alpha], axis=-1)).save(
        tmp_path / name, lossless=True, exact=True
    )
    got = read(tmp_path / name)
    assert (got[:8] == RED).all() and (got[8:] == WHITE).all()


def test_transparent_greys_and_palettes(tmp_path):
    Image.new("LA", (32, 16), (0, 0)).save(tmp_path / "grey.png")
    Image.new("P", (32, 16), 0).save(tmp_path / "palette.png", transparency=0)
    Image.new("P", (32, 16), 0).save(tmp_path / "palette.gif", transparency=0)
    for name in ("grey.png", "palette.png", "palette.gif"):
        assert (read(tmp_path / name) == 255).all(), name


def test_sixteen_bits_of_grey(tmp_path):
    values = np.linspace(0, 65535, 16 * 32).reshape(16, 32)
    expected = np.repeat(np.rint(values / 257)[..., None], 3, axis=-1)
    for name in ("a.png", "a.tif"):
        Image.fromarray(values.astype(np.uint16)).save(tmp_path / name)
        assert np.abs(read(tmp_path / name) - expected).max() <= 1, name


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("size, scale", [((15, 10), 1), ((10, 10), 2), ((5, 5), 4), ((2, 2), 8), ((1, 1), 8)])
def test_a_jpeg_is_decoded_at_the_smallest_scale_of_twice_the_size(
    tmp_path, monkeypatch, size, scale, orientation
):
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = (47, 43) if orientation == 1 else (43, 47)  # width and height
    noise = np.random.default_rng(0).integers(0, 255, (*stored[::-1], 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.jpg", exif=exif)
    resized_from = []
    resize = Image.Image.resize
    monkeypatch.setattr(
        Image.Image, "resize", lambda im, *a: (resized_from.append(im.size), resize(im, *a))[1]
    )
    assert read(tmp_path / "a.jpg", size).shape == (*size, 3)
    assert resized_from == [(-(-47 // scale), -(-43 // scale))]


def test_a_photograph_of_200_megapixels_is_read(tmp_path):
    Image.new("RGB", (16_400, 12_300), RED).save(tmp_path / "a.jpg")
    assert pictures.find_problem(tmp_path / "a.jpg") == ""
    assert np.abs(read(tmp_path / "a.jpg", (32, 32)) - RED).max() < 3


def test_stripes_finer_than_a_pixel_become_grey_and_pixels_of_the_right_size_are_not_touched():
    stripes = np.zeros((100, 200, 3), np.uint8)
    stripes[:, ::2] = 255
    got = pictures.resize(stripes, (50, 51)).astype(float)
    assert np.abs(got - 127.5).max() < 30 and np.abs(got - 127.5).mean() < 3
    pixels = np.random.default_rng(0).uniform(0, 255, (9, 7, 3))
    np.testing.assert_array_equal(pictures.resize(pixels, (9, 7)), pixels)


def photograph(height, width):
    """Detail of every size, (height, width, 3) uint8."""
    random = np.random.default_rng(0)
    pixels = np.zeros((height, width, 3))
    for grain in (64, 16, 4, 1):
        noise = random.normal(0, 4 + grain / 2, (-(-height // grain), -(-width // grain), 3))
        pixels += noise.repeat(grain, 0).repeat(grain, 1)[:height, :width]
    return (128 + pixels).clip(0, 255).astype(np.uint8)


def by_pillow(file, height, width):
    """The text of `preprocessing` in Pillow, without what it leaves open."""
    with Image.open(file) as stored:
        image = ImageOps.exif_transpose(stored)
        if image.mode == "RGBA":
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        image = image.convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
        return np.asarray(image, np.float32)


@pytest.mark.parametrize(
    "name, shape, orientation, tolerance",
    [
        ("nearly.jpg", (98, 121), 1, 0.5),
        ("twice.jpg", (250, 260), 1, 0.5),
        ("phone.jpg", (808, 1008), 1, 1.0),
        ("turned.jpg", (2000, 1600), 6, 1.0),
        ("mirrored.jpg", (803, 1001), 4, 2.5),  # no multiple of its scale: stretched by a part of a pixel
        ("wide.jpg", (120, 1300), 1, 0.5),
        ("large.png", (500, 400), 1, 0.5),
        ("clear.png", (500, 400), 1, 0.5),
        ("small.webp", (50, 60), 1, 0.5),
    ],
)
def test_the_text_followed_with_pillow_gives_the_same_picture(tmp_path, name, shape, orientation, tolerance):
    image = Image.fromarray(photograph(*shape))
    if name == "clear.png":
        image.putalpha(Image.fromarray(photograph(*shape)[..., 0]))
    exif = Image.Exif()
    exif[0x0112] = orientation
    image.save(tmp_path / name, exif=exif, **({"lossless": True} if name.endswith("webp") else {}))
    size = (96, 120)
    text = pictures.describe_preprocessing(size)
    assert "96 pixels high and 120 wide" in text and "resize((120, 96), BILINEAR)" in text
    assert "to the size trained on, by bilinear" in pictures.describe_preprocessing((None, None))
    assert np.abs(read(tmp_path / name, size) - by_pillow(tmp_path / name, *size)).mean() < tolerance


@pytest.mark.realdata
@pytest.mark.parametrize("size, below", [((56, 56), 1.0), ((28, 28), 1.5), ((14, 14), 2.0)])
def test_a_photograph_at_reduced_scale_looks_the_same(cub100, tmp_path, size, below):
    differences = []
    for file in sorted(cub100.glob("train/*/*"))[::300]:
        with Image.open(file) as stored:
            stored.convert("RGB").crop((0, 0, 224, 224)).save(tmp_path / "a.jpg", quality=92)
        difference = read(tmp_path / "a.jpg", size) - by_pillow(tmp_path / "a.jpg", *size)
        differences.append(np.abs(difference).mean())
    assert np.mean(differences) < below


@pytest.mark.skipif(not pictures._READS_HEIC, reason='HEIC is not read here: pip install ".[heic]"')
def test_heic_is_read_where_its_package_is_installed(monkeypatch):
    """A picture whose red grows to the right, green to the bottom, blue to the left."""
    file = Path(__file__).parents[1] / "files" / "pictures" / "gradient.heic"
    y, x = np.mgrid[0:48, 0:64]
    expected = np.stack([4 * x, 5 * y, 255 - 4 * x], axis=-1)
    assert abs(pictures.decode(file, (48, 64)) - expected).max() < 12
    assert not pictures.find_problem(file, thorough=True) and file.suffix in pictures.SUFFIXES


def test_heic_is_said_to_be_no_image_where_nothing_reads_it(tmp_path):
    (tmp_path / "a.heic").write_bytes(b"not an image")
    assert "not an image" in pictures.find_problem(tmp_path / "a.heic")
