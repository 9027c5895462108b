"""The deadline of a run, and what has to be left for the end of it, by what the run has measured."""

import math
from typing import Optional

from elastictrainer.data.image_data import ImageData
from elastictrainer.experiment.quantities import parse_seconds
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.profiler.profile import Profile
from elastictrainer.training.clock import Deadline
from elastictrainer.training.evaluation import Evaluation
from elastictrainer.training.record import RunRecord

# Measured with MobileNetV2: what holds until the run has measured it, and what it cannot measure.
_HEAD_SHARE = 0.03  # of the time, for the evaluation of the solved head
_EVALUATION = 0.75  # of the forward pass of training, at 224x224
_COMPILING_S = 0.6  # of the evaluation's graph
_WRITING_S = 0.7  # of the model
_LEAVING_S = 1.0  # to print the summary and to leave Python: half of it measured, half to be in time
_EXPORT_S = 15.0  # for each format


def evaluating_s(settings: TrainSettings, profile: Optional[Profile]) -> float:
    """Return the expected seconds of evaluating an image; 0 without a profile."""
    if profile is None:
        return 0.0
    return _EVALUATION * 1e-3 / settings.batch_size * profile.full_ms * profile.forward_share


def head_stride(settings: TrainSettings, data: ImageData, image_s: float) -> int:
    """Return k such that evaluating the solved head on every k-th image takes 3 % of the time at most.

    `image_s`: expected seconds of evaluating an image.
    """
    if not settings.time or data.val_split is not None:
        return 1
    evaluation_s = data.evaluated_count("test") * image_s
    return max(1, math.ceil(evaluation_s / (_HEAD_SHARE * parse_seconds(settings.time))))


def deadline(
    settings: TrainSettings,
    data: ImageData,
    evaluation: Evaluation,
    record: RunRecord,
    image_s: float,
    one_of: int,
    extra_time: Optional[str],
) -> Optional[Deadline]:
    """Return the time that this process may take; None without --time.

    Args:
        settings, data: of the run.
        evaluation: tells what an image takes once it has made an evaluation; `image_s`: until then.
        record: tells what writing the model takes, once it has done so.
        one_of: the solved head is evaluated on one of so many images.
        extra_time: for a resumed run beyond the time it had taken.
    """
    if not settings.time:
        return None
    # Weights that are chosen by a validation part are tested at the end, after the last ones were validated.
    parts = ["test"] if data.val_split is None else ["val", "test"]
    images = [data.evaluated_count(part) for part in parts]

    def reserve_s() -> float:
        evaluation_s = sum(images) * (evaluation.image_s or image_s)
        writing_s = 2 * (record.writing_s or _WRITING_S)  # the last checkpoint, and the model
        return evaluation_s + writing_s + _LEAVING_S + _EXPORT_S * len(settings.export_formats)

    check_s = images[0] * image_s / one_of + _COMPILING_S + _WRITING_S
    return Deadline(
        parse_seconds(settings.time),
        reserve_s,
        parse_seconds(extra_time) if extra_time else 0.0,
        check_s=check_s,
    )
