#!/usr/bin/env bash
# Figure 17: accuracy against time (a, c) and FLOPs (b, d), by rho and for every baseline. See figures.sh for settings.
source "$(dirname "${BASH_SOURCE[0]}")/figures.sh"
model=$(either MODEL resnet50)
dataset=$(either DATASET caltech_birds2011)
for rho in ${RHOS:-0.35 0.4 0.5 0.6 0.7}; do
    elastic "$dataset" "$model" "$rho"
done
for scheme in full traditional-tl bn-bias prunetrain; do
    baseline "$dataset" "$model" "$scheme"
done
for quantity in accuracy time flops; do
    draw "figure17_$quantity" bars --y "$quantity"
done
report
