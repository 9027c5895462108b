#!/usr/bin/env bash
# Table 2: time to a target accuracy, against the best baseline. See figure.sh for settings.
exec bash "$(dirname "${BASH_SOURCE[0]}")/figure.sh" table2 "$@"
