"""The server's model: its weights by round, the time that the rounds took, and its test accuracy."""

import functools
import operator
from pathlib import Path
from typing import Dict, List, Mapping, Set, Union

import numpy as np
from numpy.typing import NDArray

from elastictrainer.errors import UsageError
from elastictrainer.experiment import assembly
from elastictrainer.fleet.answers import Description, Limits, Refused, Trained, average
from elastictrainer.fleet.local_training import keep_decoded, start_digest
from elastictrainer.fleet.settings import FleetSettings
from elastictrainer.models.solved_head import SolvableHead, solve
from elastictrainer.runs.files import write_csv
from elastictrainer.steps.keras_compat.model_files import save_model
from elastictrainer.steps.keras_compat.variables import tf_variables
from elastictrainer.training.evaluation import Evaluator

Row = Dict[str, Union[int, float]]
_LONGEST = 10.0  # timeouts: a client has made a pass when it answers, in a simulation a fast one


class GlobalModel:
    """The model of a fleet.

    Attributes:
        clients: who has described its images, by its number in the fleet; nobody else trains.
        seconds: of all rounds by the clients' profiles: each waits for its slowest client.
        round_s: of a round.
    """

    def __init__(self, settings: FleetSettings):
        self._output = Path(settings.output) if settings.output else None
        if self._output and self._output.is_dir() and any(self._output.iterdir()):
            raise UsageError(f"output {self._output} is not empty. Name a new folder.")
        self.settings, training = settings, settings.for_training()
        self.clients: Dict[int, Description] = {}
        self.seconds = self.round_s = 0.0
        assembly.configure(settings.seed)
        self.data = keep_decoded(assembly.load_data(training))
        self.class_names = list(self.data.class_names)
        self.model = assembly.make_model(training, len(self.class_names))
        self.start = start_digest(self.model)
        self.changed: Set[int] = set()  # tensors that are no longer what every client starts from
        self._rows: List[Row] = []  # what is known of each round, as in rounds.csv
        self._head = SolvableHead(self.model)
        self._evaluator = Evaluator(self.model)
        features = self._head.features(next(iter(self.data.test()))[0]).numpy()
        self.limits = Limits(
            len(self.class_names),
            features.shape[1],
            settings.most_images,
            float(np.square(features).sum(axis=1).mean()),
            _LONGEST * settings.timeout,
        )

    @property
    def weights(self) -> List[NDArray[np.float32]]:
        return [variable.numpy() for variable in tf_variables(self.model.trainable_weights)]

    def to_send(self) -> Dict[int, NDArray[np.float32]]:
        """Return the tensors that clients do not have, by index: those that anyone trained."""
        values = tf_variables(self.model.trainable_weights)
        return {index: values[index].numpy() for index in sorted(self.changed)}

    def solve_head(self) -> None:
        """Solve the head for all clients' images, having none, and set `round_s`; UsageError: no client."""
        clients = self.clients.values()
        if not clients:
            raise UsageError(
                "no client has sent a description of its images that can be used. The lines above say why; "
                "flower-supernode shows its own."
            )
        together = functools.reduce(operator.add, (client.statistics for client in clients))
        features, labels = together.examples(self.settings.seed)
        targets = np.eye(len(self.class_names), dtype=np.float32)[labels]
        kernel, bias, _ = solve(features, targets, use_bias=bool(self._head.layer.use_bias))
        self._head.assign(kernel, bias)
        own = {id(variable) for variable in self._head.layer.trainable_weights}
        self.changed.update(i for i, v in enumerate(self.model.trainable_weights) if id(v) in own)
        self._solved = self.weights  # the limits of what clients send are by these
        self.seconds += max(client.pass_s for client in clients)
        full_s = sorted(client.full_s for client in clients)
        self.round_s = self.settings.seconds or full_s[(len(full_s) - 1) // 2]

    def add_round(self, answers: Mapping[int, Trained]) -> Dict[int, str]:
        """Average the sound answers of described clients into the model; return why any is refused."""
        sound, refused = [], {}
        for client, trained in answers.items():
            try:
                trained.check(self.clients[client], self._solved, self.round_s)
                sound.append(trained)
            except Refused as error:
                refused[client] = str(error)
        for variable, values in zip(tf_variables(self.model.trainable_weights), average(sound, self.weights)):
            variable.assign(values)
        self.changed.update(index for one in sound for index in one.tensors)
        self.seconds += max((one.seconds for one in sound), default=0.0)
        return refused

    def evaluate(self, number: int, about: Mapping[str, float]) -> Row:
        """Test the model after round `number`, and write the rounds so far; return this one's row."""
        score = self._evaluator(self.data.test())
        row = {"round": number, "seconds": round(self.seconds, 3), "accuracy": score.accuracy}
        self._rows.append({**row, "loss": score.loss, **about})
        if self._output:
            self._output.mkdir(parents=True, exist_ok=True)
            names = list(dict.fromkeys(name for row in self._rows for name in row))
            table = [[row.get(name, "") for name in names] for row in self._rows]
            write_csv(self._output / "rounds.csv", names, table)
        return self._rows[-1]

    def save(self) -> None:
        """Write the model, where results are to be written."""
        if self._output:
            save_model(self.model, self._output / "model.keras")
