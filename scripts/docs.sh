#!/usr/bin/env bash
# Set up and build the documentation into site/: the pages, and the API reference from docstrings. A link that leads nowhere fails.
#     bash scripts/docs.sh
# Then open site/index.html. TensorFlow is not needed: the sources are read, not imported.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
prepare_environment docs alone
cd "$repository"
export NO_MKDOCS_2_WARNING=1 # an advertisement
exec python -m mkdocs build --strict "$@"
