#!/usr/bin/env bash
# For other scripts: source it.

# train_run FOLDER OPTION...: et-train into FOLDER. A finished run there is kept, an interrupted one gone on with.
train_run() {
    local folder=$1
    shift
    if [ -f "$folder/summary.json" ]; then
        echo "kept: $folder"
    elif [ -f "$folder/config.yaml" ]; then
        et-train --resume "$folder"
    else
        et-train "$@" --output "$folder"
    fi
}
