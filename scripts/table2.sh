#!/usr/bin/env bash
# Table 2: time to a target accuracy, against the best baseline. See figures.sh for settings.
source "$(dirname "${BASH_SOURCE[0]}")/figures.sh"
model=$(either MODEL resnet50)
for dataset in $(either DATASET caltech_birds2011 oxford_iiit_pet stanford_dogs); do
    four_schemes "$dataset" "$model"
done
report
