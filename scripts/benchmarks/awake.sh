#!/usr/bin/env bash
# Run a command while a loop of idle priority keeps every processor busy. Linux only.
#     bash scripts/benchmarks/awake.sh python scripts/benchmarks/time_model.py mobilenetv2
# The host of a virtual machine hands a processor that sleeps to others, and may take its time to give it back. A training step
# sleeps at every op that waits for another: `steal` in /proc/stat shows what is lost so.
# The loops give way at once to whatever else wants to run.
set -uo pipefail
[ $# -gt 0 ] || { echo "usage: bash scripts/benchmarks/awake.sh COMMAND [ARGUMENT...]" >&2; exit 2; }
{ command -v chrt && command -v taskset; } >/dev/null || { echo "awake.sh needs chrt and taskset; on Debian: apt install util-linux" >&2; exit 1; }
loops=()
trap 'kill "${loops[@]}" 2>/dev/null' EXIT
for processor in $(taskset --cpu-list --pid $$ | sed 's/.*: //' | tr ',' ' '); do
    for one in $(seq "${processor%-*}" "${processor#*-}"); do
        chrt --idle 0 taskset --cpu-list "$one" bash -c "while kill -0 $$ 2>/dev/null; do for k in {1..100000}; do :; done; done" &
        loops+=($!)
    done
done
"$@"
