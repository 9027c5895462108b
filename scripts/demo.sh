#!/usr/bin/env bash
# Profile and train the embedded task, elastic against full, and print accuracy and time side by side.
#     bash scripts/demo.sh [OPTION...]      options go to et-profile and et-train
# Everything it makes is in demo-output/. RHO, EPOCHS, SEEDS ("0 1 2 3 4") and VALIDATE (selections that
# are timed to check the profile) may be set.
set -euo pipefail
options=("$@")
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
prepare_environment ""

config=$repository/configs/demo.yaml
rho=${RHO:-0.5}
epochs=${EPOCHS:-$(awk '/^epochs:/ { print $2 }' "$config")}
short=$(python -c "print(max(1, round($rho * $epochs)))")
read -ra seeds <<< "${SEEDS:-0}"
output=$repository/demo-output
mkdir -p "$output"
cd "$output"

train() { # train NAME OPTION...
    local name=$1
    shift
    et-train --config "$config" --profile profile.json --seed "$seed" --output "$name" --overwrite ${options[@]+"${options[@]}"} "$@"
}

echo; echo "== et-profile"
et-profile --config "$config" --validate "${VALIDATE:-4}" --profile profile.json ${options[@]+"${options[@]}"}
et-plot timings profile.json --output timings.png
full=() shorter=() elastic=()
for seed in "${seeds[@]}"; do
    suffix=$([ "${#seeds[@]}" = 1 ] || echo "-$seed")
    echo; echo "== et-train --scheme full --epochs $epochs --seed $seed"
    train "full$suffix" --scheme full --epochs "$epochs"
    echo; echo "== et-train --scheme full --epochs $short --seed $seed: full training given the same time"
    train "full-short$suffix" --scheme full --epochs "$short"
    echo; echo "== et-train --rho $rho --epochs $epochs --seed $seed"
    train "elastic$suffix" --rho "$rho" --epochs "$epochs"
    full+=("full$suffix") shorter+=("full-short$suffix") elastic+=("elastic$suffix")
done
echo; echo "== result"
et-plot curves "${full[@]}" "${shorter[@]}" "${elastic[@]}" --output curves.png
et-plot selection "${elastic[0]}" --output selection.png
et-plot table "${full[@]}" "${shorter[@]}" "${elastic[@]}"
python "$repository/scripts/verdict.py" --full "${full[@]}" --short "${shorter[@]}" --elastic "${elastic[@]}"
