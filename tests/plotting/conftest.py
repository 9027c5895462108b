import pytest

from run_builders import make_run


@pytest.fixture(autouse=True)
def close_figures():
    """Matplotlib keeps every figure until it is closed, and warns of the twenty-first."""
    yield
    from matplotlib import pyplot

    pyplot.close("all")


@pytest.fixture
def runs(tmp_path):
    """A run of full training, and two of elastic training that stand for two seeds."""
    return [
        make_run(tmp_path / "full", "full", 200.0, 0.84),
        make_run(tmp_path / "a"),
        make_run(tmp_path / "b", seconds=110.0, accuracy=0.82),
    ]
