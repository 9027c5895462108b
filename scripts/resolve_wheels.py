"""Which wheels `pip install .` takes on each platform; writes tests/files/wheels.json.

    pip install uv && python scripts/resolve_wheels.py

uv resolves for platforms other than its own; only wheels count, but for `promise`, which comes as source
everywhere.
"""

import json
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")


def resolve(python: str, machine: str) -> dict:
    """Name to version."""
    fixed = "--quiet --no-header --no-annotate --only-binary :all: --no-binary promise pyproject.toml"
    platform = ["--python-version", python, "--python-platform", f"{machine}-manylinux_2_28"]
    command = ["uv", "pip", "compile", *platform, *fixed.split()]
    lines = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout.split()
    return dict(line.split("==") for line in lines if "==" in line)


def main() -> None:
    table = {f"{python} {machine}": resolve(python, machine) for machine in MACHINES for python in PYTHONS}
    (REPOSITORY / "tests" / "files" / "wheels.json").write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
