"""A client's images, their statistics, and training on them for a round."""

import functools
import json
import operator
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elastictrainer.data.image_data import ImageData
from elastictrainer.data.splits import IndexedSplit, labels_in
from elastictrainer.data.user_images import Reading, class_folders, read_classes
from elastictrainer.errors import UsageError
from elastictrainer.experiment import assembly
from elastictrainer.experiment.profiling import make_profile
from elastictrainer.fleet.answers import FeatureStatistics, Trained
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
_TRIALS = 1000  # of drawing the shares of simulated clients
_STEPS_KEPT = 9  # compiled steps of a scheme: a process that simulates eight clients builds none twice


class LocalTraining:
    """One model and its compiled steps, for a client, or for all clients that a process simulates in turn."""

    def __init__(self, settings: FleetSettings, classes: int):
        """Make the model, for the number of the fleet's `classes`."""
        self.settings, training = settings, settings.for_training()
        assembly.configure(settings.seed)
        self.model = assembly.make_model(training, classes)  # later with the latest round's weights
        self.classes = classes
        self.start = start_digest(self.model)  # of what every client starts from
        self._initial = [variable.numpy() for variable in tf_variables(self.model.trainable_weights)]
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        optimizer = assembly.make_optimizer(training)
        self.model.compile(optimizer, classification_loss(), metrics=[accuracy], jit_compile=False)
        optimizers.build(optimizer, self.model.trainable_variables)
        self._profile: Optional[Profile] = None
        self._trainers: Dict[str, Trainer] = {}
        self._head = SolvableHead(self.model)

    def profile(self, data: ImageData, file: str = "") -> Profile:
        """Return the model's profile on this device: of `file`, or made on a minibatch and written there.

        UsageError where the file holds no profile, or that of another model.
        """
        if self._profile is None and file and Path(file).exists():
            self._profile = Profile.load(file)
            check_tensors(self._profile, len(self._initial))
            if assembly.precision_of(self._profile) != "float32":
                raise UsageError(
                    f"{file}: its steps are in bfloat16, those of a fleet in float32. Make it by et-profile "
                    "--precision float32, or name a file that does not exist: it is made."
                )
        if self._profile is None:
            batch, training = next(iter(data.train(0))), self.settings.for_training()
            about = assembly.profile_metadata(training, self.model, tuple(batch[0].shape[1:]), self.classes)
            self._profile = make_profile(self.model, batch, self.model.optimizer, about, **_PROFILE)
            if file:
                self._profile.save(file)
        return self._profile

    def statistics(self, data: ImageData) -> FeatureStatistics:
        """Return the statistics of all images' features, by the network that every client starts from."""
        self._assign({})
        batches = data.batches_of(data.train_split)
        parts = (FeatureStatistics.of(self._head.features(x), y, self.classes) for x, y in batches)
        return functools.reduce(operator.add, parts)

    def train(
        self,
        tensors: Mapping[int, NDArray[np.float32]],
        data: ImageData,
        device: Device,
        seconds: float,
        number: int,
        client_state: str = "",
    ) -> Tuple[Trained, str]:
        """Train for round `number`, from 1, on which the order of the images depends, for `seconds`.

        `tensors` are the global values, by index, of all that any client has trained so far. Returns what
        trained; and what the client needs as `client_state` in its next round, JSON text: its selection.
        Empty before the first.
        """
        self._assign(tensors)
        optimizers.reset_slots(self.model.optimizer, self.model.trainable_variables)
        held: Dict[str, Any] = json.loads(client_state or "{}")
        # Rounds are counted instead of steps: how many steps a round has depends on the selection.
        if held.get("rounds") == PLAIN_INTERVAL:
            held = {}
        settings, profile = self.settings, device.profile
        scored = 0 if held else settings.importance_batches
        work = device.work(settings.rule, seconds, data.steps_per_epoch, settings.least_rho, scored)
        if not work.steps:
            return Trained({}, 0, 0.0), client_state
        mask = np.ones(len(profile), bool)
        if work.rho is None:
            self._fit(self._trainer("full", profile), work, data, number)
        else:
            scheme = held.get("scheme") or ("elastic" if work.scored else "freeze-below")
            trainer = self._trainer(scheme, profile)
            trainer.rho, trainer.importance_batches = work.rho, max(1, work.scored)
            trainer.restore(
                {
                    "policy": held.get("policy"),
                    "profile": None,
                    "weights": digest(self.model.variables),
                    # The head is solved: no full steps come before the first selection, and none is timed.
                    "steps": 1,
                    "timed_full_ms": [profile.full_ms],
                }
            )
            self._fit(trainer, work, data, number)
            trainer.keep_steps(_STEPS_KEPT)
            policy = trainer.state()["policy"]
            mask = np.isin(np.arange(len(mask)), policy["masks"][-1])
            rounds = held.get("rounds", 0) + 1
            client_state = json.dumps({"scheme": scheme, "policy": policy, "rounds": rounds})
        values = tf_variables(self.model.trainable_weights)
        trained = {int(i): values[i].numpy() for i in np.flatnonzero(mask)}
        spent_s = device.seconds(work.steps, mask) + device.scoring_seconds(work.scored)
        # The last minibatch of an epoch is filled up with images that were in it.
        examples = min(work.steps * settings.batch_size, data.train_split.count)
        return Trained(trained, examples, spent_s), client_state

    def _assign(self, tensors: Mapping[int, NDArray[np.float32]]) -> None:
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
        trainer.fit(
            data.stream, steps_per_epoch=work.steps, initial_epoch=number - 1, epochs=number, verbose=0
        )


def start_digest(model: tf.keras.Model) -> int:
    """Return a digest of a new model's weights and statistics, without the state of its random numbers."""
    return digest([v for v in tf_variables(model.variables) if v.dtype.is_floating])


def dirichlet(
    labels: NDArray[np.int64], clients: int, concentration: float, seed: int, least: int = 1
) -> NDArray[np.int64]:
    """Divide examples among clients, each class in shares drawn from a Dirichlet distribution.

    A `concentration` below 1 leaves each class with few clients; one above 10 makes about equal shares. They
    are drawn again until each client gets the `least`. Returns (n,) int: the client, from 0, of each of the
    (n,) int `labels`; UsageError where there are too few for so many clients.
    """
    labels = np.asarray(labels)
    if clients < 1 or clients * least > len(labels):
        raise UsageError(
            f"{len(labels)} images cannot be divided among {clients} clients, {least} each. Lower the number "
            "of clients (--federation-config num-supernodes=N) or batch-size."
        )
    generator = np.random.default_rng(seed)
    for _ in range(_TRIALS):
        owner = np.empty(len(labels), np.int64)
        for label in np.unique(labels):
            of_class = generator.permutation(np.flatnonzero(labels == label))
            shares = generator.dirichlet(np.full(clients, concentration))
            ends = np.rint(np.cumsum(shares)[:-1] * len(of_class)).astype(int)
            for client, part in enumerate(np.split(of_class, ends)):
                owner[part] = client
        if np.bincount(owner, minlength=clients).min() >= least:
            return owner
    raise UsageError(
        f"with concentration={concentration:g} some of {clients} clients get fewer than {least} images: "
        "raise it, or lower the number of clients (--federation-config num-supernodes=N)."
    )


def own_images(folder: Path, class_names: Sequence[str]) -> IndexedSplit:
    """Return the images of a client's folder: CLASS/IMAGE, or train/CLASS/IMAGE; classes may be missing.

    UsageError where there is no folder, or it has none of the fleet's classes, or others.
    """
    folder = folder / "train" if (folder / "train").is_dir() else folder
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}: give the client's images (--node-config images=...).")
    classes = class_folders(folder)
    unknown = sorted(set(classes) - set(class_names))
    if unknown:
        raise UsageError(
            f"{folder} has the class {unknown[0]!r}, which the server does not have. Expected: CLASS/IMAGE "
            "with the classes of the server's data."
        )
    return read_classes(classes, Reading()).relabelled(labels_in(class_names, list(classes)))


def keep_decoded(data: ImageData) -> ImageData:
    """Return the same images, kept in memory where they fit: every round reads them again."""
    try:
        return data.in_memory()
    except UsageError:  # they are there already, or do not fit
        return data
