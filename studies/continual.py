r"""New data later: what a run that starts from an earlier one learns and forgets.

    python studies/continual.py --dataset path/to/cub100 --work continual -- \
        --model mobilenetv2 --weights path/to/mobilenet_v2.h5 --image-size 128

"classes": the first half of the classes, then the other half. "looks": the first half, then the same images
darker and tinted red. What follows `--` goes to the first run of et-train; all others start from it, with so
many old images of each class. A row of the CSV file is a run: accuracy in per cent on the old and on the new
test images. Finished runs are not repeated.
"""

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from elastictrainer.runs.files import write_csv
from elastictrainer.runs.run_folder import RunFolder

DARKER, TINT = 0.6, (1.0, 0.75, 0.6)  # factors of all values, and of red, green and blue
COLUMNS = ("change", "kept", "old before", "old", "new", "epochs", "replayed")


def link(source, work):
    """Make folders of both halves of the classes; the images stay where they are."""
    names = sorted(path.name for path in (source / "train").iterdir() if path.is_dir())
    for half, chosen in {"first": names[: len(names) // 2], "second": names[len(names) // 2 :]}.items():
        for part in ("train", "test"):
            (work / half / part).mkdir(parents=True, exist_ok=True)
            for name in chosen:
                there = work / half / part / name
                if not there.is_symlink():
                    there.symlink_to((source / part / name).resolve(), target_is_directory=True)


def change_looks(work):
    """Write the images of the first half, darker and tinted red."""
    for file in sorted((work / "first").glob("*/*/*")):
        changed = work / "looks" / file.relative_to(work / "first").with_suffix(".png")
        if not changed.exists():
            changed.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.asarray(Image.open(file).convert("RGB")) * (DARKER * np.array(TINT))
            Image.fromarray(np.rint(pixels).astype(np.uint8)).save(changed)


def train(run, *options):
    """Train into `run` unless it is there; returns its summary."""
    if not (run / "summary.json").exists():
        command = [sys.executable, "-m", "elastictrainer.cli.train", *map(str, options), "--output", str(run)]
        print(shlex.join(command), flush=True)
        subprocess.run([*command, "--overwrite"], check=True)
    return RunFolder(run).summary()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", required=True, help="folder with train/CLASS/IMAGE and test/CLASS/IMAGE")
    parser.add_argument("--work", default="continual", help="folder for the halves and the runs")
    parser.add_argument("--changes", nargs="+", default=["classes", "looks"])
    parser.add_argument("--kept", nargs="+", type=int, default=[0, 1, 5, 20])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--csv", default="continual.csv")
    parser.add_argument("--each", default="", help="options of the runs after the first, in one text")
    parser.add_argument("first", nargs="*", help="options of the first run, after --")
    options = parser.parse_args()
    work, rows = Path(options.work), []
    link(Path(options.dataset), work)
    if "looks" in options.changes:
        change_looks(work)
    for seed in options.seeds:
        first = work / f"first-seed{seed}"
        before = train(first, "--dataset", work / "first", "--seed", seed, *options.first)["accuracy"]
        for change in options.changes:
            for kept in options.kept:
                new = work / {"classes": "second", "looks": "looks"}[change]
                how = ("--init-from", first, "--dataset", new, "--keep", kept, "--seed", seed)
                found = train(work / f"{change}-{kept}-seed{seed}", *how, *shlex.split(options.each))
                figures = [100 * before, 100 * found["accuracy_old"], 100 * found["accuracy_new"]]
                shares = found["epochs"], f"{found['cached_share']:.2f}"
                rows.append((change, kept, *(f"{figure:.2f}" for figure in figures), *shares))
                write_csv(options.csv, COLUMNS, rows)
                print(dict(zip(COLUMNS, rows[-1])), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
