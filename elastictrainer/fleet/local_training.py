"""What a client does with its images: give their statistics, and train on them for a round."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elastictrainer.data.image_data import ImageData
from elastictrainer.errors import UsageError
from elastictrainer.experiment import assembly
from elastictrainer.experiment.profiling import make_profile, profile_metadata
from elastictrainer.fleet.feature_statistics import FeatureStatistics
from elastictrainer.fleet.round_work import Device, RoundWork
from elastictrainer.fleet.settings import FleetSettings
from elastictrainer.models.solved_head import SolvableHead
from elastictrainer.profiler.profile import Profile
from elastictrainer.steps import optimizers
from elastictrainer.steps.keras_compat.variables import tf_variables
from elastictrainer.steps.objective import classification_loss
from elastictrainer.steps.snapshot import digest
from elastictrainer.training.graphs import check_tensors
from elastictrainer.training.planner import PLAIN_INTERVAL
from elastictrainer.training.trainer import Trainer

# A fleet's devices shall not wait for minutes.
_PROFILE: Dict[str, Any] = {"warmup_steps": 10, "steps": 4, "calibrate_s": 10.0}
_STEPS_KEPT = 9  # compiled steps of a scheme: a process that simulates eight clients builds none twice


class Trained(NamedTuple):
    """The result of a client's round: the tensors that trained, by index; its seconds are by the profile."""

    tensors: Dict[int, NDArray[Any]]
    examples: int
    seconds: float


@dataclass(frozen=True)
class _Selected:
    """A selection of a client's: the scheme that made it, its policy's state, and the rounds it has held."""

    scheme: str
    policy: Dict[str, Any]
    rounds: int


class LocalTraining:
    """One model and its compiled steps, for a client, or for all clients that a process simulates in turn.

    Attributes:
        model: compiled; its weights are those of the latest round.
        start: digest of the weights and statistics that every client starts from.
    """

    def __init__(self, settings: FleetSettings, classes: int):
        """Make the model, for the number of the fleet's `classes`."""
        self.settings, self._training = settings, settings.for_training()
        assembly.configure(settings.seed)
        self.model = assembly.make_model(self._training, classes)
        self.classes = classes
        self.start = start_digest(self.model)
        self._initial = [variable.numpy() for variable in tf_variables(self.model.trainable_weights)]
        self.optimizer = assembly.make_optimizer(self._training)
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        self.model.compile(self.optimizer, classification_loss(), metrics=[accuracy], jit_compile=False)
        optimizers.build(self.optimizer, self.model.trainable_variables)
        self._profile: Optional[Profile] = None
        self._trainers: Dict[str, Trainer] = {}
        self._head: Optional[SolvableHead] = None

    def profile(self, data: ImageData, file: str = "") -> Profile:
        """Return the model's profile on this device: of `file`, or made on a minibatch and written there.

        UsageError where the file holds no profile, or that of another model.
        """
        if self._profile is None and file and Path(file).exists():
            self._profile = Profile.load(file)
            check_tensors(self._profile, len(self._initial))
        if self._profile is None:
            batch = next(iter(data.train(0)))
            shape = tuple(int(size) for size in batch[0].shape[1:])
            metadata = profile_metadata(self._training, self.model, shape, self.classes)
            self._profile = make_profile(self.model, batch, self.optimizer, metadata, **_PROFILE)
            if file:
                self._profile.save(file)
        return self._profile

    def statistics(self, data: ImageData) -> FeatureStatistics:
        """Return the statistics of all images' features, by the network that every client starts from."""
        self._assign({})
        self._head = self._head or SolvableHead(self.model)
        features_of = self._head.features
        parts = [(features_of(x).numpy(), y.numpy()) for x, y in data.batches_of(data.train_split)]
        features, labels = (np.concatenate(part) for part in zip(*parts))
        return FeatureStatistics.of(features, labels.astype(np.int64), self.classes)

    def train(
        self,
        tensors: Mapping[int, NDArray[Any]],
        data: ImageData,
        device: Device,
        seconds: float,
        number: int,
        client_state: str = "",
    ) -> Tuple[Trained, str]:
        """Train for a round.

        Args:
            tensors: global values, by index, of all tensors that any client has trained so far.
            data, device: the client's.
            seconds: of the round.
            number: of the round, from 1; the order of the images depends on it.
            client_state: what its latest round returned as its second result; empty before the first.

        Returns:
            What trained; and what the client needs in its next round: its selection, as JSON text.
        """
        self._assign(tensors)
        optimizers.reset_slots(self.optimizer, self.model.trainable_variables)
        latest = _Selected(**json.loads(client_state)) if client_state else None
        # Rounds are counted instead of steps: how many steps a round has depends on the selection.
        held = latest if latest and latest.rounds < PLAIN_INTERVAL else None
        settings = self.settings
        scored = 0 if held else settings.importance_batches
        work = device.work(settings.rule, seconds, data.steps_per_epoch, settings.least_rho, scored)
        if not work.steps:
            return Trained({}, 0, 0.0), client_state
        mask = np.ones(len(device.profile), bool)
        if work.rho is None:
            self._fit(self._trainer("full", device.profile), work, data, number)
        else:
            selected = self._train_selected(work, device.profile, data, number, held)
            mask = np.isin(np.arange(len(mask)), selected.policy["masks"][-1])
            client_state = json.dumps(asdict(selected))
        values = tf_variables(self.model.trainable_weights)
        trained = {int(i): values[i].numpy() for i in np.flatnonzero(mask)}
        spent_s = device.seconds(work.steps, mask) + work.scoring_s
        return Trained(trained, work.steps * settings.batch_size, spent_s), client_state

    def _train_selected(
        self, work: RoundWork, profile: Profile, data: ImageData, number: int, held: Optional[_Selected]
    ) -> _Selected:
        """Train the tensors of the selection that is `held`, or of a new one; return the selection."""
        scheme = held.scheme if held else "elastic" if work.scored else "freeze-below"
        trainer = self._trainer(scheme, profile)
        trainer.selection = replace(
            trainer.selection, rho=work.rho or 1.0, importance_batches=max(1, work.scored)
        )
        trainer.restore(
            {
                "policy": held and held.policy,
                "profile": None,
                "weights": digest(self.model.variables),
                # The head is solved: no full steps come before the first selection, and none is timed.
                "steps": 1,
                "timed_full_ms": [profile.full_ms],
            }
        )
        self._fit(trainer, work, data, number)
        trainer.keep_steps(_STEPS_KEPT)
        return _Selected(scheme, trainer.state()["policy"], held.rounds + 1 if held else 1)

    def _assign(self, tensors: Mapping[int, NDArray[Any]]) -> None:
        """Set the weights to `tensors`, by index, and the others to what every client starts from."""
        for index, variable in enumerate(tf_variables(self.model.trainable_weights)):
            variable.assign(tensors.get(index, self._initial[index]))

    def _trainer(self, scheme: str, profile: Profile) -> Trainer:
        """Return the trainer of a scheme; its graphs serve every round."""
        if scheme not in self._trainers:
            self._trainers[scheme] = Trainer(
                self.model,
                scheme=scheme,
                profile=profile,
                activation_cache="off",  # the next round has other weights: no activation outlives an epoch
                rho=1.0,
                deterministic=True,  # the profile says how long steps take, not this process' clock
            )
        return self._trainers[scheme]

    def _fit(self, trainer: Trainer, work: RoundWork, data: ImageData, number: int) -> None:
        """Train an epoch of the steps that `work` has."""
        trainer.fit(
            data.stream, steps_per_epoch=work.steps, initial_epoch=number - 1, epochs=number, verbose=0
        )


def start_digest(model: tf.keras.Model) -> int:
    """Return a digest of a new model's weights and statistics, without the state of its random numbers."""
    return digest([v for v in tf_variables(model.variables) if v.dtype.is_floating])


def head_indices(model: tf.keras.Model) -> List[int]:
    """Return the indices in `model.trainable_weights` of the head's tensors; UsageError without any."""
    ours = {id(v) for v in SolvableHead(model).layer.trainable_weights}
    found = [index for index, v in enumerate(model.trainable_weights) if id(v) in ours]
    if not found:
        raise UsageError("the head's tensors are not among the model's trainable weights.")
    return found
