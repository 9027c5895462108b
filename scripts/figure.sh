#!/usr/bin/env bash
# One figure or table of the paper; see figure.py, or --help:   bash scripts/figure.sh NAME
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PATH=$(dirname "$scripts")/.venv/bin:$PATH exec python "$scripts/figure.py" "$@"
