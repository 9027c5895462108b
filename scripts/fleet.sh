#!/usr/bin/env bash
# Compare three rules for a fleet of eight simulated clients, four of them four times slower; docs/fleet.md has the picture.
#     DATA=/path/to/cub100 WEIGHTS=/path/to/mobilenet_v2_weights_tf_dim_ordering_tf_kernels_1.0_224_no_top.h5 bash scripts/fleet.sh
# Without DATA it is the embedded task. ROUNDS ("4 7 8": of full, drop, elastic) may be set. Writes into fleet-output/.
set -euo pipefail
export STACK=keras3
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
prepare_environment flower

read -ra rounds <<< "${ROUNDS:-4 7 8}"
if [ -n "${DATA:-}" ]; then
    options=(--dataset "$DATA" --model mobilenetv2 --weights "${WEIGHTS:-imagenet}" --image-size 64 --batch-size 16)
else
    options=(--dataset demo --model demo --batch-size 16)
fi
mkdir -p "$repository/fleet-output"
cd "$repository/fleet-output"
rules=(full drop elastic)
for k in 0 1 2; do
    python "$repository/studies/fleet.py" run "${rules[$k]}" --rounds "${rounds[$k]}" "${options[@]}" "$@"
done
python "$repository/studies/fleet.py" draw full drop elastic --output fleet.png
