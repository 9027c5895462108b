#!/usr/bin/env bash
# Figure 19: accuracy and time of four models at rho 0.4, against full training. See figures.sh for settings.
source "$(dirname "${BASH_SOURCE[0]}")/figures.sh"
dataset=$(either DATASET caltech_birds2011)
for model in $(either MODEL resnet50 vgg16 mobilenetv2 vit); do
    baseline "$dataset" "$model" full
    elastic "$dataset" "$model" "${RHO:-0.4}"
done
draw figure19_accuracy bars --y accuracy
draw figure19_time bars --y time
report
