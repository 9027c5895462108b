# shellcheck shell=bash
# Sourced by demo.sh and test.sh: a virtual environment in .venv with this package in it.
# PYTHON names the interpreter to use; without it the first of 3.11, 3.10 and 3.9 that runs is taken.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3.10 python3.9 python3 python; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return 0
        fi
    done
    echo "No Python 3.9, 3.10 or 3.11 found (TensorFlow 2.15 needs one). Install it, or set PYTHON=/path/to/python." >&2
    return 1
}

# prepare_environment [EXTRA]: create .venv where there is none, install this package with the extra, activate.
prepare_environment() {
    local python venv=$repository/.venv target=$repository${1:+[$1]} log
    if [ ! -x "$venv/bin/python" ]; then
        python=$(find_python) || return 1
        echo "creating $venv with $("$python" --version)"
        "$python" -m venv "$venv" || {
            echo "could not create a virtual environment; on Debian: apt install python3-venv" >&2
            return 1
        }
    fi
    log=$venv/install.log
    echo "installing (a few minutes the first time)"
    "$venv/bin/python" -m pip install --disable-pip-version-check --editable "$target" >"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        echo "installation failed; the whole log: $log" >&2
        return 1
    }
    export PATH=$venv/bin:$PATH
}
