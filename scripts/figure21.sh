#!/usr/bin/env bash
# Figure 21: which tensors each selection chose, and their importance. See figures.sh for settings.
source "$(dirname "${BASH_SOURCE[0]}")/figures.sh"
model=$(either MODEL resnet50)
dataset=$(either DATASET caltech_birds2011)
elastic "$dataset" "$model" 0.5
draw figure21 selection
draw figure21_importance importance
report
