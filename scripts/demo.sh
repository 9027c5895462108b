#!/usr/bin/env bash
# Profile and train the embedded task, elastic against its rivals, and print accuracy and time side by side.
#     bash scripts/demo.sh [OPTION...]      options go to et-profile and et-train
# All start from the same solved head, each at its best learning rate of those tried
# (docs/results.md#embedded-task). Everything it makes is in demo-output/. RHO, EPOCHS,
# SEEDS ("0 1 2 3 4") and VALIDATE (selections that are timed to check the profile) may be set.
set -euo pipefail
options=("$@")
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
prepare_environment ""

config=$repository/configs/demo.yaml
rho=${RHO:-0.3}
epochs=${EPOCHS:-$(awk '/^epochs:/ { print $2 }' "$config")}
short=$(python -c "print(max(1, round($rho * $epochs)))")
read -ra seeds <<< "${SEEDS:-0}"
output=$repository/demo-output
mkdir -p "$output"
cd "$output"

train() { # train NAME OPTION...
    local name=$1$suffix
    shift
    echo; echo "== $name: et-train $* --seed $seed"
    et-train --config "$config" --profile profile.json --seed "$seed" --output "$name" --overwrite "$@" ${options[@]+"${options[@]}"}
}

echo; echo "== et-profile"
et-profile --config "$config" --validate "${VALIDATE:-4}" --profile profile.json ${options[@]+"${options[@]}"}
et-plot timings profile.json --output timings.png
suffixes=("${seeds[@]/#/-}")
[ "${#seeds[@]}" != 1 ] || suffixes=("")
for k in "${!seeds[@]}"; do
    seed=${seeds[k]} suffix=${suffixes[k]}
    train full --scheme full --epochs "$epochs" --learning-rate 3e-3
    train full-short --scheme full --epochs "$short" --learning-rate 3e-3             # given the same time
    train freeze-below --scheme freeze-below --rho "$rho" --epochs "$epochs" --learning-rate 3e-3 # the late layers that fit
    train elastic --rho "$rho" --epochs "$epochs" --learning-rate 1e-3
done
echo; echo "== result"
full=("${suffixes[@]/#/full}") shorter=("${suffixes[@]/#/full-short}")
below=("${suffixes[@]/#/freeze-below}") elastic=("${suffixes[@]/#/elastic}")
all=("${full[@]}" "${shorter[@]}" "${below[@]}" "${elastic[@]}")
et-plot curves "${all[@]}" --output curves.png
et-plot selection "${elastic[0]}" --output selection.png
et-plot table "${all[@]}"
python "$repository/scripts/verdict.py" --full "${full[@]}" --short "${shorter[@]}" --below "${below[@]}" --elastic "${elastic[@]}"
