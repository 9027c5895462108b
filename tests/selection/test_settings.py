"""How a run is to select: what is refused. No TensorFlow."""

import pytest

from elastictrainer import UsageError
from elastictrainer.selection.settings import SelectionSettings, check_tensors
from simulation import chain


@pytest.mark.parametrize(
    "values, message",
    [
        ({"rho": 0.0}, "rho must be above 0 and at most 1, not 0"),
        ({"rho": 1.1}, "not 1.1"),
        ({"interval": 0}, "interval must be at least 1, not 0"),
        ({"importance_batches": 0}, "importance_batches must be at least 1"),
        ({"solver": "dq"}, "dp, milp"),
        ({"reprofile": "often"}, "auto, always, never"),
        ({"reprofile": "always", "feedback": False}, "--deterministic"),
    ],
)
def test_a_value_out_of_range_is_refused(values, message):
    with pytest.raises(UsageError, match=message):
        SelectionSettings(**values)


def test_a_fitting_profile_is_returned():
    timings = chain(10)
    assert SelectionSettings(rho=timings.rho_min).check_profile(timings, 10) is timings


def test_a_profile_that_does_not_fit_is_refused():
    timings = chain(10)
    with pytest.raises(UsageError, match="needs the model's profile"):
        SelectionSettings().check_profile(None, 10)
    with pytest.raises(UsageError, match="the profile has 10 tensors, the model 12"):
        SelectionSettings().check_profile(timings, 12)
    with pytest.raises(UsageError, match="the profile has 10 tensors, the model 12"):
        check_tensors(timings, 12)
    with pytest.raises(UsageError, match=rf"Valid: {timings.rho_min:.3f} to 1"):
        SelectionSettings(rho=timings.rho_min - 0.01).check_profile(timings, 10)
