#!/usr/bin/env bash
# Figure 15 (a) and (d): its first data set alone. See figure.sh for settings.
exec bash "$(dirname "${BASH_SOURCE[0]}")/figure.sh" figure15ad "$@"
