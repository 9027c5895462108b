"""Titles say model, data set and device, in few words."""

import pytest

from elastictrainer.plotting import captions
from run_builders import make_run


@pytest.mark.parametrize(
    "recorded, cores, said",
    [
        ("AMD EPYC (x86_64)", 2, "AMD EPYC (2 cores)"),
        ("Intel(R) Xeon(R) Processor @ 2.60GHz (x86_64)", 1, "Intel Xeon (1 core)"),
        ("AMD Ryzen 7 5800X 8-Core Processor (x86_64)", 16, "AMD Ryzen 7 5800X (16 cores)"),
        ("Raspberry Pi 4 Model B Rev 1.4 (aarch64)", 4, "Raspberry Pi 4 Model B Rev 1.4 (4 cores)"),
        ("NVIDIA GeForce RTX 3090", 16, "NVIDIA GeForce RTX 3090"),
        ("CPU (aarch64)", 4, "CPU (aarch64) (4 cores)"),
        ("a" * 50, None, "a" * 8 + ".." + "a" * 22),
    ],
)
def test_a_device_in_few_words(recorded, cores, said):
    assert captions.device_name({"device": recorded, "threads": {"processors": cores}}) == said


def test_a_missing_environment_leaves_the_device_out(tmp_path):
    run = make_run(tmp_path / "a")
    run.environment_path.unlink()
    run.write_config({**run.config(), "model": "nets/birds.keras", "dataset": "tfds/oxford/1.0.0"})
    assert captions.subject([run]) == "birds on oxford"


def test_several_models_and_devices_are_named_or_counted(tmp_path):
    runs = [make_run(tmp_path / name) for name in "abc"]
    for run in runs:
        run.write_config({**run.config(), "model": run.path.name})
    assert captions.subject(runs[:2]) == "a and b on birds, abacus"
    runs[0].write_environment({"device": "quipu"})
    assert captions.subject(runs) == "3 models on birds, quipu and abacus"


@pytest.mark.parametrize("longest, unit", [(600, "s"), (601, "min"), (7200, "min"), (7201, "h")])
def test_the_unit_of_times(longest, unit):
    assert captions.time_unit(longest).name == unit


def test_what_a_profile_is_of():
    about = {"model": "vit", "input_shape": [224, 224, 3], "batch_size": 4, "device": "abacus"}
    assert captions.profile_subject(about) == "vit, 224x224, batch 4, abacus"
    assert captions.profile_subject({}) == "model"


def test_a_long_name_keeps_its_beginning_and_its_end():
    assert captions.cut_to("American_Three_toed_Woodpecker_male", 28) == "American..ed_Woodpecker_male"
    assert captions.cut_to("wren", 28) == "wren"
