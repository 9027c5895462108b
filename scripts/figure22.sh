#!/usr/bin/env bash
# Figure 22: peak memory, elastic against full training. See figure.sh for settings.
exec bash "$(dirname "${BASH_SOURCE[0]}")/figure.sh" figure22 "$@"
