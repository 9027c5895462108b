#!/usr/bin/env bash
# Figure 17: accuracy against time and FLOPs, by rho and for every baseline. See figure.sh for settings.
exec bash "$(dirname "${BASH_SOURCE[0]}")/figure.sh" figure17 "$@"
