#!/usr/bin/env bash
# Figure 20: three metrics of importance, at the same time. See figure.sh for settings.
exec bash "$(dirname "${BASH_SOURCE[0]}")/figure.sh" figure20 "$@"
