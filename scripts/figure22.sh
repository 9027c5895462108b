#!/usr/bin/env bash
# Figure 22: peak memory, elastic against full training. See figures.sh for settings.
source "$(dirname "${BASH_SOURCE[0]}")/figures.sh"
model=$(either MODEL resnet50)
dataset=$(either DATASET caltech_birds2011)
baseline "$dataset" "$model" full
elastic "$dataset" "$model" 0.5
draw figure22 bars --y memory
report
