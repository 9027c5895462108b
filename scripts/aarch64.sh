#!/usr/bin/env bash
# The demo on what a 64-bit Raspberry Pi installs, without a board: Debian's Python 3.11 for aarch64 and the aarch64 wheels of
# tests/files/wheels.json, in an emulator on an x86-64 Linux machine.
#     bash scripts/aarch64.sh
# Import, profile, three short epochs that are interrupted and resumed, export, and the exported network against the model.
#
#   WORK     where everything is (elastictrainer-aarch64 in TMPDIR, or /tmp): system/ and wheels/ stay for the next time, run/ is made
#            again; 2.3 GB. The script writes nowhere else, and needs no root.
#   MIRROR   of Debian (http://deb.debian.org/debian)
#
# It proves that the code runs there, and says nothing about speed: an emulated step takes twelve to forty times a real one.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=${WORK:-${TMPDIR:-/tmp}/elastictrainer-aarch64}
mirror=${MIRROR:-http://deb.debian.org/debian}
PATH=$PATH:/usr/sbin:/sbin # an ordinary user's lacks debootstrap
root=$work/system wheels=$work/wheels run=$work/run

[ $# -eq 0 ] || { echo "usage: bash scripts/aarch64.sh; WORK and MIRROR are read from the environment" >&2; exit 2; }
[ "$(uname -s) $(uname -m)" = "Linux x86_64" ] || {
    echo "scripts/aarch64.sh emulates a board on an x86-64 Linux machine; this is $(uname -s) $(uname -m). On a board: bash scripts/demo.sh" >&2
    exit 2
}
missing=()
for program in qemu-aarch64-static:qemu-user-static debootstrap:debootstrap fakeroot:fakeroot dpkg-deb:dpkg python3:python3; do
    command -v "${program%:*}" >/dev/null || missing+=("${program#*:}")
done
python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip)
[ ${#missing[@]} -eq 0 ] || { echo "not installed: ${missing[*]}. On Debian: sudo apt install ${missing[*]}" >&2; exit 2; }

mkdir -p "$work"
training=""
leave() {
    [ -z "$training" ] || kill "$training" 2>/dev/null || true
    rm -rf "$root.partial" "$wheels.partial"
    echo "left in $work; remove it with: rm -r $work"
}
trap leave EXIT

# Every package that Python needs is unpacked, none is configured: only that would need root.
if [ ! -d "$root" ]; then
    echo "== Debian 12 for arm64 with Python 3.11"
    fakeroot debootstrap --foreign --arch=arm64 --variant=minbase --include=python3.11 bookworm "$root.partial" "$mirror" >"$work/system.log" 2>&1 || {
        tail -n 5 "$work/system.log" >&2
        exit 1
    }
    for package in "$root.partial"/var/cache/apt/archives/*.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink --no-same-owner -C "$root.partial"
    done
    # The emulator looks for every path in there first: devices and the like must be this machine's.
    rm -rf "$root.partial"/{dev,proc,sys,run,tmp,var/cache/apt/archives}
    mv "$root.partial" "$root"
fi
if [ ! -d "$wheels" ]; then
    echo "== the aarch64 wheels for Python 3.11"
    python3 - "$repository/tests/files/wheels.json" >"$work/wheels.txt" <<'EOF'
import json, sys

for name, version in json.load(open(sys.argv[1]))["3.11 aarch64"].items():
    if name != "promise":
        print(f"{name}=={version}")
EOF
    fetch=(python3 -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --upgrade --target "$wheels.partial")
    "${fetch[@]}" --requirement "$work/wheels.txt" --only-binary :all: --python-version 3.11 --implementation cp --abi cp311 --abi abi3 \
        --abi none --platform manylinux_2_34_aarch64 --platform manylinux_2_31_aarch64 --platform manylinux_2_28_aarch64 \
        --platform manylinux_2_27_aarch64 --platform manylinux_2_26_aarch64 --platform manylinux_2_24_aarch64 \
        --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 --platform any
    "${fetch[@]}" promise==2.3 # pure Python, without a wheel
    mv "$wheels.partial" "$wheels"
fi

rm -rf "$run"
mkdir -p "$run"
cp -r "$repository/elastictrainer" "$run/elastictrainer"
cd "$run"
export PYTHONPATH=$run:$wheels PYTHONNOUSERSITE=1 TF_CPP_MIN_LOG_LEVEL=3
unset PYTHONHOME LD_LIBRARY_PATH LD_PRELOAD

emulated=(qemu-aarch64-static -cpu max -L "$root" "$root/usr/bin/python3.11")
python() { "${emulated[@]}" "$@"; }
# step TITLE COMMAND...: run a command, and say how long it took.
TIMEFORMAT="-- %R s; on the processor %U s"
step() {
    echo
    echo "== $1"
    shift
    time "$@"
}

# The versions; and a part of the embedded images, enough for short epochs.
prepare() {
    python - <<'EOF'
import platform

from pathlib import Path

import tensorflow as tf
from PIL import Image

from elastictrainer.data import demo_digits

print(platform.machine(), "Python", platform.python_version(), "TensorFlow", tf.__version__, "Keras", tf.keras.__version__)
for part, count in (("train", 80), ("test", 64)):
    for number, (pixels, label) in enumerate(zip(*demo_digits.digits(part))):
        folder = Path("digits", part, str(label))
        folder.mkdir(parents=True, exist_ok=True)
        if number < count:
            Image.fromarray(pixels).save(folder / f"{number}.png")
EOF
}

# Begin three epochs, and end them once the first one is written down, by the signal of a shutdown: what a script in the background
# starts ignores Ctrl-C.
interrupted() {
    "${emulated[@]}" -m elastictrainer.cli.train "${task[@]}" --epochs 3 --interval 3 --importance-batches 2 --profile profile.json --output demo &
    training=$!
    while [ ! -s demo/metrics.jsonl ] && kill -0 "$training" 2>/dev/null; do sleep 1; done
    kill "$training" 2>/dev/null || true
    local status=0
    wait "$training" || status=$?
    training=""
    [ $status -eq 130 ] || { echo "interrupted training ended with status $status, not 130" >&2; return 1; }
}

# The exported network must choose the classes that the model chooses.
compare() {
    python - <<'EOF'
import numpy as np
import tensorflow as tf

from elastictrainer.data import demo_digits
from elastictrainer.models import user_models

images, labels = (array[:64] for array in demo_digits.digits("test"))
images = images.astype("float32")
expected = user_models.read("demo/model.keras").predict(images, batch_size=16, verbose=0)
lite = tf.lite.Interpreter("demo/export/model.tflite")
lite.allocate_tensors()
given, made = lite.get_input_details()[0], lite.get_output_details()[0]
found = []
for image in images:
    lite.set_tensor(given["index"], image[None])
    lite.invoke()
    found.append(lite.get_tensor(made["index"])[0])
same = np.mean(np.argmax(found, axis=1) == expected.argmax(axis=1))
print(f"64 test images: accuracy of the model {np.mean(expected.argmax(axis=1) == labels):.3f}, same class from TFLite {same:.3f}")
assert same == 1
EOF
}

task=(--model demo --dataset digits --batch-size 4 --learning-rate 0.003)
step import prepare
step et-profile python -m elastictrainer.cli.profile "${task[@]}" --warmup-steps 2 --steps 2 --calibration-seconds 0 --profile profile.json
step "et-train, interrupted" interrupted
step "et-train --resume" python -m elastictrainer.cli.train --resume demo
step et-export python -m elastictrainer.cli.export demo --format tflite
step "TFLite against the model" compare
if [ -f elastictrainer/cli/predict.py ]; then
    step et-predict python -m elastictrainer.cli.predict demo digits/test
fi
echo
echo "everything ran"
