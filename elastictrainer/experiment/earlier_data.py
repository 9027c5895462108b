"""The data of the runs that a run goes on from, as far as it is still there and as it was."""

from dataclasses import replace
from pathlib import Path
from typing import Iterator, List, Optional, Sequence

import numpy as np

from elastictrainer.data.splits import IndexedSplit, JoinedSplit, labels_in
from elastictrainer.errors import UsageError
from elastictrainer.experiment.labelled import Labelled, labelled_of_run
from elastictrainer.experiment.options import load
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.runs.log import LOG
from elastictrainer.runs.run_folder import RunFolder


def earlier_runs(run: RunFolder) -> Iterator[RunFolder]:
    """Return the runs whose classes `run` kept, the latest first."""
    seen = {run.path.resolve()}
    while run.config_path.exists():
        settings = load(TrainSettings, run.config_path)
        if settings.init_from is None or settings.keep is None:
            return
        run = RunFolder(settings.init_from)
        if run.path.resolve() in seen:  # it was overwritten by its own successor
            return
        seen.add(run.path.resolve())
        yield run


def images_of(run: RunFolder, part: str) -> Labelled:
    """Return the images of a part of a run's own data; UsageError where they changed, or come as a stream."""
    found = labelled_of_run(run, part, unchanged=True)
    if not isinstance(found.split, IndexedSplit):
        raise UsageError(f"images of {found.name} can be read in their order alone, not one by one.")
    return found


def told_apart(run: RunFolder, data: Labelled, is_own: bool) -> Labelled:
    """Tell apart, in images that a run is tested on, what it knew before its own data and what it learned.

    Args:
        run: that kept the classes of an earlier one; of any other the images are returned as they are.
        data: the images.
        is_own: whether these are images of the run's own data, which those of the earlier runs' data are
            added to. Otherwise they are told apart by their class.
    """
    before = list(earlier_runs(run))
    if not before or data.part == "train":
        return data
    if not is_own:
        own = run.environment().get("data", {}).get("class_names", [])
        is_old = np.array([name not in own for name in data.class_names])
        return replace(data, old=is_old[data.split.labels])
    names = run.class_names() or data.class_names
    old = evaluated(before, data.part, names)
    if old is None or not isinstance(data.split, IndexedSplit):
        return data
    labels = labels_in(names, data.class_names)[data.split.labels]
    return Labelled(
        f"{Path(data.name).name} and {old.name}",
        data.part,
        names,
        JoinedSplit([data.split, old.split], np.concatenate([labels, old.split.labels])),
        np.repeat([False, True], [data.split.count, old.split.count]),
    )


def evaluated(runs: Sequence[RunFolder], part: str, class_names: Sequence[str]) -> Optional[Labelled]:
    """Return the images of a part (test, val) of the data of several runs; None where there are none.

    Labels are those of `class_names`. Runs whose data is not there are left out, and a note says so.
    """
    found: List[Labelled] = []
    for run in runs:
        try:
            found.append(images_of(run, part))
        except UsageError as error:
            if part == "test":
                LOG.info(f"note: no old test images of {run.path}: {error}")
    if not found:
        return None
    labels = [labels_in(class_names, one.class_names)[one.split.labels] for one in found]
    names = dict.fromkeys(Path(one.name).name for one in found)
    split = JoinedSplit([one.split for one in found], np.concatenate(labels))
    return Labelled(" and ".join(names), part, class_names, split)
