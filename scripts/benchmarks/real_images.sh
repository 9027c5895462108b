#!/usr/bin/env bash
# Four schemes on the same images, weights and seed: accuracy and training time, one after the other.
#     IMAGES=path/to/folder WEIGHTS=path/to/weights.h5 bash scripts/benchmarks/real_images.sh
# MODEL (mobilenetv2), RHO (0.5), EPOCHS (12), SEED (0) and OUTPUT (benchmark-output/real-images) may be set; further
# et-train options may follow. Finished runs are kept, so that an interrupted benchmark goes on where it was.
set -euo pipefail
images=${IMAGES:?set IMAGES to a folder with train/CLASS/IMAGE and test/CLASS/IMAGE}
weights=${WEIGHTS:?set WEIGHTS to a weights file, imagenet or none}
output=${OUTPUT:-benchmark-output/real-images}
rho=${RHO:-0.5}
common=(--model "${MODEL:-mobilenetv2}" --weights "$weights" --dataset "$images" --epochs "${EPOCHS:-12}"
    --seed "${SEED:-0}" "$@")

train() { # train NAME OPTION...
    local folder=$output/$1
    shift
    if [ -f "$folder/summary.json" ]; then
        echo "kept: $folder"
    else
        et-train "${common[@]}" "$@" --output "$folder" --overwrite
    fi
}

train elastic --rho "$rho"
train full --scheme full
train bn-bias --scheme bn-bias
train traditional-tl --scheme traditional-tl
runs=("$output/full" "$output/elastic" "$output/bn-bias" "$output/traditional-tl")
et-plot curves "${runs[@]}" --output "$output/curves.png"
et-plot selection "$output/elastic" --output "$output/selection.png"
et-plot table "${runs[@]}" --output "$output/results.json"
