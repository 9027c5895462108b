"""Settings from the command line and from a file: defaults, precedence, what is refused."""

import argparse
import dataclasses
import re

import pytest

from elastictrainer.errors import UsageError
from elastictrainer.experiment.options import given, load, parse
from elastictrainer.experiment.settings import ProfileSettings, TrainSettings, learning_rate, rate_schedule


def read(arguments, settings=TrainSettings):
    return parse(settings, arguments, argparse.ArgumentParser(allow_abbrev=False))[0]


def test_defaults_are_the_papers_but_for_the_solved_head():
    settings = read([])
    assert (settings.rho, settings.interval, settings.epochs, settings.batch_size) == (0.5, None, 12, 4)
    assert (settings.weight_decay, settings.optimizer, settings.head_init) == (5e-4, "sgd", "solve")
    assert learning_rate(settings) == 2e-4 and learning_rate(read(["--head-init", "zeros"])) == 1e-4
    assert rate_schedule(settings).few == 1e-4
    assert rate_schedule(read(["--learning-rate", "2e-4"])).few is None, "what is asked for"
    assert settings.importance_batches == 5 and settings.scheme == "elastic"


def test_command_line_wins_over_the_file(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("rho: 0.7\nbatch-size: 8\nlearning_rate: 1e-3\nvalidate: 3\n")
    settings = read(["--config", str(file), "--rho", "0.6"])
    assert (settings.rho, settings.batch_size, settings.learning_rate) == (0.6, 8, 1e-3)
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
        ("- epochs", "key: value"),
        ("epochs: [", "not valid YAML"),
        ("epochs: 2.5", "whole number"),
        ("epochs: true", "whole number"),
        ("overwrite: please", "true or false"),
        ("!!python/object/apply:os.system ['true']", "key: value"),
        ("model: !!python/object/apply:os.system ['true']", "single value"),
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
        ("rho: " + "[" * 50_000, "not valid YAML"),
        ("[a, b]: 3", "line 1"),
        ("rho: 0.5 # " + "x" * 200_000, "too many for settings"),
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


def test_empty_config_file_changes_nothing(tmp_path):
    (tmp_path / "c.yaml").write_text("")
    assert read(["--config", str(tmp_path / "c.yaml")]) == read([])


def test_settings_written_as_yaml_are_loaded_again(tmp_path):
    import yaml

    settings = TrainSettings(model="demo", classes=None, rho=0.4, overwrite=True, profile="p.json")
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(dataclasses.asdict(settings)))
    assert load(TrainSettings, tmp_path / "c.yaml") == settings


def test_the_options_that_the_command_line_set_are_known(tmp_path):
    (tmp_path / "c.yaml").write_text("rho: 0.7\n")
    arguments = ["--batch-size", "8", "--no-flip", "--config", str(tmp_path / "c.yaml")]
    _, parsed = parse(TrainSettings, arguments, argparse.ArgumentParser(allow_abbrev=False))
    assert given(TrainSettings, parsed) == ["--flip", "--batch-size", "--config"]


def test_an_option_that_may_be_repeated_is_one_text(tmp_path):
    arguments = ["--callback", "a.b:C", "--callback", "d:e", "--export", "tflite,keras"]
    settings = read(arguments)
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
