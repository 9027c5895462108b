"""Pictures as they look, whatever their format: compared with what was drawn."""

import re

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("tensorflow")
from elastictrainer.data import pictures
from elastictrainer.data.image_folder import FolderSplit

RED, GREEN, WHITE = (220, 30, 30), (30, 200, 60), (255, 255, 255)


def drawn():
    """Red above green, twice as wide as high."""
    pixels = np.empty((16, 32, 3), np.uint8)
    pixels[:8], pixels[8:] = RED, GREEN
    return pixels


def read(tf, file, size=(16, 32)):
    """As training reads it."""
    return FolderSplit(np.array([str(file)]), np.array([0])).reader(size)(tf.constant(0)).numpy()


@pytest.mark.parametrize(
    "name", ["a.png", "a.jpg", "a.jpeg", "a.jfif", "a.bmp", "a.gif", "a.webp", "a.tif", "a.tiff"]
)
def test_every_format_gives_the_same_picture(tf, tmp_path, name):
    image = Image.fromarray(drawn())
    image.save(tmp_path / name, **({"quality": 95} if name[2] == "j" else {"lossless": True}))
    assert name[1:] in pictures.SUFFIXES and not pictures.header(tmp_path / name).problem
    for got in (read(tf, tmp_path / name), pictures.decode(str(tmp_path / name), (16, 32)).astype(float)):
        assert np.abs(got - drawn()).mean() <= (8 if name[2] == "j" else 2)  # JPEG blurs the edge


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA"])
def test_a_bmp_of_any_depth_is_read(tf, tmp_path, mode):
    """TensorFlow takes those of 24 bits alone."""
    Image.fromarray(drawn()).convert(mode).save(tmp_path / "a.bmp")
    expected = np.asarray(Image.fromarray(drawn()).convert(mode).convert("RGB"), float)
    assert not pictures.header(tmp_path / "a.bmp").problem
    assert np.abs(read(tf, tmp_path / "a.bmp") - expected).mean() <= 2


@pytest.mark.parametrize("suffix", ["jpg", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_as_its_camera_says(tf, tmp_path, suffix, orientation):
    stored = {  # what a camera held so writes, so that turning it as the tag says gives `drawn`
        1: None,
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }[orientation]
    image = Image.fromarray(drawn())
    image = image if stored is None else image.transpose(stored)
    exif = Image.Exif()
    exif[0x0112] = orientation
    image.save(tmp_path / f"a.{suffix}", exif=exif)
    assert np.abs(read(tf, tmp_path / f"a.{suffix}") - drawn()).mean() <= 8
    assert pictures.header(tmp_path / f"a.{suffix}").plain == (suffix in ("jpg", "png") and orientation == 1)


@pytest.mark.parametrize("name", ["a.png", "a.webp", "a.tif"])
def test_transparent_parts_are_white_whatever_colour_they_hide(tf, tmp_path, name):
    alpha = np.zeros((16, 32, 1), np.uint8)
    alpha[:8] = 255
    Image.fromarray(np.concatenate([drawn(), alpha], axis=-1)).save(
        tmp_path / name, lossless=True, exact=True
    )
    got = read(tf, tmp_path / name)
    assert (got[:8] == RED).all() and (got[8:] == WHITE).all()


def test_transparent_greys_and_palettes(tf, tmp_path):
    Image.new("LA", (32, 16), (0, 0)).save(tmp_path / "grey.png")
    Image.new("P", (32, 16), 0).save(tmp_path / "palette.png", transparency=0)
    Image.new("P", (32, 16), 0).save(tmp_path / "palette.gif", transparency=0)
    for name in ("grey.png", "palette.png", "palette.gif"):
        assert (read(tf, tmp_path / name) == 255).all(), name


def test_sixteen_bits_of_grey(tf, tmp_path):
    values = np.linspace(0, 65535, 16 * 32).reshape(16, 32)
    expected = np.repeat(np.rint(values / 257)[..., None], 3, axis=-1)
    for name in ("a.png", "a.tif"):
        Image.fromarray(values.astype(np.uint16)).save(tmp_path / name)
        assert np.abs(read(tf, tmp_path / name) - expected).max() <= 1, name


def test_black_and_white_and_the_colours_of_print(tf, tmp_path):
    Image.fromarray(drawn()[..., 0] > 100).save(tmp_path / "a.png")
    got = read(tf, tmp_path / "a.png")
    assert (got[:8] == 255).all() and (got[8:] == 0).all()
    Image.fromarray(drawn()).convert("CMYK").save(tmp_path / "a.jpg", quality=95)
    assert np.abs(read(tf, tmp_path / "a.jpg") - drawn()).mean() <= 8


def test_damage_behind_the_header_is_found_by_decoding(tf, tmp_path):
    for name, mode in (("plain.png", "RGB"), ("clear.png", "RGBA"), ("a.webp", "RGB"), ("a.tif", "RGB")):
        noise = np.random.default_rng(0).integers(0, 255, (64, 64, len(mode)), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / name)
        assert pictures.decoding_problem(str(tmp_path / name)) == ""
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[: len(content) // 2] if name != "a.tif" else content[:3000])
        said = pictures.header(tmp_path / name).problem or pictures.decoding_problem(str(tmp_path / name))
        assert said.startswith(f"{tmp_path / name} ("), name


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("size, scale", [((15, 10), 1), ((10, 10), 2), ((5, 5), 4), ((2, 2), 8), ((1, 1), 8)])
def test_a_jpeg_comes_at_the_smallest_scale_of_twice_the_size(tf, tmp_path, size, scale, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = (47, 43) if orientation == 1 else (43, 47)  # width and height
    noise = np.random.default_rng(0).integers(0, 255, (*stored[::-1], 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.jpg", exif=exif)
    got = pictures.decode(str(tmp_path / "a.jpg"), size)
    assert got.shape == (-(-43 // scale), -(-47 // scale), 3)
    if orientation == 1:
        content = tf.io.read_file(str(tmp_path / "a.jpg"))
        np.testing.assert_array_equal(pictures.decode_plain(content, size), got)


def test_a_photograph_of_108_megapixels_is_read_within_the_limit(tf, tmp_path):
    Image.new("RGB", (12_000, 9_000), RED).save(tmp_path / "a.jpg")
    assert pictures.problem(tmp_path / "a.jpg") == ""
    assert np.abs(read(tf, tmp_path / "a.jpg", (32, 32)) - RED).max() < 3


def test_the_limit_is_of_memory_and_can_be_raised(tmp_path):
    Image.new("RGB", (400, 300), RED).save(tmp_path / "a.png")
    Image.new("RGB", (400, 300), RED).save(tmp_path / "a.jpg")
    Image.new("RGB", (400, 300), RED).save(tmp_path / "progressive.jpg", progressive=True)
    assert re.search(r"a\.png .*--image-memory 1MB", pictures.problem(tmp_path / "a.png", 300_000))
    assert pictures.problem(tmp_path / "a.png", 10**6) == "" == pictures.problem(tmp_path / "a.jpg", 300_000)
    assert "progressive.jpg (takes 1 MB" in pictures.problem(tmp_path / "progressive.jpg", 300_000)
    content = (tmp_path / "a.png").read_bytes()
    with pytest.raises(ValueError, match="1 MB"):
        pictures.decode_content(content, (8, 8), 300_000)
