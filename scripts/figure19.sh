#!/usr/bin/env bash
# Figure 19: accuracy and time of four models at rho 0.4, against full training. See figure.sh for settings.
exec bash "$(dirname "${BASH_SOURCE[0]}")/figure.sh" figure19 "$@"
