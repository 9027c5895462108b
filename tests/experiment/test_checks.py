"""Settings that name nothing, exclude each other, or are not for this model or run."""

import argparse
import dataclasses

import pytest

from elastictrainer import UsageError
from elastictrainer.experiment.checks import check, inherit, refuse_inapplicable
from elastictrainer.experiment.options import given, parse
from elastictrainer.experiment.settings import ProfileSettings, TrainSettings
from elastictrainer.runs.run_folder import RunFolder
from log_lines import listen


def said_of(*arguments):
    """Return the lines about a command line."""
    settings, parsed = parse(TrainSettings, arguments, argparse.ArgumentParser())
    said = listen()
    refuse_inapplicable(settings, given(TrainSettings, parsed))
    return said


@pytest.mark.parametrize("model", ["own.keras", "nets:mine"])
@pytest.mark.parametrize(
    "arguments, named",
    [
        (["--weights", "imagenet"], "--weights: not for"),  # at its default, but asked for
        (["--head-init", "glorot"], "--head-init: not for"),
        (["--rotation", "0"], "--rotation: not for"),
        (["--no-flip", "--augment", "none"], "--augment, --flip: not for"),
    ],
)
def test_it_is_refused_for_a_model_of_the_users(model, arguments, named):
    with pytest.raises(UsageError) as error:
        said_of("--model", model, *arguments)
    assert named in str(error.value) and model in str(error.value)
    assert said_of("--model", "vgg16", *arguments) == []


def test_the_head_of_any_model_can_be_solved_or_kept():
    for value in ("solve", "keep"):
        assert said_of("--model", "own.keras", "--head-init", value) == []


def test_nothing_is_said_where_nothing_is_asked_for():
    assert said_of("--model", "own.keras", "--image-size", "64") == []


def test_a_file_that_names_the_model_is_held_to_it(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("model: nets:mine\nrotation: 0.1\n")
    with pytest.raises(UsageError, match="--rotation: not for nets:mine"):
        said_of("--config", str(file))
    file.write_text("model: nets:mine\nweights: imagenet\nrotation: null\n")  # as a run folder has it
    assert said_of("--config", str(file)) == []


def test_a_file_for_another_model_serves_and_it_is_said_what_is_left_out():
    (line,) = said_of("--config", "configs/paper.yaml", "--model", "nets:mine")
    assert "head_init, augment " in line and "nets:mine" in line


@pytest.mark.parametrize(
    "allowed",
    [
        {"scheme": "head-alone"},
        {"optimizer": "adam"},
        {"memory": "1GB"},
        {"memory": "auto", "scheme": "freeze-below"},
        {"memory": "1GB", "scheme": "my.module:Mine"},
        {"time": "90s"},
        {"deterministic": True},
        {"callback": "a.b:C,d:e", "export": "tflite,keras"},
    ],
)
def test_what_goes_together(allowed):
    check(TrainSettings(dataset="demo", **allowed))


@pytest.mark.parametrize(
    "excluded, message",
    [
        ({"scheme": "head-alone", "head_init": "zeros"}, "--head-init zeros leaves it"),
        ({"optimizer": "adam", "weight_decay": 0.01}, "adam has no --weight-decay .*adamw"),
        ({"memory": "1GB", "scheme": "full"}, "--memory 1GB"),
        ({"memory": "1GB", "deterministic": True}, "--memory .* --deterministic"),
        ({"time": "90s", "deterministic": True}, "--time .*--deterministic"),
        ({"model": "mine.keras", "mixed_precision": True}, "--mixed-precision: mine.keras"),
        ({"dataset": "nowhere"}, "unknown data set 'nowhere'"),
        ({"callback": "a.b:"}, "--callback '.*' must be package.module:Class"),
        ({"callback": "a:B,"}, "--callback '.*' must be package.module:Class"),
    ],
)
def test_what_does_not(excluded, message):
    with pytest.raises(UsageError, match=message):
        check(TrainSettings(**{"dataset": "demo", **excluded}))


def test_a_profile_of_so_many_classes_needs_no_data():
    check(ProfileSettings(dataset="nowhere", classes=7))
    with pytest.raises(UsageError, match="nowhere"):
        check(ProfileSettings(dataset="nowhere"))


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
    assert inherit(new, ["--dataset", "--rho", "--init-from"]) == expected


def test_options_that_the_earlier_run_decides_are_refused(run):
    settings = TrainSettings(init_from=str(run.path))
    with pytest.raises(UsageError, match=r"leave out --model, --image-size, --head-init\.$"):
        inherit(settings, ["--head-init", "--image-size", "--rho", "--model"])


@pytest.mark.parametrize("lacking", ["model_path", "config_path"])
def test_a_run_that_is_not_finished_is_refused(run, lacking):
    getattr(run, lacking).unlink()
    with pytest.raises(UsageError, match="no finished run"):
        inherit(TrainSettings(init_from=str(run.path)), [])
