#!/usr/bin/env bash
# Profile the four models at 224x224, batch 4, and hold the prediction against 12 measured selections each.
#     bash scripts/benchmarks/profile_models.sh
# WEIGHTS_MOBILENETV2 and so on name weights files; where none is named the weights are random, which changes no time.
# OUTPUT (benchmark-output/profiles) gets the profiles, validation in them, and results.json.
set -euo pipefail
output=${OUTPUT:-benchmark-output/profiles}
mkdir -p "$output"
for model in mobilenetv2 resnet50 vgg16 vit; do
    weights=WEIGHTS_$(tr '[:lower:]' '[:upper:]' <<< "$model")
    optimizer=sgd
    [ "$model" = vit ] && optimizer=adam # as in the paper
    et-profile --model "$model" --weights "${!weights:-none}" --augment paper --classes 200 \
        --optimizer "$optimizer" --validate "${VALIDATE:-12}" --output "$output/$model.json" | tee "$output/$model.txt"
done
python "$(dirname "${BASH_SOURCE[0]}")/summarise_profiles.py" "$output"/*.json --output "$output/results.json"
