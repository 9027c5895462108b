"""Settings of a run that starts from an earlier run's model."""

import dataclasses

import pytest

from elastictrainer import UsageError
from elastictrainer.experiment.run_settings import inherit_settings
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.runs.run_folder import RunFolder

EARLIER = TrainSettings(model="demo", image_size=24, rotation=0.1, flip=False, rho=0.7, dataset="demo")


@pytest.fixture
def run(tmp_path):
    """A finished run, as far as its settings go."""
    run = RunFolder(tmp_path / "earlier")
    run.path.mkdir()
    run.write_config(dataclasses.asdict(EARLIER))
    run.model_path.touch()
    return run


def test_what_describes_the_model_comes_from_the_earlier_run_and_the_rest_does_not(run):
    new = TrainSettings(dataset="others", rho=0.4, init_from=str(run.path))
    expected = dataclasses.replace(new, model="demo", image_size=24, rotation=0.1, flip=False)
    assert inherit_settings(new, ["--dataset", "--rho", "--init-from"]) == expected


def test_options_that_the_earlier_run_decides_are_refused(run):
    settings = TrainSettings(init_from=str(run.path))
    with pytest.raises(UsageError, match=r"leave out --model, --image-size, --head-init\.$"):
        inherit_settings(settings, ["--head-init", "--image-size", "--rho", "--model"])


@pytest.mark.parametrize("lacking", ["model_path", "config_path"])
def test_a_run_that_is_not_finished_is_refused(run, lacking):
    getattr(run, lacking).unlink()
    with pytest.raises(UsageError, match="no finished run"):
        inherit_settings(TrainSettings(init_from=str(run.path)), [])
