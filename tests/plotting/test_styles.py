"""A scheme looks the same in every picture, and unlike the others, to colour-blind readers too."""

import itertools

import matplotlib.colors
import numpy as np
import pytest

from elastictrainer.plotting import styles, training
from elastictrainer.plotting.replicates import replicates
from elastictrainer.selection.schemes import SCHEMES
from run_builders import make_run

# Of linear RGB; Machado, Oliveira and Fernandes 2009, severity 1.
VISION = {
    "normal": np.eye(3),
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


def lab(colour, vision):
    """The colour in CIELAB as seen with `vision`: distances are differences seen, and 2 the least."""
    srgb = np.array(matplotlib.colors.to_rgb(colour))
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(VISION[vision]) @ linear, 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = np.cbrt(np.array(to_xyz) @ seen / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_every_scheme_has_a_look_of_its_own():
    assert set(styles.SCHEMES) == set(SCHEMES)
    assert len({marker for _, marker in styles.SCHEMES.values()}) == len(SCHEMES)


@pytest.mark.parametrize("vision", VISION)
def test_readers_of_every_vision_can_tell_the_schemes_apart(vision):
    colours = [colour for colour, _ in styles.SCHEMES.values()]
    for one, other in itertools.combinations([*colours, *styles.OWN_COLOURS], 2):
        assert np.linalg.norm(lab(one, vision) - lab(other, vision)) > 15, (one, other)


def test_looks_do_not_depend_on_the_order_of_runs_or_on_the_other_runs(tmp_path):
    names = ["full", "elastic", "freeze-below", "mine.schemes:Odd", "bn-bias"]
    runs = [make_run(tmp_path / str(k), name) for k, name in enumerate(names)]
    forwards, backwards = styles.styles(replicates(runs)), styles.styles(replicates(runs[::-1]))
    assert list(forwards) == list(backwards)[::-1] and forwards == backwards
    for run in runs:
        (alone,) = styles.styles(replicates([run])).values()
        assert alone in forwards.values()
    bars = training.bars(runs[::-1]).figure.axes[0].patches
    assert matplotlib.colors.to_hex(bars[-1].get_facecolor()) == styles.SCHEMES["full"][0].lower()


def test_runs_of_one_scheme_are_lines_of_their_own(tmp_path):
    runs = []
    for rho in (0.7, 0.35, 0.5):
        runs.append(make_run(tmp_path / str(rho)))
        runs[-1].write_config({**runs[-1].config(), "rho": rho})
    looks = styles.styles(replicates(runs))
    assert looks == styles.styles(replicates(runs[::-1]))
    assert {(look.colour, look.marker) for look in looks.values()} == {styles.SCHEMES["elastic"]}
    assert len({look.line for look in looks.values()}) == 3
