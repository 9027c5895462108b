#!/usr/bin/env bash
# Figure 20: three metrics of importance, at the same time. See figures.sh for settings.
source "$(dirname "${BASH_SOURCE[0]}")/figures.sh"
model=$(either MODEL resnet50)
dataset=$(either DATASET caltech_birds2011)
elastic "$dataset" "$model" 0.5
if affordable 0.5; then
    for metric in weight-magnitude grad-magnitude; do
        train "$dataset" "$model" "elastic-$metric" --scheme "elastic-$metric" --rho 0.5
    done
fi
draw figure20 curves
report
