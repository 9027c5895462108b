"""Train in a program of one's own, in the conventions of Keras: compile, then fit."""

import inspect
from typing import Any, Optional, Union

import tensorflow as tf

from elastictrainer.errors import UsageError
from elastictrainer.profiler.timings import TensorTimings
from elastictrainer.selection import schemes
from elastictrainer.selection.settings import SelectionSettings
from elastictrainer.steps import compiled
from elastictrainer.training.loop import ElasticSteps


class Trainer:
    """Trains a Keras model by one of the schemes, where `Model.fit` would train all of it.

    Keras' own loop runs: its data formats, callbacks, metrics and validation. The training step is replaced.

    >>> trainer = Trainer(model, rho=0.5, interval=3)                                              # doctest: +SKIP
    >>> trainer.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])           # doctest: +SKIP
    >>> history = trainer.fit(train, validation_data=test, epochs=12)                              # doctest: +SKIP
    >>> history.history["ratio"], history.elastic["rho_achieved"]                                  # doctest: +SKIP
    """

    def __init__(
        self,
        model: tf.keras.Model,
        *,
        scheme: Union[str, schemes.Scheme] = "elastic",
        timings: Optional[TensorTimings] = None,
        **selection: Any,
    ):
        """
        Args:
            model: any Keras model that is trained with the default `train_step`; frozen layers stay frozen.
            scheme: a name of `schemes.SCHEMES`, or an object like them.
            timings: the model's profile, from `profile_model` or an earlier `fit` (`trainer.timings`); None: made at the
                first minibatch, which takes some tens of steps.
            selection: rho (0.5), interval (4 epochs), importance_batches (5), solver, feedback, reprofile: see
                SelectionSettings.

        Raises:
            UsageError: an argument out of range, an unknown scheme.
        """
        self.model = model
        self.scheme = schemes.create(scheme) if isinstance(scheme, str) else scheme
        self.timings = timings
        self.selection = SelectionSettings(**selection)

    def compile(self, *arguments: Any, **options: Any) -> None:
        """As `Model.compile`, without XLA unless asked for; a model that is compiled already need not be compiled again."""
        given = inspect.signature(self.model.compile).bind(*arguments, **options).arguments
        options = (
            {"jit_compile": False, **options} if "jit_compile" not in given else options
        )  # Keras 3: "auto"
        self.model.compile(*arguments, **options)

    def fit(self, *arguments: Any, **options: Any) -> tf.keras.callbacks.History:
        """As `Model.fit`, which see for the arguments.

        Probe minibatches of the importance are the latest ones trained on.

        Returns:
            Keras' History. `history["ratio"]` has each epoch's median step time over that of a full step,
            `history["selected"]` how many tensors were in training at its end; `elastic` is a dict of the run's figures:
            rho_requested, rho_predicted, rho_achieved, selections (what `et-train` writes to selections.jsonl), seconds, steps,
            flops_total.

        Raises:
            UsageError: a model or an argument that leaves no room for this, each with what to change.
        """
        compiled.check(self.model)
        given = inspect.signature(self.model.fit).bind(*arguments, **options).arguments
        callbacks = given.pop("callbacks", None) or []
        if isinstance(callbacks, tf.keras.callbacks.CallbackList):
            raise UsageError("callbacks must be a list of callbacks, not a CallbackList.")
        callbacks = [callbacks] if isinstance(callbacks, tf.keras.callbacks.Callback) else list(callbacks)
        steps = ElasticSteps(self, given.get("epochs", 1), quiet=given.get("verbose") == 0)
        self.model.train_function = steps
        try:
            history = self.model.fit(**given, callbacks=[steps, *callbacks])
        finally:
            self.model.train_function = None
            steps.close()
        history.elastic = steps.figures()
        self.timings = steps.timings or self.timings
        return history
