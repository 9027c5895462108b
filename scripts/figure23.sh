#!/usr/bin/env bash
# Figure 23: energy of training, elastic against full, where the device has a sensor. See figures.sh for settings.
source "$(dirname "${BASH_SOURCE[0]}")/figures.sh"
model=$(either MODEL resnet50)
dataset=$(either DATASET caltech_birds2011)
baseline "$dataset" "$model" full
elastic "$dataset" "$model" 0.5
draw figure23 bars --y energy
report
