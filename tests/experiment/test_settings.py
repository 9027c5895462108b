"""Times as people write them."""

import pytest

from elastictrainer.errors import UsageError
from elastictrainer.experiment.settings import parse_seconds


def test_units():
    assert [parse_seconds(text) for text in ("90", "90s", "1.5 h", "2min")] == [90, 90, 5400, 120]
    for text in ("", "0", "soon", "-3m", "3 days"):
        with pytest.raises(UsageError, match="no time"):
            parse_seconds(text)
