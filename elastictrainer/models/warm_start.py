"""An earlier run's model as the start of a new run, for the same classes or others."""

from typing import Sequence

import numpy as np
import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.models import model_file
from elastictrainer.runs.run_folder import RunFolder


def model_of(run: RunFolder, class_names: Sequence[str], trust: bool = False) -> tf.keras.Model:
    """Build the model of a finished run, with a head for `class_names`.

    If these are the run's own classes in the same order, the model is returned as it was saved. Otherwise it
    gets a new head, in which a class that the run knew keeps its weights and bias; those of a new class are
    zero. UsageError where the run has no model, that needs `trust` (see `model_file.read`), or a new head
    cannot be made because its last layer is not dense.
    """
    model = model_file.read(run.weights_path(), trust)  # the best where there are such
    known = run.class_names()
    if known == list(class_names):
        return model
    head = model.layers[-1]
    if not isinstance(head, tf.keras.layers.Dense) or head.output is not model.outputs[0]:
        raise UsageError(
            f"the model of {run.path} has other classes and does not end in a dense layer "
            "that could be replaced."
        )
    features = head.input
    kernel = np.zeros((int(features.shape[-1]), len(class_names)), np.float32)
    bias = np.zeros(len(class_names), np.float32)
    # A head without a bias has the kernel alone: then the zeros behind it stand for the bias.
    known_kernel, known_bias = (*head.get_weights(), np.zeros(head.units, np.float32))[:2]
    for label, name in enumerate(class_names):
        if name in known:
            kernel[:, label] = known_kernel[:, known.index(name)]
            bias[label] = known_bias[known.index(name)]
    new_head = tf.keras.layers.Dense(len(class_names), name=head.name, dtype="float32")
    new_model = tf.keras.Model(model.inputs[0], new_head(features), name=model.name)
    new_head.set_weights([kernel, bias])
    return new_model
