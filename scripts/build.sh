#!/usr/bin/env bash
# Set up and build what a release uploads into dist/: the source archive and the wheel, checked, and the wheel installed and imported.
#     bash scripts/build.sh
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
prepare_environment build alone
cd "$repository"
rm -rf dist
python -m build --outdir dist . >"$repository/.venv-build/build.log" 2>&1 || { tail -n 20 "$repository/.venv-build/build.log" >&2; exit 1; }
python -m twine check --strict dist/*
empty=$(mktemp -d)
trap 'rm -rf "$empty"' EXIT
python -m pip install --quiet --no-deps --target "$empty" dist/*.whl # what it depends on is installed by test.sh
cd "$empty"
python -c 'import elastictrainer
from importlib.metadata import version
from importlib.resources import files
assert version("elastictrainer") == elastictrainer.__version__
assert files("elastictrainer").joinpath("assets/demo.weights.npz").is_file() and files("elastictrainer").joinpath("py.typed").is_file()
print("installs and imports: elastictrainer", elastictrainer.__version__)'
