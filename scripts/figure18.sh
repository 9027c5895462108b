#!/usr/bin/env bash
# Figure 18: FLOPs of every epoch, by rho. See figure.sh for settings.
exec bash "$(dirname "${BASH_SOURCE[0]}")/figure.sh" figure18 "$@"
