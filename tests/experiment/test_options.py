"""Settings from the command line and from a file: defaults, precedence, published names, what is refused."""

import argparse
import dataclasses
import re

import pytest

from elastictrainer.errors import UsageError
from elastictrainer.experiment.options import given, load, parse
from elastictrainer.experiment.rates import learning_rate, rate_schedule
from elastictrainer.experiment.settings import ProfileSettings, TrainSettings
from elastictrainer.experiment.settings_checks import check_together, check_values


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


def test_the_former_options_of_et_profile_are_accepted_on_its_command_line_alone(tmp_path):
    settings = read(["--warmup", "7", "--output", "p.json"], ProfileSettings)
    assert (settings.warmup_steps, settings.profile) == (7, "p.json")
    (tmp_path / "c.yaml").write_text("warmup: 7\noutput: p.json\n")
    assert read(["--config", str(tmp_path / "c.yaml")], ProfileSettings) == read([], ProfileSettings)


def test_published_option_names_are_accepted():
    settings = read(
        "--model_name vgg16 --dataset_name oxford_iiit_pet --train_type elastic_training --input_size 224 "
        "--batch_size 4 --num_classes 37 --optimizer sgd --learning_rate 1e-4 --weight_decay 5e-4 "
        "--num_epochs 12 --run_name mine --interval 4 --rho 0.533".split()
    )
    assert (settings.model, settings.dataset, settings.scheme) == ("vgg16", "oxford_iiit_pet", "elastic")
    assert (settings.image_size, settings.epochs, settings.classes, settings.rho) == (224, 12, 37, 0.533)
    for published, ours in {
        "full_training": "full",
        "bn+bias_training": "bn-bias",
        "prunetrain": "prunetrain",
    }.items():
        assert read(["--train_type", published]).scheme == ours


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--epoch", "3"], "'--epoch'. Did you mean '--epochs'"),
        (["resnet50"], "'resnet50'"),
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
        ("model: demo\nmodel_name: demo", "'model_name' is 'model' again"),
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
    arguments = ["--batch_size", "8", "--no-flip", "--config", str(tmp_path / "c.yaml")]
    _, parsed = parse(TrainSettings, arguments, argparse.ArgumentParser(allow_abbrev=False))
    assert given(TrainSettings, parsed) == ["--flip", "--batch-size", "--config"]


def test_an_option_that_may_be_repeated_is_one_text(tmp_path):
    arguments = ["--callback", "a.b:C", "--callback", "d:e", "--export", "tflite,keras"]
    settings = read(arguments)
    assert settings.callback == "a.b:C,d:e" and settings.export == "tflite,keras"
    check_values(settings)
    for wrong in ("a.b", "a.b:", ":C", "a b:C", "a:b:c", "a:B,"):
        with pytest.raises(UsageError, match="--callback '.*' must be package.module:Class"):
            check_values(read(["--callback", wrong]))


def test_adam_has_no_weight_decay():
    with pytest.raises(UsageError, match="adam has no --weight-decay .*adamw"):
        check_together(read(["--optimizer", "adam", "--weight-decay", "0.01"]))
    check_together(read(["--optimizer", "adam"]))


def test_a_limit_of_memory_is_for_a_run_that_selects():
    check_together(read(["--memory", "1GB"]))
    check_together(read(["--memory", "auto", "--scheme", "freeze-below"]))
    check_together(read(["--memory", "1GB", "--scheme", "my.module:Mine"]))
    with pytest.raises(UsageError, match="--memory 1GB"):
        check_together(read(["--memory", "1GB", "--scheme", "full"]))
    with pytest.raises(UsageError, match="--memory .* --deterministic"):
        check_together(read(["--memory", "1GB", "--deterministic"]))


def test_a_run_by_the_clock_does_not_count_steps():
    with pytest.raises(UsageError, match="--time .*--deterministic"):
        check_together(read(["--time", "90s", "--deterministic"]))
    check_together(read(["--time", "90s"]))
    check_together(read(["--deterministic"]))


def test_help_has_groups_names_and_no_aliases():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parse(TrainSettings, [], parser)
    said = parser.format_help()
    headings = [line[:-1] for line in said.splitlines() if re.fullmatch(r"[a-z ]+:", line)]
    assert headings == ["options", "model", "data", "speed", "training", "profile", "run"]
    assert "--optimizer {sgd,adam,adamw}" in said and "--weights FILE" in said and "--data-dir DIR" in said
    assert not re.search(r"--\w+_\w+|--train_type", said)
