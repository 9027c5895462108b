#!/usr/bin/env bash
# Elastic training against its rivals on the same images and weights, one run after the other.
#     IMAGES=path/to/folder WEIGHTS=path/to/weights.h5 bash scripts/benchmarks/real_images.sh
# For each of SEEDS ("0 1 2"): full training of EPOCHS (12) and of the fewer epochs in SHORT ("6 3"), whose schedule ends at zero as well;
# SCHEMES ("elastic freeze-below") at each of RHOS ("0.5 0.25 0.135 0.1"); elastic at the first of them without cache, traditional-tl with it.
# Without WEIGHTS they are downloaded. MODEL (mobilenetv2) and OUTPUT (benchmark-output/real-images) may be set; further et-train options may follow. ONLY, a
# pattern such as "*elastic*", trains only runs of such names. CSV, a file (OUTPUT/runs.csv), gets a row for each run beside those it has.
# Finished runs are kept and interrupted ones gone on with.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../train_run.sh"
images=${IMAGES:?set IMAGES to a folder with train/CLASS/IMAGE and test/CLASS/IMAGE}
output=${OUTPUT:-benchmark-output/real-images}
epochs=${EPOCHS:-12}
read -ra seeds <<< "${SEEDS:-0 1 2}"
read -ra short <<< "${SHORT-6 3}"
read -ra rhos <<< "${RHOS-0.5 0.25 0.135 0.1}"
read -ra schemes <<< "${SCHEMES-elastic freeze-below}"
common=(--model "${MODEL:-mobilenetv2}" --dataset "$images" "$@")
[ -z "${WEIGHTS:-}" ] || common+=(--weights "$WEIGHTS")
runs=()

train() { # train NAME OPTION...
    local folder=$output/$1
    # shellcheck disable=SC2254
    case $1 in ${ONLY:-*}) ;; *) [ -f "$folder/summary.json" ] && runs+=("$folder"); return 0 ;; esac
    shift
    train_run "$folder" "${common[@]}" "$@"
    runs+=("$folder")
}

for seed in "${seeds[@]}"; do
    train "seed$seed/full-$epochs" --seed "$seed" --scheme full --epochs "$epochs"
    for fewer in ${short[@]+"${short[@]}"}; do
        train "seed$seed/full-$fewer" --seed "$seed" --scheme full --epochs "$fewer"
    done
    for rho in ${rhos[@]+"${rhos[@]}"}; do
        for scheme in ${schemes[@]+"${schemes[@]}"}; do
            train "seed$seed/${scheme#*:}-$rho" --seed "$seed" --rho "$rho" --epochs "$epochs" --scheme "$scheme"
        done
    done
    [ ${#rhos[@]} -eq 0 ] || train "seed$seed/elastic-${rhos[0]}-without" --seed "$seed" --rho "${rhos[0]}" --epochs "$epochs" --activation-cache off
    train "seed$seed/traditional-tl" --seed "$seed" --scheme traditional-tl --epochs "$epochs"
done
et-plot curves "${runs[@]}" --output "$output/curves.png"
et-plot table "${runs[@]}" --output "$output/results.json"
python "$(dirname "${BASH_SOURCE[0]}")/summarise_runs.py" "${runs[@]}" --csv "${CSV:-$output/runs.csv}"
python "$(dirname "${BASH_SOURCE[0]}")/../figure_numbers.py" table2 "${runs[@]}" --output "$output/table2.json"
