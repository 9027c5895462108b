"""Choices by name; a mistyped name raises an error at once."""

import argparse
import dataclasses
import subprocess
import sys

import pytest

from elastictrainer.errors import UsageError
from elastictrainer.experiment.options import check, parse
from elastictrainer.experiment.settings import ProfileSettings, TrainSettings, options_of
from elastictrainer.registry import import_object
from elastictrainer.selection import schemes

MISTYPED = {
    "model": ("eficientnetb0", "'eficientnetb0'. Did you mean 'efficientnetb0'? Valid: vit, demo, conv"),
    "dataset": ("stanford_dog", "'stanford_dog'. Did you mean 'stanford_dogs'?"),
    "augment": ("storng", "'storng'. Did you mean 'strong'?"),
    "head_init": ("zero", "Did you mean 'zeros'?"),
    "optimizer": ("sdg", "'sgd'? Valid: sgd, adam, adamw."),
    "schedule": ("cosin", "'cosine'? Valid: cosine, constant."),
    "class_weights": ("balance", "'balanced'? Valid: none, balanced."),
    "callback": ("mymodule", "--callback 'mymodule' must be package.module:Class"),
    "scheme": ("elasitc", "'elasitc'. Did you mean 'elastic'?"),
    "time": ("soon", "'soon' is no time"),
    "precision": ("bfloat", "Did you mean 'bfloat16'? Valid: auto, float32, bfloat16."),
    "fold": ("of", "Did you mean 'off'? Valid: on, off."),
    "activation_cache": ("of", "Did you mean 'off'? Valid: auto, off."),
    "activation_cache_dtype": ("float61", "Did you mean 'float16'?"),
    "activation_cache_memory": ("2 Gigs", "'2 Gigs' is no size"),
    "memory": ("much", "'much' is no size. Valid: auto, "),
    "cache_images": ("memry", "Did you mean 'memory'?"),
    "export": ("tflite,sved_model", "'sved_model'. Did you mean 'saved_model'?"),
}
SOUND = TrainSettings(dataset="demo")


def test_every_setting_with_names_is_mistyped_here():
    checked = {name for name, option in options_of(TrainSettings).items() if option.check or option.names}
    assert checked == set(MISTYPED)


@pytest.mark.parametrize(
    "code, message",
    [
        ("import os\nos.nothing", "cannot import faulty of --model faulty:f: AttributeError: "),
        ("def f(:", "cannot import faulty of --model faulty:f: SyntaxError: "),
        ("x = 1", "faulty has no 'f'"),
        (None, "Set PYTHONPATH?"),
    ],
)
def test_a_fault_in_the_users_module_is_told_as_what_it_is(tmp_path, monkeypatch, code, message):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "faulty", raising=False)
    if code:
        (tmp_path / "faulty.py").write_text(code)
    with pytest.raises(UsageError) as error:
        import_object("--model", "faulty:f")
    assert message in str(error.value)


@pytest.mark.parametrize("name", MISTYPED)
def test_a_mistyped_name_is_told_with_the_nearest(name):
    value, message = MISTYPED[name]
    with pytest.raises(UsageError) as error:
        check(dataclasses.replace(SOUND, **{name: value}))
    assert message in str(error.value)


def test_names_that_there_are_pass(tmp_path):
    check(SOUND)
    # A file that is missing is told when it is read.
    check(dataclasses.replace(SOUND, model=str(tmp_path / "mine.keras")))
    check(dataclasses.replace(SOUND, model="nets:mine", scheme="myschemes:Mine", export="tflite,keras"))
    check(dataclasses.replace(SOUND, dataset=str(tmp_path)))
    for name in ("tfds:cifar10", "hf:beans", "hf:path/to/copy"):
        check(dataclasses.replace(SOUND, dataset=name))
    for name in schemes.SCHEMES:
        check(dataclasses.replace(SOUND, scheme=name))


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_a_name_that_no_file_can_have_is_unknown_as_well(name):
    with pytest.raises(UsageError, match="unknown data set"):
        check(dataclasses.replace(SOUND, dataset=name))


def test_names_are_those_that_the_modules_make(tf):
    from elastictrainer import registry
    from elastictrainer.data import published

    assert registry.DATASET.names == (*published.TFDS_CLASSES, "demo")


@pytest.mark.parametrize("settings", [TrainSettings, ProfileSettings])
def test_help_lists_the_names(settings, capsys):
    from elastictrainer import registry

    with pytest.raises(SystemExit):
        parse(settings, ["--help-all"], argparse.ArgumentParser())
    said = "".join(capsys.readouterr().out.split())  # argparse breaks long lists where it likes
    choices = [registry.AUGMENT, registry.DATASET, registry.OPTIMIZER, registry.HEAD_INIT]
    listed = [*registry.MODEL.listed.split(", "), *(schemes.SCHEMES if settings is TrainSettings else ())]
    choices += [registry.CACHE_IMAGES, registry.EXPORT] if settings is TrainSettings else []
    listed += [name for choice in choices for name in choice.names]
    assert [name for name in listed if name not in said] == []


def test_no_tensorflow_is_loaded_for_it():
    code = """
import sys
from elastictrainer.cli import export, profile, train
assert train.main(["--dataset", "demo", "--scheme", "elasitc"]) == 2
assert profile.main(["--model", "resnet05"]) == 2
assert export.main(["nowhere"]) == 2
assert "tensorflow" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
