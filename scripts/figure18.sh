#!/usr/bin/env bash
# Figure 18: FLOPs of every epoch, by rho. See figures.sh for settings.
source "$(dirname "${BASH_SOURCE[0]}")/figures.sh"
model=$(either MODEL resnet50)
dataset=$(either DATASET caltech_birds2011)
baseline "$dataset" "$model" full
for rho in ${RHOS:-0.4 0.5 0.6 0.7}; do
    elastic "$dataset" "$model" "$rho"
done
draw figure18 curves --x epochs --y flops
report
