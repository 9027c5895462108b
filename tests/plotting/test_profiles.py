"""Pictures of a profile show its times, and its predictions."""

import numpy as np
import pytest

from elastictrainer import UsageError
from elastictrainer.plotting import profiles
from run_builders import NAMES, make_profile


def test_prediction_draws_ratios_and_needs_a_validation():
    drawn = profiles.prediction([make_profile()])
    points = drawn.figure.axes[0].get_lines()[0]
    np.testing.assert_allclose(points.get_ydata(), np.array([12, 18]) / make_profile().full_ms)
    with pytest.raises(UsageError, match="--validate 12"):
        profiles.prediction([make_profile(validated=False)])


def test_timings_add_up_to_the_step():
    rows = profiles.timings(make_profile()).rows
    assert [row["tensor"] for row in rows] == NAMES[::-1]
    assert sum(row["t_dy_ms"] + row["t_dw_ms"] for row in rows) == pytest.approx(18)
