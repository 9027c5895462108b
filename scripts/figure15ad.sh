#!/usr/bin/env bash
# Figure 15 (a) and (d): its first data set alone. See figures.sh for settings.
source "$(dirname "${BASH_SOURCE[0]}")/figures.sh"
curves_by_dataset caltech_birds2011
report
