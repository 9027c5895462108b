"""Settings of selections that are refused. No TensorFlow."""

import pytest

from elastictrainer import Profile, UsageError
from elastictrainer.selection.settings import SelectionSettings, check_tensors


@pytest.mark.parametrize(
    "values, message",
    [
        ({"rho": 0.0}, "rho must be above 0 and at most 1, not 0"),
        ({"rho": 1.1}, "not 1.1"),
        ({"interval": 0}, "interval must be at least 1, not 0"),
        ({"importance_batches": 0}, "importance_batches must be at least 1"),
    ],
)
def test_a_value_out_of_range_is_refused(values, message):
    with pytest.raises(UsageError, match=message):
        SelectionSettings(**values)


def test_a_profile_of_another_number_of_tensors_is_refused():
    profile = Profile.from_chain(list("abc"), 1.0, [1.0] * 3, [1.0] * 3)
    check_tensors(profile, 3)
    with pytest.raises(UsageError, match="profile has 3 .*model 12"):
        check_tensors(profile, 12)
