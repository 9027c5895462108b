"""Export of a finished run's model, calibrated on its training images, with a model card."""

from pathlib import Path
from typing import List, Optional, Sequence, Tuple

import numpy as np

from elastictrainer.data.pictures import describe_preprocessing
from elastictrainer.data.splits import decode_all
from elastictrainer.experiment.run_images import load_run_images
from elastictrainer.experiment.settings import asked_rho
from elastictrainer.models import user_models, zoo
from elastictrainer.models.export import FULL_INT8, export, require_free
from elastictrainer.registry import EXPORT, EXPORT_FILES
from elastictrainer.runs import ownership
from elastictrainer.runs.files import render, write_text
from elastictrainer.runs.log import LOG
from elastictrainer.runs.run_folder import RunFolder, spread
from elastictrainer.steps.keras_compat.layers import compute_in_float32

_OF_A_CARD = "fine-tuned with ElasticTrainer"  # a line of every model card
_SAMPLE = 100  # training images to calibrate integers on


def export_run(
    run: RunFolder,
    formats: Sequence[str],
    output: Optional[str] = None,
    overwrite: bool = False,
    trust: bool = False,
    weights: Optional[str] = None,
) -> List[str]:
    """Export a finished run's model in the given formats, with a model card (README.md) next to them.

    It goes into the folder `output`; None: `export` in the run folder. A README.md that exists stays, unless
    it is a model card and `overwrite` is set. `weights` are "best" or "last"; None: the best where there are
    such. With `trust` the model may run code, see `user_models.read`. Returns the paths written, the model
    card last. Errors are those of `export`; or the run is not finished, its model cannot be loaded, or its
    training images are needed and gone.
    """
    EXPORT.check_each(formats)
    formats = list(dict.fromkeys(formats))  # one that is named twice is written once
    if output is None:
        ownership.refuse_links(run.path)
    folder = Path(output) if output else run.export_path
    paths = [folder / EXPORT_FILES[format] for format in formats]
    for path in paths:  # before the model is loaded
        require_free(path, overwrite)
    summary, environment, settings = run.summary(), run.environment(), run.config()
    weights_path = run.weights_path(weights)
    model = user_models.read(weights_path, trust)
    compute_in_float32(model)  # every device can, and converters know nothing else
    names = environment.get("class_names") or [str(k) for k in range(model.output_shape[-1])]
    sample = None
    if FULL_INT8 in formats:
        size = settings.get("image_size") or zoo.default_image_size(settings["model"])
        sample = _training_sample(run, zoo.input_size(model, size))
    for format, path in zip(formats, paths):
        export(model, names, format, path, overwrite, sample)
    written = [str(path) for path in paths]
    card_path = folder / ownership.MODEL_CARD
    if card_path.exists():
        is_card = _OF_A_CARD in card_path.read_text(encoding="utf-8", errors="replace")
        if not is_card or not overwrite:
            why = "may describe another export; --overwrite replaces it" if is_card else "is no model card"
            LOG.info(f"note: {card_path} stays as it is: it {why}")
            return written
    card = render(
        "model_card.md.j2",
        settings=settings,
        rho=asked_rho(settings),
        time=settings.get("time"),
        summary=summary,
        sampled=spread(summary, 100),
        environment=environment,
        names=names,
        preprocessing=describe_preprocessing(model.input_shape[1:3]),
        weights_path=weights_path,
        is_kept=weights_path.name == summary.get("kept_weights", run.model_path.name),
        files=[path.name for path in paths],
        integers_only=EXPORT_FILES[FULL_INT8] if FULL_INT8 in formats else "",
        data=Path(settings["dataset"]).name,
        weights=Path(settings["weights"]).name,
    )
    write_text(card_path, card)
    return [*written, str(card_path)]


def _training_sample(run: RunFolder, size: Tuple[int, int]) -> np.ndarray:
    """Draw training images of a run's own data, the same ones each time, in order: (n, H, W, 3) uint8."""
    split = load_run_images(run, "train").split
    chosen = np.zeros(split.count, bool)
    chosen[np.random.default_rng(run.config()["seed"]).permutation(split.count)[:_SAMPLE]] = True
    return decode_all(split.subset(chosen), size)
