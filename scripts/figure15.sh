#!/usr/bin/env bash
# Figure 15: accuracy and loss over training time, four schemes on three data sets. See figure.sh for settings.
exec bash "$(dirname "${BASH_SOURCE[0]}")/figure.sh" figure15 "$@"
