#!/usr/bin/env bash
# Figure 16: as Figure 15, on the two data sets that the paper trained on a Raspberry Pi. See figures.sh for settings.
source "$(dirname "${BASH_SOURCE[0]}")/figures.sh"
curves_by_dataset oxford_iiit_pet stanford_dogs
report
