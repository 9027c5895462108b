"""The server's model: its weights by round, the time that the rounds took, and its test accuracy."""

import functools
import operator
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Set

import numpy as np
from numpy.typing import NDArray

from elastictrainer.errors import UsageError
from elastictrainer.experiment import assembly
from elastictrainer.fleet.feature_statistics import FeatureStatistics
from elastictrainer.fleet.local_training import head_indices, start_digest
from elastictrainer.fleet.partial_average import Update, average, refusal
from elastictrainer.fleet.partition import keep_decoded
from elastictrainer.fleet.settings import FleetSettings
from elastictrainer.models.solved_head import SolvableHead, solve
from elastictrainer.runs.files import write_csv
from elastictrainer.steps.keras_compat.variables import tf_variables
from elastictrainer.training.evaluation import Evaluator


@dataclass
class GlobalModel:
    """The model of a fleet.

    Attributes:
        seconds: by the clients' profiles, that all rounds so far took: each waits for its slowest client.
        rows: what is known of each round, as in rounds.csv.
    """

    settings: FleetSettings
    seconds: float = 0.0
    rows: List[Dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        training = self.settings.for_training()
        assembly.configure(self.settings.seed)
        self.data = keep_decoded(assembly.load_data(training))
        self.class_names = list(self.data.class_names)
        self.model = assembly.make_model(training, len(self.class_names))
        self.start = start_digest(self.model)
        self.changed: Set[int] = set()  # tensors that are no longer what every client starts from
        self._examples: Dict[str, int] = {}  # that each client has
        self._evaluator = Evaluator(self.model)

    @property
    def weights(self) -> List[NDArray[Any]]:
        """The values of all tensors."""
        return [variable.numpy() for variable in tf_variables(self.model.trainable_weights)]

    def to_send(self) -> Dict[int, NDArray[Any]]:
        """Return the tensors that clients do not have, by index: those that anyone trained."""
        values = tf_variables(self.model.trainable_weights)
        return {index: values[index].numpy() for index in sorted(self.changed)}

    def solve_head(self, statistics: Mapping[str, FeatureStatistics], seconds: Iterable[float]) -> List[str]:
        """Solve the head for the images of all clients, without having any.

        `statistics` are by the client's name; `seconds` is what each client's pass over its images takes.
        Returns a line for each client that is refused; UsageError where all are.
        """
        head = SolvableHead(self.model)
        width = int(head.layer.kernel.shape[0])
        refused, sound = [], {}
        for client, of_client in statistics.items():
            problem = of_client.problem(len(self.class_names), width)
            if problem:
                refused.append(f"{client}: refused: {problem}")
            else:
                sound[client] = of_client
        if not sound:
            raise UsageError(
                "no client has sent statistics of its images that can be used. " + " ".join(refused)
            )
        self._examples = {client: int(one.counts.sum()) for client, one in sound.items()}
        together = functools.reduce(operator.add, sound.values())
        features, labels = together.examples(self.settings.seed)
        targets = np.eye(len(self.class_names), dtype=np.float32)[labels]
        kernel, bias, _ = solve(features, targets, use_bias=bool(head.layer.use_bias))
        head.assign(kernel, bias)
        self.changed.update(head_indices(self.model))
        self.seconds += max(seconds, default=0.0)
        return refused

    def add_round(self, updates: Sequence[Update], seconds: Iterable[float]) -> List[str]:
        """Average a round's updates, of `seconds` each, into the model; return why any is refused."""
        before = self.weights
        reasons = [refusal(one, before, self._examples.get(one.client)) for one in updates]
        sound = [one for one, reason in zip(updates, reasons) if reason is None]
        for variable, values in zip(tf_variables(self.model.trainable_weights), average(sound, before)):
            variable.assign(values)
        self.changed.update(index for one in sound for index in one.tensors)
        self.seconds += max(seconds, default=0.0)
        return [reason for reason in reasons if reason is not None]

    def evaluate(self, number: int, **about: Any) -> Dict[str, float]:
        """Test the model after round `number`, and write the rounds so far; returns accuracy and loss."""
        score = self._evaluator(self.data.test())
        figures = {"accuracy": score.accuracy, "loss": score.loss}
        self.rows.append({"round": number, "seconds": round(self.seconds, 3), **figures, **about})
        if self.settings.output_folder:
            self.settings.output_folder.mkdir(parents=True, exist_ok=True)
            names = list(dict.fromkeys(name for row in self.rows for name in row))
            table = [[row.get(name, "") for name in names] for row in self.rows]
            write_csv(self.settings.output_folder / "rounds.csv", names, table)
        return figures

    def save(self) -> None:
        """Write the model, where results are to be written."""
        if self.settings.output_folder:
            self.model.save(self.settings.output_folder / "model.keras")
