"""The damaged images of a run: left out as it asks, or noted so that it can be resumed without them."""

import dataclasses
from typing import List, Sequence

from elastictrainer.data.reading import Reading, abbreviated
from elastictrainer.experiment import assembly
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.runs.run_folder import RunFolder

_ADVICE = "Replace or delete them, or leave them out: --skip-damaged."


def reading(settings: TrainSettings, run: RunFolder, resume: bool) -> Reading:
    """Return how a run reads image files. A resumed one leaves out the same files as at its start."""
    if resume:
        return assembly.reading(settings, run)
    chosen = assembly.reading(settings)
    return dataclasses.replace(chosen, skip_damaged=settings.skip_damaged, advice=_ADVICE)


def remarks(read: Reading) -> List[str]:
    """Return a line that says what is left out, if anything is."""
    if not read.left_out:
        return []
    return [f"left out: {len(read.left_out)} image(s) that cannot be read, {abbreviated(read.left_out)}"]


def note(run: RunFolder, files: Sequence[str]) -> None:
    """Note damaged files in a run that has begun: it can be resumed when they were replaced or deleted."""
    about = run.environment()
    noted = Reading(**about.get("damaged", {})).record()
    if about and files:
        damaged = sorted({*noted["damaged"], *files})
        run.write_environment({**about, "damaged": {**noted, "damaged": damaged}})
