"""Going on from what an earlier run has learned, on new data and perhaps other classes."""

import dataclasses
from typing import List, Sequence

import numpy as np
import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.experiment.settings import TrainSettings, load
from elastictrainer.models import user_models
from elastictrainer.runs.run_folder import RunFolder

_FROM_RUN = ("model", "image_size", "rotation", "flip")  # parts of the model that the run's file holds


def settings_of(settings: TrainSettings, given: Sequence[str]) -> TrainSettings:
    """`settings` with what `--init-from` decides.

    Args:
        settings: with `init_from`.
        given: the options of the command line.

    Raises:
        UsageError: no finished run there, or an option that says otherwise.
    """
    run = RunFolder(settings.init_from)
    if not run.model_path.exists() or not run.config_path.exists():
        raise UsageError(
            f"--init-from {settings.init_from}: there is no finished run (no {run.model_path.name} and {run.config_path.name})."
        )
    earlier = load(TrainSettings, run.config_path)
    said = [f"--{name.replace('_', '-')}" for name in (*_FROM_RUN, "weights", "head_init")]
    clash = [option for option in said if option in given]
    if clash:
        raise UsageError(
            f"--init-from takes model and weights from {settings.init_from}; leave out {', '.join(clash)}."
        )
    return dataclasses.replace(settings, **{name: getattr(earlier, name) for name in _FROM_RUN})


def model_of(run: RunFolder, class_names: Sequence[str]) -> tf.keras.Model:
    """The run's model for `class_names`: its own head where they are the run's, else a new one.

    In a new head, classes that the run knew keep their weights; the others start from zero.

    Raises:
        UsageError: no model there, or other classes and no dense layer at the end.
    """
    model = user_models.from_file(str(run.model_path))
    known: List[str] = run.environment().get("class_names") or []
    if list(class_names) == known:
        return model
    head = model.layers[-1]
    if not isinstance(head, tf.keras.layers.Dense) or head.output is not model.output:
        raise UsageError(
            f"the model of {run.path} has other classes and does not end in a dense layer that could be replaced."
        )
    features = head.input
    kernel = np.zeros((int(features.shape[-1]), len(class_names)), np.float32)
    bias = np.zeros(len(class_names), np.float32)
    old_kernel, old_bias = (*head.get_weights(), np.zeros(head.units, np.float32))[:2]
    for label, name in enumerate(class_names):
        if name in known:
            kernel[:, label], bias[label] = old_kernel[:, known.index(name)], old_bias[known.index(name)]
    new = tf.keras.layers.Dense(len(class_names), name=head.name)
    made = tf.keras.Model(model.input, new(features), name=model.name)
    new.set_weights([kernel, bias])
    return made
