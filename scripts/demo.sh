#!/usr/bin/env bash
# Profile and train the embedded task, elastic against full, and print accuracy and time side by side.
#     bash scripts/demo.sh
# Everything it makes is in demo-output/. Set RHO for another speed.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
prepare_environment ""

rho=${RHO:-0.5}
output=$repository/demo-output
mkdir -p "$output"
cd "$output"
config=$repository/configs/demo.yaml

echo; echo "== et-profile"
et-profile --config "$config" --validate 4 --output profile.json --plot timings.png
echo; echo "== et-train --scheme full"
et-train --config "$config" --scheme full --profile profile.json --output full --overwrite
epochs=$(awk '/^epochs:/ { print $2 }' "$config")
short=$(python -c "print(max(1, round($rho * $epochs)))")
echo; echo "== et-train --scheme full --epochs $short: full training given the same time"
et-train --config "$config" --scheme full --epochs "$short" --profile profile.json --output full-short --overwrite
echo; echo "== et-train --rho $rho"
et-train --config "$config" --rho "$rho" --profile profile.json --output elastic --overwrite
echo; echo "== result"
et-plot curves full full-short elastic --output curves.png
et-plot selection elastic --output selection.png
et-plot table full full-short elastic
