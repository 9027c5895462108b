"""Print where the ready-made Flower app is: flwr run "$(python -m elastictrainer.fleet)"."""

import sys
from pathlib import Path

from elastictrainer.errors import UsageError
from elastictrainer.fleet import require_flower


def main() -> int:
    """Print the folder; returns 2 where Flower is missing."""
    try:
        require_flower()
    except UsageError as error:
        print(f"python -m elastictrainer.fleet: {error}", file=sys.stderr)
        return 2
    print(Path(__file__).with_name("app"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
