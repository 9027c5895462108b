"""The hours of a figure's runs: on the paper's devices by its own numbers, and here by the profile."""

import argparse
from pathlib import Path
from typing import Any, Dict, List, Optional

import paper_numbers
from elastictrainer import Profile
from elastictrainer.experiment.options import parse
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.selection import schemes

TRAINING_IMAGES = {"caltech_birds2011": 5994, "oxford_iiit_pet": 3680, "stanford_dogs": 12000, "demo": 1800}
HERE = "here"


def rows(figure: str, runs: List[List[str]]) -> List[Dict[str, Any]]:
    """A row for each run but for its seed: name, count, and hours of one run by device.

    `runs`: of each run its profile, then its et-train options.
    """
    result: Dict[str, Dict[str, Any]] = {}
    for profile, *options in runs:
        asked, _ = parse(TrainSettings, options, argparse.ArgumentParser(allow_abbrev=False))
        settings = {
            key: getattr(asked, key)
            for key in ("dataset", "model", "scheme", "rho", "activation_cache", "epochs")
        }
        name = f"{Path(asked.dataset).name}, {asked.model}, {asked.scheme}"
        name += f" {asked.rho:g}" if schemes.selects(asked.scheme) else ""
        name += "" if asked.activation_cache == "off" else ", with cache"
        if name in result:
            result[name]["count"] += 1
            continue
        paper = paper_numbers.of_run(figure, settings, hours=True)
        hours = {device: numbers["hours"] for device, numbers in paper.items() if "hours" in numbers}
        here = _here(profile, asked)
        result[name] = {"name": name, "count": 1, "hours": hours if here is None else {**hours, HERE: here}}
    return list(result.values())


def _here(profile: str, asked: TrainSettings) -> Optional[float]:
    """Hours of training by the profile, validation not counted; None before it is made.

    Of schemes that train some tensors it is the most that they may take.
    """
    if not Path(profile).exists():
        return None
    images = TRAINING_IMAGES.get(asked.dataset)
    if images is None:
        images = sum(path.is_file() for path in Path(asked.dataset, "train").glob("*/*"))
    share = asked.rho if schemes.selects(asked.scheme) else 1.0
    steps = images // asked.batch_size * asked.epochs
    return Profile.load(profile).full_ms / 3.6e6 * steps * share


def text(figure: str, runs: List[List[str]]) -> str:
    """The rows as a table, with a sum for each device and what the sum leaves out."""
    table = rows(figure, runs)
    total = sum(row["count"] for row in table)
    devices = [*dict.fromkeys(d for row in table for d in row["hours"] if d != HERE), HERE]
    lines = [
        f"{'hours of training, validation not counted':<58}" + "".join(f"{device:>18}" for device in devices)
    ]
    for row in table:
        name = row["name"] + (f" ({row['count']} seeds)" if row["count"] > 1 else "")
        cells = [row["hours"].get(device) for device in devices]
        lines.append(
            f"{name:<58}"
            + "".join(f"{'-' if h is None else format(h * row['count'], '.2f'):>18}" for h in cells)
        )
    sums, left_out = [], []
    for device in devices:
        known = [row for row in table if device in row["hours"]]
        hours = sum(row["hours"][device] * row["count"] for row in known)
        sums.append(f"{hours:.2f}" if known else "-")
        missing = total - sum(row["count"] for row in known)
        if missing and device != HERE:
            left_out.append(
                f"{device}: without {missing} of the {total} runs, for which the paper has no hours."
            )
    lines.append(f"{'sum':<58}" + "".join(f"{cell:>18}" for cell in sums))
    if devices == [HERE]:
        left_out.append("No hours of the paper's are on record for any of these runs.")
    if not any(HERE in row["hours"] for row in table):
        left_out.append("here: not known before the profile is made.")
    else:
        left_out.append(
            "here: by the profile; of schemes that always train the same tensors, the most that it may be."
        )
    entry = paper_numbers.of_figure(figure)
    other = entry.get("numbers_of") or entry.get("hours_of")
    if other and devices != [HERE]:
        left_out.append(f"The paper's hours are those of {other}, for the same runs.")
    if "says" in entry:
        left_out.append(f"paper: {entry['says']}")
    return "\n".join([*lines, *left_out])
