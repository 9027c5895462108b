#!/usr/bin/env bash
# Figure 21: which tensors each selection chose, and their importance. See figure.sh for settings.
exec bash "$(dirname "${BASH_SOURCE[0]}")/figure.sh" figure21 "$@"
