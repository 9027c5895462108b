#!/usr/bin/env bash
# For other scripts: source it.

# train_run FOLDER OPTION...: et-train into FOLDER. A finished run there is kept, an interrupted one gone on with; one that was begun with
# other options (FOLDER.options tells) is an error.
train_run() {
    local folder=$1 options
    shift
    options=$(printf ' %q' "$@")
    if [ -f "$folder/config.yaml" ] && [ -f "$folder.options" ] && [ "$(< "$folder.options")" != "$options" ]; then
        echo "error: $folder is a run with other options: $folder.options. Set OUTPUT to another folder, or remove both." >&2
        return 2
    fi
    if [ -f "$folder/summary.json" ]; then
        echo "kept: $folder"
    elif [ -f "$folder/config.yaml" ]; then
        et-train --resume "$folder"
    else
        mkdir -p "$(dirname "$folder")"
        echo "$options" > "$folder.options"
        et-train "$@" --output "$folder"
    fi
}
