"""The requirements that pyproject.toml's markers choose on another machine, one to a line.

python scripts/requirements_of.py --python 3.11 --machine aarch64 --extra test
"""

import argparse
from pathlib import Path
from typing import List

from packaging.requirements import Requirement

try:
    import tomllib
except ImportError:  # Python 3.9 and 3.10
    import tomli as tomllib

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def requirements(python: str, machine: str, extras: List[str], alone: bool = False) -> List[Requirement]:
    """What Linux with Python `python` ("3.11") on a `machine` ("x86_64") installs, or the extras `alone`."""
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    version = {"python_version": python, "python_full_version": f"{python}.0"}
    environment = {**version, "platform_machine": machine}
    lines = [] if alone else project["dependencies"]
    for extra in extras:
        lines = lines + project["optional-dependencies"][extra]
    found = [Requirement(line) for line in lines]
    chosen = [r for r in found if r.marker is None or r.marker.evaluate(environment)]
    others = sorted({extra for r in chosen if r.name == project["name"] for extra in r.extras})
    inner = requirements(python, machine, others, alone=True) if others else []
    return [r for r in chosen if r.name != project["name"]] + inner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default="3.11")
    parser.add_argument("--machine", default="aarch64")
    parser.add_argument("--extra", nargs="*", default=[])
    parser.add_argument("--alone", action="store_true", help="what the extras list, without the dependencies")
    asked = parser.parse_args()
    for requirement in requirements(asked.python, asked.machine, asked.extra, asked.alone):
        extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
        print(f"{requirement.name}{extras}{requirement.specifier}")


if __name__ == "__main__":
    main()
