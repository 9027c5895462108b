#!/usr/bin/env bash
# Figure 23: energy of training, elastic against full, where the device has a sensor. See figure.sh for settings.
exec bash "$(dirname "${BASH_SOURCE[0]}")/figure.sh" figure23 "$@"
