#!/usr/bin/env bash
# Set up and check the code without running it: style, types, which folder imports which, how large each is, and the numbers on the pages.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
prepare_environment dev
cd "$repository"
status=0
mypy & # on a core of its own
ruff check --output-format concise || status=1
ruff format --check || status=1
lint-imports --no-logo || status=1
python scripts/sizes.py || status=1
python scripts/check_numbers.py || status=1
wait $! || status=1
exit "$status"
