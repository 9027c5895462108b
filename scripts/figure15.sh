#!/usr/bin/env bash
# Figure 15: accuracy (a-c) and loss (d-f) over training time, four schemes on three data sets. See figures.sh for settings.
source "$(dirname "${BASH_SOURCE[0]}")/figures.sh"
curves_by_dataset caltech_birds2011 oxford_iiit_pet stanford_dogs
report
