# shellcheck shell=bash
# Sourced by demo.sh, test.sh, lint.sh, docs.sh and build.sh: a virtual environment in .venv with this package in it.
# PYTHON names the interpreter to use; without it the first that runs is taken, 3.11 before the others.
# STACK=keras3 makes .venv-keras3 instead, with the versions that 64-bit Arm gets (TensorFlow 2.21, Keras 3).

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3.10 python3.9 python3.12 python3.13 python3 python; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
            echo "$candidate"
            return 0
        fi
    done
    echo "No Python 3.9 to 3.13 found. Install one, or set PYTHON=/path/to/python." >&2
    return 1
}

# Modules are compiled when they are first imported, and kept: TensorFlow has thousands that never are. Where compiled ones
# are not to be kept, as in many containers, every process would take 6 s longer to load it.
lean=--no-compile
unset PYTHONDONTWRITEBYTECODE

# install VENV EXTRA [alone]: this package, as pip takes it for this machine, or for another with STACK=keras3; or what the extra lists.
install() {
    local venv=$1 extra=$2 alone=${3:-}
    if [ "${STACK:-}" != keras3 ] && [ -z "$alone" ]; then
        "$venv/bin/python" -m pip install $lean --editable "$repository${extra:+[$extra]}"
        return
    fi
    "$venv/bin/python" -m pip install $lean packaging "tomli; python_version < '3.11'" &&
        "$venv/bin/python" "$repository/scripts/requirements_of.py" ${extra:+--extra "$extra"} ${alone:+--alone} >"$venv/requirements.txt" &&
        "$venv/bin/python" -m pip install $lean --requirement "$venv/requirements.txt" &&
        { [ -n "$alone" ] || "$venv/bin/python" -m pip install $lean --no-deps --editable "$repository"; }
}

version_of() { "$1" -c 'import platform; print(platform.python_version())'; }

# prepare_environment [EXTRA [alone]]: create the environment where there is none, install this package with the extra, activate.
# With `alone`: .venv-EXTRA, in which there is nothing but what the extra lists. What was installed by the same pyproject.toml
# is not installed again; every extra comes with the package itself.
prepare_environment() {
    local python venv=$repository/.venv${STACK:+-$STACK} log sum
    if [ "${2:-}" = alone ]; then
        venv=$repository/.venv-$1
    fi
    if [ -n "${STACK:-}" ] && [ "$STACK" != keras3 ]; then
        echo "STACK=$STACK: the only other stack is keras3" >&2
        return 2
    fi
    if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then # none, half of one, or its interpreter is gone
        python=$(find_python) || return 1
        rm -f "$venv/installed"
        find -L "$venv/bin" -name 'python*' -type l -exec rm {} + 2>/dev/null || true # that lead nowhere: venv does not replace them
        echo "creating $venv with $("$python" --version)"
        "$python" -m venv "$venv" || {
            echo "could not create a virtual environment; on Debian: apt install python3-venv" >&2
            return 1
        }
    fi
    if [ -n "${PYTHON:-}" ] && [ "$(version_of "$PYTHON")" != "$(version_of "$venv/bin/python")" ]; then
        echo "note: $venv has Python $(version_of "$venv/bin/python"), not that of PYTHON=$PYTHON: remove it to have another" >&2
    fi
    sum=$({ echo "$repository" && cat "$repository/pyproject.toml" "$repository/elastictrainer/__init__.py"; } | cksum)
    if ! grep -qsx "${1:-.*} $sum" "$venv/installed"; then
        log=$venv/install.log
        echo "installing (a few minutes the first time)"
        PIP_DISABLE_PIP_VERSION_CHECK=1 install "$venv" "${1:-}" "${2:-}" >"$log" 2>&1 || {
            tail -n 20 "$log" >&2
            echo "installation failed; the whole log: $log" >&2
            return 1
        }
        echo "${1:-} $sum" >>"$venv/installed"
    fi
    export PATH=$venv/bin:$PATH
}
