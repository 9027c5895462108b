"""Whole runs of `et-train --memory`: the peak of each process, which a control group of that size holds.

    python scripts/benchmarks/memory_kept.py mobilenetv2 --images path/to/flowers12 --weights WEIGHTS
    python scripts/benchmarks/memory_kept.py vit --images path/to/flowers12 --classes 4 --each 4 --sizes 1.5GB

Each run does all that a run does: its own profile, the head, selections, the cache, evaluation. Full training
comes first, without a limit; the others are under --memory at shares of its peak. The peak is the largest
resident memory that the kernel counted (that of /usr/bin/time -v). Where this user may make a control group,
the run is in one with --memory as its limit, and the kernel kills what exceeds it. (`ulimit -v` says nothing
here: TensorFlow reserves several times the addresses that it uses.) Where a size is refused with the least to
ask for, that size is tried, too. Rows are added to the JSON file; a row of the same run is replaced.
"""

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import bench
from elastictrainer.experiment.settings import parse_bytes
from elastictrainer.runs.files import write_csv
from elastictrainer.runs.run_folder import RunFolder

_COLUMNS = ("model", "run", "memory", "peak", "in_group", "status", "accuracy", "trained", "said")
_TRAINED = {"the head alone is solved": "head", "the last layers train": "last layers"}
_LEAST = re.compile(r"The least, .*, is ([\d.]+GB)")


def few(images: Path, folder: Path, classes: Optional[int], each: Optional[int]) -> Path:
    """Link the first `each` images of the first classes into `folder`; all of them where nothing is asked."""
    if classes is None and each is None:
        return images
    for part in ("train", "test"):
        for of_class in sorted((images / part).iterdir())[:classes]:
            made = folder / part / of_class.name
            made.mkdir(parents=True)
            for image in sorted(of_class.iterdir())[:each]:
                (made / image.name).symlink_to(image.resolve())
    return folder


@contextlib.contextmanager
def control_group(limit: int) -> Iterator[Optional[Path]]:
    """Make a control group of so many bytes, of version 1 or 2; None where this user may not."""
    root = Path("/sys/fs/cgroup")
    parent, name = (root / "memory", "memory.limit_in_bytes")
    if not parent.is_dir():
        parent, name = root, "memory.max"
    group = parent / f"memory-kept-{os.getpid()}"
    try:
        group.mkdir()
        (group / name).write_text(str(limit))
    except OSError:
        with contextlib.suppress(OSError):
            group.rmdir()
        yield None
        return
    try:
        yield group
    finally:
        group.rmdir()


def measured(command: List[str], group: Optional[Path]) -> Dict[str, Any]:
    """Run a command in a control group; returns its status, its peak in bytes, what it trained, and the last
    line that it wrote where it failed.
    """

    def enter() -> None:
        if group is not None:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    # In an empty folder no profile is found, so that the run makes its own.
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryDirectory() as empty:
        how = {"stdout": output, "stderr": subprocess.STDOUT, "preexec_fn": enter}
        process = subprocess.Popen(command, cwd=empty, **how)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        lines = output.read().strip().splitlines()
    prepared = [trained for line in lines for said, trained in _TRAINED.items() if said in line]
    return {
        "status": process.returncode,
        "trained": "" if process.returncode else prepared[-1] if prepared else "selected tensors",
        "peak": 1024 * usage.ru_maxrss,
        "in_group": group is not None,
        "said": lines[-1] if lines and process.returncode else "",
    }


def train(model: str, images: Path, options: Any, memory: Optional[int], folder: Path) -> Dict[str, Any]:
    """Train in a process of its own, in full or within `memory` bytes; returns the row of the table."""
    weights = str(Path(options.weights).resolve()) if model == "mobilenetv2" else "none"
    command = [sys.executable, "-m", "elastictrainer.cli.train", "--model", model, "--weights", weights]
    command += ["--dataset", str(images), "--epochs", str(options.epochs), "--output", str(folder)]
    command += ["--overwrite", "--batch-size", str(options.batch_size)]
    command += ["--optimizer", "adam"] if model == "vit" else []
    if memory is None:
        made = measured([*command, "--scheme", "full"], None)
    else:
        command += ["--rho", str(options.rho), "--memory", f"{memory}B"]
        command += ["--calibration-seconds", str(options.calibration_seconds)]
        with control_group(memory) as group:
            made = measured([*command, *options.more], group)
    if not made["status"]:
        made["accuracy"] = RunFolder(folder).summary()["accuracy"]
    return made


def runs(model: str, images: Path, options: Any, folder: Path) -> Iterator[Dict[str, Any]]:
    """Train in full, then within each limit, and yield the rows of the table."""
    asked = {size: parse_bytes(size) for size in options.sizes}
    if options.shares:
        full = train(model, images, options, None, folder)
        yield {"model": model, "run": "full training", "memory": None, **full, "trained": "all tensors"}
        asked = {**{f"{share:g} of full": int(share * full["peak"]) for share in options.shares}, **asked}
    for name, memory in asked.items():
        row = train(model, images, options, memory, folder)
        yield {"model": model, "run": name, "memory": memory, **row}
        least = _LEAST.search(row["said"])
        if least:
            memory = parse_bytes(least[1])
            row = train(model, images, options, memory, folder)
            yield {"model": model, "run": f"the least of {name}", "memory": memory, **row}


def main() -> None:
    parser = bench.parser(__doc__, "benchmark-output/memory_kept.json", ("mobilenetv2", "vit"))
    parser.add_argument("--shares", type=float, nargs="*", default=[0.7, 0.5, 0.35], help="of full training")
    parser.add_argument("--sizes", nargs="*", default=[], help="more values of --memory")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rho", type=float, default=0.5)
    parser.add_argument("--calibration-seconds", type=float, default=5.0)
    parser.add_argument("--classes", type=int, help="train on the first classes only")
    parser.add_argument("--each", type=int, help="train on so many images of each class only")
    parser.add_argument("--more", nargs=argparse.REMAINDER, default=[], help="options of et-train, the last")
    options = parser.parse_args()
    columns = {"model": "<13", "run": "<22", **dict.fromkeys(("limit GB", "peak GB"), ">9.3")}
    results = bench.Results(options, {**columns, "trained": ">18", "ended": ">8"})
    with tempfile.TemporaryDirectory(prefix="memory-kept-") as scratch:
        images = few(Path(options.images).resolve(), Path(scratch, "images"), options.classes, options.each)
        folder = Path(scratch, "run")
        for model in options.models:
            for row in runs(model, images, options, folder):
                limit = row["memory"] / 1e9 if row["memory"] else None
                ended = row["said"] or f"{row.get('accuracy', 0):.1%}"
                results.add({**row, "limit GB": limit, "peak GB": row["peak"] / 1e9, "ended": ended})
                table = [[r.get(column) for column in _COLUMNS] for r in results.rows]
                write_csv(Path(options.output).with_suffix(".csv"), _COLUMNS, table)


if __name__ == "__main__":
    main()
