#!/usr/bin/env bash
# One et-train option at several values, by each scheme, one run after the other.
#     OPTION=interval VALUES="1 2 4 6 12" bash studies/sweep.sh --model mobilenetv2 --dataset path/to/cub100 ...
#     OPTION=importance-batches VALUES="1 2 4 8 16 32" bash studies/sweep.sh ...
#     OPTION=learning-rate VALUES="3e-5 1e-4 3e-4 1e-3" SCHEMES="full elastic freeze-below" bash studies/sweep.sh ...
# SCHEMES ("elastic"), SEEDS ("0 1 2"), OUTPUT (benchmark-output/sweep) and CSV (OUTPUT/OPTION.csv) may be set. Finished runs are kept.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/train_run.sh"
option=${OPTION:?set OPTION to an option of et-train, such as interval}
output=${OUTPUT:-benchmark-output/sweep}
read -ra values <<< "${VALUES:?set VALUES to the values of OPTION, such as \"1 2 4\"}"
read -ra schemes <<< "${SCHEMES:-elastic}"
read -ra seeds <<< "${SEEDS:-0 1 2}"
runs=()
for seed in "${seeds[@]}"; do
    for value in "${values[@]}"; do
        for scheme in "${schemes[@]}"; do
            folder=$output/seed$seed/${scheme#*:}-$option-$value
            runs+=("$folder")
            train_run "$folder" "$@" --scheme "$scheme" --seed "$seed" "--$option" "$value"
        done
    done
done
python "$(dirname "${BASH_SOURCE[0]}")/../scripts/benchmarks/summarise_runs.py" "${runs[@]}" --csv "${CSV:-$output/$option.csv}"
