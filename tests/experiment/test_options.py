"""Settings from the command line and from a file: defaults, precedence, what is refused."""

import argparse
import dataclasses
import re

import pytest
import yaml

from elastictrainer.errors import UsageError
from elastictrainer.experiment.options import check, inherit, load, parse, refuse_inapplicable
from elastictrainer.experiment.settings import (
    ProfileSettings,
    TrainSettings,
    learning_rate,
    parse_seconds,
    rate_schedule,
)
from elastictrainer.runs.run_folder import RunFolder
from log_lines import listen


def read(arguments, settings=TrainSettings):
    return parse(settings, arguments, argparse.ArgumentParser(allow_abbrev=False))[0]


def test_defaults_are_the_recipe_that_won():
    settings = read([])
    assert (settings.rho, settings.interval, settings.epochs, settings.batch_size) == (0.5, None, 12, 16)
    assert (settings.weight_decay, settings.optimizer, settings.head_init) == (5e-4, "adamw", "solve")
    assert settings.label_smoothing == 0.1 and rate_schedule(settings).shape == "cosine"
    assert settings.importance_batches == 5 and settings.scheme == "elastic"
    assert read(["--time", "5m"]).scheme == "freeze-below"
    assert read(["--time", "5m", "--scheme", "elastic"]).scheme == "elastic"


@pytest.mark.parametrize(
    "options, rate",
    [
        ("", 3e-4),
        ("--optimizer sgd", 2e-4),
        ("--head-init zeros", 1e-4),
        ("--scheme full", 3e-4),
        ("--scheme full --learning-rate 2e-3", 2e-3),
    ],
)
def test_the_rate_is_higher_from_a_solved_head(options, rate):
    settings = read(options.split())
    assert learning_rate(settings) == rate == rate_schedule(settings).highest


def test_command_line_wins_over_the_file_and_what_it_sets_is_known(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("rho: 0.7\nbatch-size: 8\nlearning_rate: 1e-3\nvalidate: 3\n")
    arguments = ["--config", str(file), "--rho", "0.6", "--no-flip"]
    settings, parsed = parse(TrainSettings, arguments, argparse.ArgumentParser(allow_abbrev=False))
    assert (settings.rho, settings.batch_size, settings.learning_rate) == (0.6, 8, 1e-3)
    assert parsed.typed == ["--flip", "--rho", "--config"]
    assert read(["--config", str(file)], ProfileSettings).validate == 3


def test_a_file_with_every_setting_serves_both_commands(tmp_path):
    file = tmp_path / "c.yaml"
    values = {"warmup": 0.2, "warmup_steps": 30, "output": "runs/mine", "profile": "p.json"}
    for settings in (ProfileSettings, TrainSettings):
        known = {field.name: field.default for field in dataclasses.fields(settings)}
        values = {**{name: value for name, value in known.items() if value is not None}, **values}
    file.write_text("".join(f"{name}: {value}\n" for name, value in values.items()))
    arguments = ["--config", str(file)]
    trained, profiled = read(arguments), read(arguments, ProfileSettings)
    assert (trained.warmup, trained.output, trained.profile) == (0.2, "runs/mine", "p.json")
    assert (profiled.warmup_steps, profiled.profile) == (30, "p.json")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--epoch", "3"], "'--epoch'. Did you mean '--epochs'"),
        (["resnet50"], "'resnet50'"),
        (["--model_name", "vgg16"], "'--model_name'. Did you mean '--model'"),
        (["--num_epochs=3"], "'--num_epochs'. Did you mean '--epochs'"),
        (["--train_type", "full"], "'--train_type'.*--scheme"),
        (["--batch_size", "8"], "'--batch_size'. Did you mean '--batch-size'"),
        (["--strategy", "multi-worker"], "'--strategy'.*train together through Flower: see docs/fleet.md"),
        (["--until", "18:00"], "'--until'.*--time 2h"),
        (["--epochs", "many"], "--epochs must be a whole number"),
        (["--epochs", "0"], "--epochs 0 .*at least 1"),
        (["--rho", "1.5"], "--rho 1.5 .*0.01 to 1"),
        (["--rho", "nan"], "out of range"),
        (["--batch-size", "2.5"], "whole number"),
        (["--config", "/nowhere.yaml"], "cannot read"),
    ],
)
def test_bad_command_line(arguments, message):
    with pytest.raises(UsageError, match=message):
        read(arguments)


@pytest.mark.parametrize(
    "content, message",
    [
        ("epoch: 3", "'epoch'. Did you mean 'epochs'"),
        ("epochs: 2.5", "whole number"),
        ("epochs: true", "whole number"),
        ("overwrite: please", "true or false"),
        ("model: !!python/name:os.system", "line 1"),
        ("epochs: 3\nrho: 0.5\nepochs: 4", "line 3: 'epochs' is there a second time"),
        ("batch-size: 3\nbatch_size: 4", "'batch_size' is 'batch_size' again"),
        ("model_name: demo", "'model_name'. Did you mean 'model'"),
        ("seed: 4294967296", "allowed: 0 to 4294967295"),
        ("seed: " + "9" * 400, "9999... is out of range"),
        ("seed: " + "9" * 5000, "9999..."),
        ("learning_rate: .inf", "must be a number"),
        ("learning_rate: 1e400", "out of range"),
        ("rho: .nan", "must be a number"),
        ("epochs: 1:30", "whole number"),
        ("epochs:", "--epochs has no value"),
        ("a: &a [x, x]\nb: &b [*a, *a]\nrho: *b", "single value"),
    ],
    ids=lambda value: value[:30],
)
def test_bad_config_file_is_named(tmp_path, content, message):
    file = tmp_path / "c.yaml"
    file.write_text(content)
    with pytest.raises(UsageError) as error:
        read(["--config", str(file)])
    assert message in str(error.value)


def test_settings_written_as_yaml_are_loaded_again_and_an_empty_file_changes_nothing(tmp_path):
    file = tmp_path / "c.yaml"
    settings = TrainSettings(model="demo", classes=None, rho=0.4, overwrite=True, profile="p.json")
    file.write_text(yaml.safe_dump(dataclasses.asdict(settings)))
    assert load(TrainSettings, file) == settings
    file.write_text("")
    assert read(["--config", str(file)]) == read([])


def test_an_option_that_may_be_repeated_is_one_text():
    settings = read(["--callback", "a.b:C", "--callback", "d:e", "--export", "tflite,keras"])
    assert settings.callback == "a.b:C,d:e" and settings.export == "tflite,keras"


def test_help_shows_the_common_options_and_help_all_the_others(capsys):
    said = {}
    for option in ("--help", "--help-all"):
        parser = argparse.ArgumentParser(allow_abbrev=False)
        with pytest.raises(SystemExit):
            parse(TrainSettings, [option], parser)
        said[option] = capsys.readouterr().out
    settings = {field.name.replace("_", "-") for field in dataclasses.fields(TrainSettings)}
    shown = {name: settings & set(re.findall(r"^  --([a-z-]+)", text, re.M)) for name, text in said.items()}
    assert 10 <= len(shown["--help"]) <= 12 and {"dataset", "time", "rho", "output"} < shown["--help"]
    assert shown["--help-all"] == settings
    headings = re.findall(r"^([a-z ]+):$", said["--help-all"], re.M)
    assert headings == ["options", "model", "data", "speed", "training", "profile", "run"]
    assert "--optimizer {sgd,adam,adamw}" in said["--help-all"] and "--weights FILE" in said["--help-all"]


def test_units_of_time():
    assert [parse_seconds(text) for text in ("90", "90s", "1.5 h", "2min")] == [90, 90, 5400, 120]
    for text in ("", "0", "soon", "-3m", "3 days"):
        with pytest.raises(UsageError, match="no time"):
            parse_seconds(text)


def said_of(*arguments):
    """Return the lines about a command line."""
    settings, parsed = parse(TrainSettings, arguments, argparse.ArgumentParser())
    said = listen()
    refuse_inapplicable(settings, parsed.typed)
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
    with pytest.raises(UsageError, match="unknown model 'resnet05'. Did you mean 'resnet50'"):
        said_of("--model", "resnet05", *arguments)


@pytest.mark.parametrize("options", ["--image-size 64", "--head-init solve", "--head-init keep"])
def test_what_any_model_has_a_use_for_is_no_matter(options):
    assert said_of("--model", "own.keras", *options.split()) == []


def test_a_file_that_names_the_model_is_held_to_it_and_one_for_another_serves(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("model: nets:mine\nrotation: 0.1\n")
    with pytest.raises(UsageError, match="--rotation: not for nets:mine"):
        said_of("--config", str(file))
    file.write_text("model: nets:mine\nweights: imagenet\nrotation: null\n")  # as a run folder has it
    assert said_of("--config", str(file)) == []
    (line,) = said_of("--config", "configs/paper.yaml", "--model", "nets:mine")
    assert "head_init, augment " in line and "nets:mine" in line, "what is left out"


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
        ({"model": "mine.keras", "precision": "bfloat16"}, "--precision bfloat16: mine.keras"),
        ({"dataset": "nowhere"}, "unknown data set 'nowhere'"),
        ({"time": ""}, "'' is no time"),
        ({"callback": "a.b:"}, "--callback '.*' must be package.module:Class"),
        ({"callback": "a:B,"}, "--callback '.*' must be package.module:Class"),
    ],
)
def test_what_does_not(excluded, message):
    with pytest.raises(UsageError, match=message):
        check(TrainSettings(**{"dataset": "demo", **excluded}))


def test_a_profile_of_so_many_classes_needs_no_data():
    check(ProfileSettings(dataset="nowhere", classes=7))


MODELS = {"model": "demo", "image_size": 24, "rotation": 0.1, "flip": False, "precision": "bfloat16"}
EARLIER = TrainSettings(**MODELS, rho=0.7, dataset="demo")


@pytest.fixture
def run(tmp_path):
    """A finished run, as far as its settings go."""
    run = RunFolder(tmp_path / "earlier")
    run.path.mkdir()
    run.write_config(dataclasses.asdict(EARLIER))
    run.model_path.touch()
    return run


def test_what_describes_the_model_comes_from_the_earlier_run_and_cannot_be_asked_for(run):
    new = TrainSettings(dataset="others", rho=0.4, init_from=str(run.path))
    assert inherit(new, ["--dataset", "--rho", "--init-from"]) == dataclasses.replace(new, **MODELS)
    with pytest.raises(UsageError, match=r"leave out --model, --image-size, --precision, --head-init\.$"):
        inherit(new, ["--precision", "--head-init", "--image-size", "--rho", "--model"])


@pytest.mark.parametrize("lacking", ["model_path", "config_path"])
def test_a_run_that_is_not_finished_is_refused(run, lacking):
    getattr(run, lacking).unlink()
    with pytest.raises(UsageError, match="no finished run"):
        inherit(TrainSettings(init_from=str(run.path)), [])
