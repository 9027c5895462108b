"""Settings of built-in models are refused for a model of the user's own."""

import argparse

import pytest

from elastictrainer import UsageError
from elastictrainer.experiment.options import given, parse
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.experiment.settings_checks import check_together, refuse_inapplicable
from log_lines import listen


def check(*arguments):
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
        check("--model", model, *arguments)
    assert named in str(error.value) and model in str(error.value)
    assert check("--model", "vgg16", *arguments) == []


def test_the_head_of_any_model_can_be_solved_or_kept():
    for value in ("solve", "keep"):
        assert check("--model", "own.keras", "--head-init", value) == []


def test_nothing_is_said_where_nothing_is_asked_for():
    assert check("--model", "own.keras", "--image-size", "64") == []


def test_a_file_that_names_the_model_is_held_to_it(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("model: nets:mine\nrotation: 0.1\n")
    with pytest.raises(UsageError, match="--rotation: not for nets:mine"):
        check("--config", str(file))
    file.write_text("model: nets:mine\nweights: imagenet\nrotation: null\n")  # as a run folder has it
    assert check("--config", str(file)) == []


def test_a_file_for_another_model_serves_and_it_is_said_what_is_left_out():
    (line,) = check("--config", "configs/paper.yaml", "--model", "nets:mine")
    assert "head_init, augment " in line and "nets:mine" in line


def test_a_head_that_is_trained_alone_is_solved():
    check_together(TrainSettings(scheme="head-alone"))
    with pytest.raises(UsageError, match="--head-init zeros leaves it"):
        check_together(TrainSettings(scheme="head-alone", head_init="zeros"))
