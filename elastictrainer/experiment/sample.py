"""A few of a run's training images, which show a converter what numbers its network computes with."""

from typing import Tuple

import numpy as np

from elastictrainer.data.splits import decoded
from elastictrainer.experiment.labelled import labelled_of_run
from elastictrainer.runs.environment import processors
from elastictrainer.runs.run_folder import RunFolder

_COUNT = 100


def training_sample(run: RunFolder, size: Tuple[int, int]) -> np.ndarray:
    """Draw training images of a run's own data, the same ones each time.

    Args:
        run: its folder.
        size: height and width that the network takes.

    Returns:
        (n, H, W, 3) uint8: 100 images, or as many as there are, in their stored order.

    Raises:
        UsageError: the data is not there any more, or has changed.
        RunError: an image cannot be decoded.
    """
    split = labelled_of_run(run, "train").split
    chosen = np.zeros(split.count, bool)
    chosen[np.random.default_rng(run.config()["seed"]).permutation(split.count)[:_COUNT]] = True
    return decoded(split.subset(chosen), size, processors())
