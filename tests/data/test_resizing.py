"""Pictures at the network's size: antialiased, and as a program with Pillow alone would prepare them."""

import numpy as np
import pytest
from PIL import Image, ImageOps

pytest.importorskip("tensorflow")
from elastictrainer.data import pictures
from elastictrainer.data.image_folder import FolderSplit
from elastictrainer.data.resizing import preprocessing, resized


def test_an_image_of_any_size_has_a_fixed_shape_in_a_graph(tf):
    @tf.function(input_signature=[tf.TensorSpec((None, None, 3), tf.uint8)])
    def prepared(image):
        result = resized(image, (3, 5))
        assert result.shape == (3, 5, 3)
        return result

    np.testing.assert_allclose(prepared(tf.fill((9, 7, 3), tf.constant(255, tf.uint8))), 255, rtol=1e-6)


def test_stripes_finer_than_a_pixel_become_grey(tf):
    stripes = np.zeros((100, 200, 3), np.uint8)
    stripes[:, ::2] = 255
    got = resized(tf.constant(stripes), (50, 51)).numpy()
    assert np.abs(got - 127.5).max() < 30 and np.abs(got - 127.5).mean() < 3


def test_a_picture_of_the_right_size_is_not_touched(tf):
    pixels = np.random.default_rng(0).integers(0, 255, (9, 7, 3), np.uint8)
    np.testing.assert_array_equal(resized(tf.constant(pixels), (9, 7)), pixels.astype(np.float32))


@pytest.mark.parametrize("size", [(200, 300), (206, 303), (216, 290), (100, 150), (240, 100), (400, 600)])
def test_any_size_is_as_pillow_makes_it(tf, size):
    pixels = photograph(200, 300)
    expected = np.asarray(Image.fromarray(pixels).resize(size[::-1], Image.Resampling.BILINEAR), float)
    assert np.abs(resized(tf.constant(pixels), size).numpy() - expected).mean() < 0.5


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
def test_the_text_followed_with_pillow_gives_the_same_picture(
    tf, tmp_path, name, shape, orientation, tolerance
):
    image = Image.fromarray(photograph(*shape))
    if name == "clear.png":
        image.putalpha(Image.fromarray(photograph(*shape)[..., 0]))
    exif = Image.Exif()
    exif[0x0112] = orientation
    image.save(tmp_path / name, exif=exif, **({"lossless": True} if name.endswith("webp") else {}))
    size = (96, 120)
    text = preprocessing(size)
    assert "resize((120, 96), BILINEAR)" in text
    got = FolderSplit(np.array([str(tmp_path / name)]), np.array([0])).reader(size)(tf.constant(0))
    assert np.abs(got.numpy() - by_pillow(tmp_path / name, *size)).mean() < tolerance


def test_a_network_that_takes_any_size_is_described_without_one():
    assert "size trained on" in preprocessing((None, None))


@pytest.mark.realdata
def test_photographs_are_as_pillow_makes_them(tf, cub100):
    files = sorted(cub100.glob("train/*/*"))[::300]
    read = FolderSplit(np.array(list(map(str, files))), np.zeros(len(files), int)).reader((224, 224))
    for number, file in enumerate(files):
        assert np.abs(read(tf.constant(number)).numpy() - by_pillow(file, 224, 224)).mean() < 0.5


@pytest.mark.realdata
@pytest.mark.parametrize("size, below", [((56, 56), 1.0), ((28, 28), 1.5), ((14, 14), 2.0)])
def test_a_photograph_at_reduced_scale_looks_the_same(tf, cub100, tmp_path, size, below):
    differences = []
    for file in sorted(cub100.glob("train/*/*"))[::300]:
        with Image.open(file) as stored:
            stored.convert("RGB").crop((0, 0, 224, 224)).save(tmp_path / "a.jpg", quality=92)
        pixels = pictures.decode_plain(tf.io.read_file(str(tmp_path / "a.jpg")), size)
        assert pixels.shape[0] == 2 * size[0]
        differences.append(np.abs(resized(pixels, size) - by_pillow(tmp_path / "a.jpg", *size)).mean())
    assert np.mean(differences) < below
