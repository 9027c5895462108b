#!/usr/bin/env bash
# Schemes on the same images and weights: accuracy and training time, mean and spread over seeds, one run after the other.
#     IMAGES=path/to/folder WEIGHTS=path/to/weights.h5 bash scripts/benchmarks/real_images.sh
# SEEDS ("0 1 2") repeats full and elastic training at RHO (0.5). ALSO ("traditional-tl bn-bias") names further schemes, RHOS
# ("") further ratios, each with the first seed. MODEL (mobilenetv2), EPOCHS (12) and OUTPUT (benchmark-output/real-images)
# may be set; further et-train options may follow. Finished runs are kept and interrupted ones gone on with.
set -euo pipefail
images=${IMAGES:?set IMAGES to a folder with train/CLASS/IMAGE and test/CLASS/IMAGE}
weights=${WEIGHTS:?set WEIGHTS to a weights file, imagenet or none}
output=${OUTPUT:-benchmark-output/real-images}
rho=${RHO:-0.5}
read -ra seeds <<< "${SEEDS:-0 1 2}"
read -ra also <<< "${ALSO-traditional-tl bn-bias}"
read -ra rhos <<< "${RHOS-}"
common=(--model "${MODEL:-mobilenetv2}" --weights "$weights" --dataset "$images" --epochs "${EPOCHS:-12}" "$@")
runs=()

train() { # train NAME OPTION...
    local folder=$output/$1
    shift
    if [ -f "$folder/summary.json" ]; then
        echo "kept: $folder"
    elif [ -f "$folder/config.yaml" ]; then
        et-train --resume "$folder"
    else
        et-train "${common[@]}" "$@" --output "$folder"
    fi
    runs+=("$folder")
}

for seed in "${seeds[@]}"; do
    train "seed$seed/elastic-$rho" --seed "$seed" --rho "$rho"
    train "seed$seed/full" --seed "$seed" --scheme full
done
seed=${seeds[0]}
for ratio in ${rhos[@]+"${rhos[@]}"}; do
    train "seed$seed/elastic-$ratio" --seed "$seed" --rho "$ratio"
done
for scheme in ${also[@]+"${also[@]}"}; do
    train "seed$seed/$scheme" --seed "$seed" --rho "$rho" --scheme "$scheme"
done
et-plot curves "${runs[@]}" --output "$output/curves.png"
et-plot selection "$output/seed$seed/elastic-$rho" --output "$output/selection.png"
for quantity in accuracy time flops memory; do
    et-plot bars "${runs[@]}" --y "$quantity" --output "$output/$quantity.png"
done
et-plot table "${runs[@]}" --output "$output/results.json"
python "$(dirname "${BASH_SOURCE[0]}")/../figure_data.py" table table2 "${runs[@]}" --output "$output/table2.json"
