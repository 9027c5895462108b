"""Flower's run configuration: what it may hold, and that a wrong value is named."""

import pytest

from elastictrainer.errors import UsageError
from elastictrainer.fleet.settings import FleetSettings


def test_a_configuration_gives_the_settings_of_training():
    settings = FleetSettings.from_config({"batch-size": 8, "learning-rate": 1, "image-size": 0})
    training = settings.for_training()
    assert (training.batch_size, training.learning_rate, training.image_size) == (8, 1.0, None)


@pytest.mark.parametrize(
    "config, said",
    [
        ({"rule": "fast"}, "unknown rule 'fast'.*elastic, full, drop"),
        ({"batchsize": 8}, "unknown setting 'batchsize'. Did you mean 'batch-size'"),
        ({"rounds": 0}, "rounds must be at least 1, not 0"),
        ({"rounds": "5"}, "rounds must be of type int, not '5'"),
        ({"least-rho": 1.5}, "least-rho must be above 0 and at most 1, not 1.5"),
        ({"seconds": float("nan")}, "seconds must be 0 or more, not nan"),
        ({"seed": -1}, "seed must be 0 or more, not -1"),
        ({"slow-downs": "1,0"}, "slow-downs must be numbers above 0"),
    ],
)
def test_a_wrong_value_is_named(config, said):
    with pytest.raises(UsageError, match=said):
        FleetSettings.from_config(config)


def test_a_simulated_client_beyond_the_list_is_not_slowed_down():
    settings = FleetSettings(slow_downs="1,4")
    assert [settings.slow_down(client) for client in range(3)] == [1, 4, 1]
