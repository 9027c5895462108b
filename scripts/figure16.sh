#!/usr/bin/env bash
# Figure 16: as Figure 15, on the two data sets that the paper trained on a Raspberry Pi. See figure.sh for settings.
exec bash "$(dirname "${BASH_SOURCE[0]}")/figure.sh" figure16 "$@"
