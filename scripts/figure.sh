#!/usr/bin/env bash
# Reproduce one figure or table of the paper: profile, train what is missing, draw, and print the numbers.
#     bash scripts/figure.sh NAME
#
#   QUICK=1      the same figure on the demo data, in minutes (configs/quick.yaml)
#   EGO=1        elastic training only, without the baselines
#   DRY_RUN=1    print the commands, and the sum of the hours that they take: on the paper's devices by its own numbers, and
#                here once there is a profile
#   SEEDS        "0 1 2": each run with each of these seeds; pictures and numbers are then means (0)
#   FORMAT       of the pictures: png, pdf or svg (png)
#   MODEL, DATASET, WEIGHTS, EPOCHS, RHO, RHOS    instead of the figure's own; one each, but for RHOS ("0.4 0.5")
#   OUTPUT       where runs and pictures go (figures-output); finished runs there are reused, interrupted ones resumed
#
# If a run fails, the others go on and it is named at the end. Ctrl-C stops everything; the same command continues.
names="figure15 figure15ad figure16 figure17 figure18 figure19 figure20 figure21 figure22 figure23 table2"
case " $* " in
    *" --help "* | *" -h "*)
        sed -n '2,/^names=/s/^#\( \|$\)//p' "$0"
        printf '\nNAME is one of:\n'
        for name in $names; do
            printf '    %-12s%s\n' "$name" "$(grep -B 1 "^    $name)" "$0" | sed -n 's/^    # //p')"
        done
        exit 0
        ;;
esac
if [ $# -ne 1 ] || [[ " $names " != *" $1 "* ]]; then
    echo "usage: bash scripts/figure.sh NAME (or --help); NAME is one of: $names" >&2
    exit 2
fi
format=${FORMAT:-png}
if [[ " png pdf svg " != *" $format "* ]]; then
    echo "FORMAT=$format is none of: png pdf svg" >&2
    exit 2
fi
read -ra seeds <<< "${SEEDS:-0}"
for seed in "${seeds[@]}"; do
    if [[ ! $seed =~ ^[0-9]+$ ]]; then
        echo "SEEDS=\"$SEEDS\" is no list of seeds, such as \"0 1 2\"" >&2
        exit 2
    fi
done
set -uo pipefail
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(dirname "$scripts")
source "$scripts/train_run.sh"
export PATH=$repository/.venv/bin:$PATH
output=${OUTPUT:-figures-output}
figure=$1
runs=()
failed=()
out_of_reach=3 # status of figure_data.py for a ratio that the device cannot have
announced="" # profiles whose command a dry run has printed
plan=()      # of a dry run: --run, the profile and the options of each run

flag() { [ "${!1:-0}" = 1 ]; }

# shown COMMAND OPTION...: print a command as it can be typed.
shown() {
    printf %s "$1"
    shift
    printf ' %q' "$@"
    echo
}

# either NAME DEFAULT...: set the array `values` to the value of the variable NAME if it is set, to demo for QUICK, else to the defaults.
either() {
    local name=$1
    shift
    values=("$@")
    flag QUICK && values=(demo)
    [ -z "${!name:-}" ] || values=("${!name}")
}

# common DATASET MODEL: set the array `options` to the options that et-profile and et-train share.
common() {
    local config=$repository/configs/paper.yaml
    [ -f "$repository/configs/paper-$2.yaml" ] && config=$repository/configs/paper-$2.yaml
    flag QUICK && config=$repository/configs/quick.yaml
    options=(--config "$config" --dataset "$1" --model "$2")
    [ -z "${WEIGHTS:-}" ] || options+=(--weights "$WEIGHTS")
}

name_of() { basename "$1" | tr -c 'A-Za-z0-9\n' - ; }

# make_profile DATASET MODEL: set `profile` to the path of the profile; measure it if there is none yet.
make_profile() {
    local options
    profile=$output/profiles/$(name_of "$1")_$(name_of "$2").json
    [ -f "$profile" ] && return
    [[ " ${failed[*]-} " != *" $profile "* ]] || return 1 # it was tried
    common "$1" "$2"
    if flag DRY_RUN; then
        [[ $announced == *" $profile "* ]] || shown et-profile "${options[@]}" --output "$profile"
        announced+=" $profile "
        return
    fi
    et-profile "${options[@]}" --output "$profile"
    local status=$?
    stop_if_interrupted $status
    [ $status -eq 0 ] || failed+=("$profile")
    return $status
}

# affordable RHO: whether this device can reach that ratio, according to `profile`.
affordable() {
    [ -f "$profile" ] || { flag DRY_RUN; return; }
    python "$scripts/figure_data.py" affordable "$profile" "$1"
    local status=$?
    [ $status -eq 0 ] || [ $status -eq "$out_of_reach" ] || failed+=("$profile")
    return $status
}

# train DATASET MODEL NAME OPTION...: train a run with each seed, and add the folders of finished ones to `runs`.
train() {
    local options dataset=$1 model=$2 folder name=$3 seed
    shift 3
    make_profile "$dataset" "$model" || return
    for seed in "${seeds[@]}"; do
        folder=$output/runs/$(name_of "$dataset")_$(name_of "$model")_$name
        [ "$seed" = 0 ] || folder+=_seed$seed
        common "$dataset" "$model"
        [ -z "${EPOCHS:-}" ] || options+=(--epochs "$EPOCHS")
        options+=("$@")
        [ "$seed" = 0 ] || options+=(--seed "$seed")
        train_one
    done
}

# train_one: train the run of `options` into `folder`.
train_one() {
    if flag DRY_RUN; then
        [ -f "$folder/summary.json" ] && echo "finished: $folder" && return
        options+=(--profile "$profile" --output "$folder")
        shown et-train "${options[@]}"
        plan+=(--run "$profile" "${options[@]}")
        return
    fi
    train_run "$folder" "${options[@]}" --profile "$profile"
    local status=$?
    stop_if_interrupted $status
    if [ $status -eq 0 ]; then
        runs+=("$folder")
    else
        failed+=("$folder")
    fi
}

# Every scheme is trained as in the paper, with --reuse off. Those that freeze tensors are trained again with
# reuse, in a folder whose name ends in -reuse; where the time is too short without, that is the only form.

# paper_elastic DATASET MODEL RHO: elastic training as in the paper, if this device can reach that ratio.
paper_elastic() {
    make_profile "$1" "$2" || return
    if affordable "$3"; then
        train "$1" "$2" "elastic-$3" --scheme elastic --rho "$3" --reuse off
    fi
}

# elastic DATASET MODEL RHO: elastic training in both forms.
elastic() {
    paper_elastic "$@"
    train "$1" "$2" "elastic-$3-reuse" --scheme elastic --rho "$3"
}

# baseline DATASET MODEL SCHEME: train a scheme to compare with, unless EGO is set; traditional-tl in both forms.
baseline() {
    flag EGO && return
    train "$1" "$2" "$3" --scheme "$3" --reuse off
    [ "$3" != traditional-tl ] || train "$1" "$2" "$3-reuse" --scheme "$3"
}

# four_schemes DATASET MODEL: elastic training at rho 0.5, and the three baselines of most figures.
four_schemes() {
    local scheme
    for scheme in full traditional-tl bn-bias; do
        baseline "$1" "$2" "$scheme"
    done
    elastic "$1" "$2" 0.5
}

# curves_by_dataset DATASET...: for each data set, a picture of accuracy and one of loss over time, of four schemes.
curves_by_dataset() {
    local dataset all=()
    either DATASET "$@"
    for dataset in "${values[@]}"; do
        runs=()
        four_schemes "$dataset" "$model"
        draw "${figure}_$(name_of "$dataset")_accuracy" curves
        draw "${figure}_$(name_of "$dataset")_loss" curves --y loss
        all+=(${runs[@]+"${runs[@]}"})
    done
    runs=(${all[@]+"${all[@]}"})
}

stop_if_interrupted() {
    if [ "$1" -eq 130 ]; then
        echo "stopped; the same command goes on from here" >&2
        exit 130
    fi
}

# draw NAME KIND [OPTION...]: draw all runs so far into NAME.$format, and write the data drawn into NAME.csv.
draw() {
    local name=$1 kind=$2
    shift 2
    flag DRY_RUN && return
    [ ${#runs[@]} -gt 0 ] || return
    et-plot "$kind" "${runs[@]}" "$@" --output "$output/$name.$format" --csv "$output/$name.csv" || failed+=("$name.$format")
}

# draw_each NAME KIND: a picture of each run so far; of all but the first, NAME is followed by the seed.
draw_each() {
    local all=(${runs[@]+"${runs[@]}"}) run seed
    for run in ${all[@]+"${all[@]}"}; do
        seed=${run##*_}
        runs=("$run")
        if [[ $seed == seed* ]]; then draw "$1_$seed" "$2"; else draw "$1" "$2"; fi
    done
    runs=(${all[@]+"${all[@]}"})
}

# report: print and write the figure's numbers beside the paper's, then name what failed.
report() {
    if flag DRY_RUN; then
        [ ${#plan[@]} -eq 0 ] || python "$scripts/figure_hours.py" "$figure" "${plan[@]}"
        exit 0
    fi
    [ ${#runs[@]} -eq 0 ] || python "$scripts/figure_data.py" table "$figure" "${runs[@]}" --output "$output/$figure.json" || failed+=(table)
    if [ ${#failed[@]} -gt 0 ]; then
        printf 'failed: %s\n' "${failed[@]}" >&2
        exit 1
    fi
}

# by_rho DATASET MODEL DEFAULT...: elastic training at each ratio of RHOS.
by_rho() {
    local rho dataset=$1 model=$2
    shift 2
    for rho in ${RHOS:-$*}; do
        elastic "$dataset" "$model" "$rho"
    done
}

either DATASET caltech_birds2011
dataset=${values[0]}
either MODEL resnet50
model=${values[0]}
case $figure in
    # Accuracy (a-c) and loss (d-f) over training time, four schemes on three data sets.
    figure15) curves_by_dataset caltech_birds2011 oxford_iiit_pet stanford_dogs ;;
    # Figure 15 (a) and (d): its first data set alone.
    figure15ad) curves_by_dataset caltech_birds2011 ;;
    # As Figure 15, on the two data sets that the paper trained on a Raspberry Pi. None of its numbers is on record.
    figure16) curves_by_dataset oxford_iiit_pet stanford_dogs ;;
    # Accuracy against time (a, c) and FLOPs (b, d), by rho and for every baseline.
    figure17)
        by_rho "$dataset" "$model" 0.35 0.4 0.5 0.6 0.7
        for scheme in full traditional-tl bn-bias prunetrain; do
            baseline "$dataset" "$model" "$scheme"
        done
        for quantity in accuracy time flops; do
            draw "figure17_$quantity" bars --y "$quantity"
        done
        ;;
    # FLOPs of every epoch, by rho.
    figure18)
        baseline "$dataset" "$model" full
        by_rho "$dataset" "$model" 0.4 0.5 0.6 0.7
        draw figure18 curves --x epochs --y flops
        ;;
    # Accuracy and time of four models at rho 0.4, against full training.
    figure19)
        either MODEL resnet50 vgg16 mobilenetv2 vit
        for model in "${values[@]}"; do
            baseline "$dataset" "$model" full
            elastic "$dataset" "$model" "${RHO:-0.4}"
        done
        draw figure19_accuracy bars --y accuracy
        draw figure19_time bars --y time
        ;;
    # Three metrics of importance, at the same time.
    figure20)
        paper_elastic "$dataset" "$model" 0.5
        if affordable 0.5; then
            for metric in weight-magnitude grad-magnitude; do
                train "$dataset" "$model" "elastic-$metric" --scheme "elastic-$metric" --rho 0.5 --reuse off
            done
        fi
        draw figure20 curves
        ;;
    # Which tensors each selection chose, and their importance. The paper has no number.
    figure21)
        paper_elastic "$dataset" "$model" 0.5
        draw_each figure21 selection
        draw_each figure21_importance importance
        ;;
    # Peak memory, elastic against full training.
    figure22)
        baseline "$dataset" "$model" full
        elastic "$dataset" "$model" 0.5
        draw figure22 bars --y memory
        ;;
    # Energy of training, elastic against full, where the device has a sensor.
    figure23)
        baseline "$dataset" "$model" full
        elastic "$dataset" "$model" 0.5
        draw figure23 bars --y energy
        ;;
    # Time to a target accuracy, against the best baseline.
    table2)
        either DATASET caltech_birds2011 oxford_iiit_pet stanford_dogs
        for dataset in "${values[@]}"; do
            four_schemes "$dataset" "$model"
        done
        ;;
esac
report
