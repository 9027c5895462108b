#!/usr/bin/env bash
# Set up and run the tests; arguments go to pytest.
#     bash scripts/test.sh                          what a change needs
#     bash scripts/test.sh -m "not long"            what CI runs
#     bash scripts/test.sh -m "long or not long"    everything, before a release
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
prepare_environment "$([ -n "${STACK:-}" ] && echo test || echo dev)" # lint.sh, which needs the rest of dev, uses the first stack
cd "$repository"
exec python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations 30 --durations-min 5 "$@"
