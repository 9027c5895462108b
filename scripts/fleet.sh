#!/usr/bin/env bash
# Compare three rules for a fleet of eight simulated clients, four of them four times slower; docs/fleet.md has the table.
#     DATA=/path/to/cub100 WEIGHTS=/path/to/mobilenet_v2_weights_tf_dim_ordering_tf_kernels_1.0_224_no_top.h5 bash scripts/fleet.sh
# Without DATA it is the embedded task. ROUNDS ("4 7 8": of full, drop, elastic) may be set; arguments are settings of the
# fleet, such as least-rho=0.4. Writes into fleet-output/, with all that Flower, Ray and TensorFlow print in RULE.log.
set -euo pipefail
export STACK=keras3
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
prepare_environment flower

read -ra rounds <<< "${ROUNDS:-4 7 8}"
if [ -n "${DATA:-}" ]; then
    weights=${WEIGHTS:-imagenet}
    if [ -f "$weights" ]; then
        weights=$(cd "$(dirname "$weights")" && pwd)/$(basename "$weights")
    fi
    settings="dataset='$(cd "$DATA" && pwd)' model='mobilenetv2' weights='$weights' image-size=64"
else
    settings="dataset='demo' model='demo'"
fi
output=$repository/fleet-output
mkdir -p "$output"
cd "$output"
settings+=" batch-size=16 clients=8 slow-downs='1,1,1,1,4,4,4,4' timeout=7200.0 profile='$output/profile.json' $*"
# One client at a time, so that the profile is of a whole machine.
simulation="num-supernodes=8 client-resources-num-cpus=1 init-args-num-cpus=1"

# A SuperLink of our own: `flwr run` gives one 15 s to start, which a busy machine exceeds, and leaves it running.
ports='import socket; s = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]; print(*(one.getsockname()[1] for one in s))'
read -r FLWR_LOCAL_SUPERLINK_HTTP_API_PORT FLWR_LOCAL_CONTROL_API_PORT < <(python -c "$ports")
export FLWR_LOCAL_SUPERLINK_HTTP_API_PORT FLWR_LOCAL_CONTROL_API_PORT FLWR_HOME=$output/flwr
export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 TF_CPP_MIN_LOG_LEVEL=3
echo "Flower starts"
# Compiles and reads what Flower's processes import: one that says nothing for 30 s would be started again, and again.
python -c 'import flwr.simulation, ray, tensorflow' 2>/dev/null
flower-superlink --insecure --simulation --isolation subprocess --host 127.0.0.1 --port "$FLWR_LOCAL_SUPERLINK_HTTP_API_PORT" \
    --control-api-address "127.0.0.1:$FLWR_LOCAL_CONTROL_API_PORT" >superlink.log 2>&1 &
superlink=$!
trap 'kill "$superlink" 2>/dev/null || true' EXIT
answers="import urllib.request; urllib.request.urlopen('http://127.0.0.1:$FLWR_LOCAL_SUPERLINK_HTTP_API_PORT/health')"
until python -c "$answers" 2>/dev/null; do
    if ! kill -0 "$superlink" 2>/dev/null; then
        tail -n 20 superlink.log >&2
        exit 1
    fi
    sleep 1
done

app=$(python -m elastictrainer.fleet)
rules=(full drop elastic)
for k in 0 1 2; do
    rule=${rules[$k]}
    rm -rf "$rule"
    echo "rule $rule, ${rounds[$k]} rounds"
    flwr run "$app" --stream --federation-config "$simulation" \
        --run-config "$settings rule='$rule' rounds=${rounds[$k]} output='$output/$rule'" 2>&1 |
        tee "$rule.log" | { grep --line-buffered -o 'fleet: .*' || true; }
    if [ ! -e "$rule/model.keras" ]; then # flwr run succeeds even where the run fails
        tail -n 20 "$rule.log" >&2
        echo "the run failed; all that was printed: $output/$rule.log" >&2
        exit 1
    fi
done
python "$repository/studies/fleet.py" "${rules[@]}" --output fleet.csv
