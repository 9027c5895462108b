"""The wheels that pyproject.toml's platform markers resolve to; scripts/resolve_wheels.py makes the table."""

import json
from pathlib import Path

import pytest

WHEELS = json.loads((Path(__file__).resolve().parents[1] / "files" / "wheels.json").read_text())


@pytest.mark.parametrize("platform", WHEELS)
def test_the_markers_ask_for_what_the_table_has(script, platform):
    wheels = WHEELS[platform]
    asked = script("requirements_of").requirements(*platform.split(), [])
    names = [requirement.name for requirement in asked]
    assert len(names) == len(set(names)), "two markers hold at once"
    for requirement in asked:
        assert requirement.specifier.contains(wheels[requirement.name]), (
            f"{requirement}: {wheels[requirement.name]}"
        )
    for name in {"tensorflow-addons", "vit-keras", "tensorboard-plugin-profile"} - set(names):
        assert name not in wheels


@pytest.mark.parametrize("platform", WHEELS)
def test_every_platform_gets_one_of_the_two_stacks(platform):
    wheels = WHEELS[platform]
    python, machine = platform.split()
    if machine == "x86_64" and python in ("3.9", "3.10", "3.11"):
        assert (
            wheels["keras"] == "2.15.0" and wheels["vit-keras"] == "0.1.2" and "tensorflow-addons" in wheels
        )
    else:
        assert wheels["keras"].startswith("3.") and "tensorflow-addons" not in wheels
        assert wheels.get("vit-keras") == ("0.2.0" if python in ("3.10", "3.11") else None)


def test_all_supported_pythons_are_in_the_table():
    assert {platform.split()[0] for platform in WHEELS} == {"3.9", "3.10", "3.11", "3.12", "3.13"}
    assert {platform.split()[1] for platform in WHEELS} == {"x86_64", "aarch64"}
