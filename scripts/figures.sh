# shellcheck shell=bash
# Sourced by the scripts of the paper's figures: what to train, what is there already, and what to draw.
#
#   QUICK=1      the same figure on the embedded data, in minutes (configs/quick.yaml)
#   EGO=1        elastic training only, without the baselines
#   DRY_RUN=1    print the commands and the hours that the profile says they take
#   MODEL, DATASET, WEIGHTS, EPOCHS    instead of the figure's own
#   OUTPUT       where runs and pictures go (figures-output); a finished run there is used again, an interrupted one resumed
#
# A run that fails is named at the end and the others go on; Ctrl-C stops everything, and the same command goes on later.
set -uo pipefail
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(dirname "$scripts")
export PATH=$repository/.venv/bin:$PATH
output=${OUTPUT:-figures-output}
figure=$(basename "$0" .sh)
runs=()
failed=()
announced=""

flag() { [ "${!1:-0}" = 1 ]; }

# either NAME DEFAULT...: what the variable NAME says, demo for QUICK, else the figure's own, one a line.
either() {
    local name=$1
    shift
    if [ -n "${!name:-}" ]; then
        echo "${!name}"
    elif flag QUICK; then
        echo demo
    else
        printf '%s\n' "$@"
    fi
}

# common DATASET MODEL: fill the array `options` with what profiling and training share.
common() {
    local config=$repository/configs/paper.yaml
    [ -f "$repository/configs/paper-$2.yaml" ] && config=$repository/configs/paper-$2.yaml
    flag QUICK && config=$repository/configs/quick.yaml
    options=(--config "$config" --dataset "$1" --model "$2")
    [ -z "${WEIGHTS:-}" ] || options+=(--weights "$WEIGHTS")
}

name_of() { basename "$1" | tr -c 'A-Za-z0-9\n' - ; }

# make_profile DATASET MODEL: the profile's path in `profile`, measured where there is none yet.
make_profile() {
    local options
    profile=$output/profiles/$(name_of "$1")_$(name_of "$2").json
    [ -f "$profile" ] && return
    common "$1" "$2"
    if flag DRY_RUN; then
        [[ $announced == *" $profile "* ]] || echo "et-profile ${options[*]} --output $profile"
        announced+=" $profile "
        return
    fi
    et-profile "${options[@]}" --output "$profile"
    stop_if_interrupted $?
}

# affordable RHO: whether the profile in `profile` says that this device can have it.
affordable() {
    flag DRY_RUN && [ ! -f "$profile" ] && return
    python "$scripts/figure_data.py" affordable "$profile" "$1"
}

# train DATASET MODEL NAME OPTION...: one run; its folder is added to `runs` when it is finished.
train() {
    local options dataset=$1 model=$2 folder
    folder=$output/runs/$(name_of "$1")_$(name_of "$2")_$3
    shift 3
    make_profile "$dataset" "$model"
    common "$dataset" "$model"
    [ -z "${EPOCHS:-}" ] || options+=(--epochs "$EPOCHS")
    options+=("$@" --profile "$profile" --output "$folder")
    if flag DRY_RUN; then
        [ -f "$folder/summary.json" ] && echo "finished: $folder" && return
        echo "et-train ${options[*]}"
        python "$scripts/figure_data.py" hours "$profile" "${options[@]}"
        return
    fi
    if [ -f "$folder/summary.json" ]; then
        echo "finished before: $folder"
    elif [ -f "$folder/config.yaml" ]; then
        et-train --resume "$folder"
    else
        et-train "${options[@]}"
    fi
    local status=$?
    stop_if_interrupted $status
    if [ $status -eq 0 ]; then
        runs+=("$folder")
    else
        failed+=("$folder")
    fi
}

# elastic DATASET MODEL RHO [OPTION...]: elastic training, where this device can have the ratio.
elastic() {
    local dataset=$1 model=$2 rho=$3
    shift 3
    make_profile "$dataset" "$model"
    if affordable "$rho"; then
        train "$dataset" "$model" "elastic-$rho" --scheme elastic --rho "$rho" "$@"
    fi
}

# baseline DATASET MODEL SCHEME: one of the schemes to compare with, left out by EGO.
baseline() { flag EGO || train "$1" "$2" "$3" --scheme "$3"; }

# four_schemes DATASET MODEL: elastic training at half the time, and the three baselines of most figures.
four_schemes() {
    local scheme
    for scheme in full traditional-tl bn-bias; do
        baseline "$1" "$2" "$scheme"
    done
    elastic "$1" "$2" 0.5
}

# curves_by_dataset DATASET...: accuracy and loss over time of the four schemes, a pair of pictures for each data set.
curves_by_dataset() {
    local dataset model all=()
    model=$(either MODEL resnet50)
    for dataset in $(either DATASET "$@"); do
        runs=()
        four_schemes "$dataset" "$model"
        draw "${figure}_$(name_of "$dataset")_accuracy" curves
        draw "${figure}_$(name_of "$dataset")_loss" curves --y loss
        all+=("${runs[@]}")
    done
    runs=("${all[@]}")
}

stop_if_interrupted() {
    if [ "$1" -eq 130 ]; then
        echo "stopped; the same command goes on from here" >&2
        exit 130
    fi
}

# draw NAME KIND [OPTION...]: a picture of all runs so far, beside its data.
draw() {
    local name=$1 kind=$2
    shift 2
    flag DRY_RUN && return
    [ ${#runs[@]} -gt 0 ] || return
    et-plot "$kind" "${runs[@]}" "$@" --output "$output/$name.png" --csv "$output/$name.csv" || failed+=("$name.png")
}

# report: the numbers behind the figure, the paper's beside them; then what failed.
report() {
    flag DRY_RUN && exit 0
    [ ${#runs[@]} -eq 0 ] || python "$scripts/figure_data.py" table "$figure" "${runs[@]}" --output "$output/$figure.json" || failed+=(table)
    if [ ${#failed[@]} -gt 0 ]; then
        printf 'failed: %s\n' "${failed[@]}" >&2
        exit 1
    fi
}
