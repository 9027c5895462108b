"""Times as people write them."""

import datetime

import pytest

from elastictrainer.errors import UsageError
from elastictrainer.experiment.quantities import parse_seconds, seconds_until


def test_units():
    assert [parse_seconds(text) for text in ("90", "90s", "1.5 h", "2min")] == [90, 90, 5400, 120]
    for text in ("", "0", "soon", "-3m", "3 days"):
        with pytest.raises(UsageError, match="no time"):
            parse_seconds(text)


def test_until_a_time_of_day_today_or_tomorrow():
    now = datetime.datetime(2026, 3, 1, 17, 30)
    assert seconds_until("18:00", now) == 1800
    assert seconds_until("17:29", now) == 86400 - 60
    assert seconds_until("17:30", now) == 86400
    for text in ("24:00", "18", "6pm", "18:75"):
        with pytest.raises(UsageError, match="time of day"):
            seconds_until(text, now)
