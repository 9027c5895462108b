"""FedAvg in which every client sends back only what it trained, within the time of a round."""

import logging
import math
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple, TypeVar

from elastictrainer.fleet.flower import require_flower

require_flower()
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.serverapp.strategy.strategy_utils import sample_nodes

from elastictrainer.errors import UsageError
from elastictrainer.fleet.feature_statistics import FeatureStatistics
from elastictrainer.fleet.global_model import GlobalModel
from elastictrainer.fleet.local_training import Trained
from elastictrainer.fleet.partial_average import Update

log = logging.getLogger("flwr")
Answer = TypeVar("Answer")


class Description(NamedTuple):
    """What a client says before the first round.

    Attributes:
        statistics: of its images.
        full_s: seconds of a round of full training.
        pass_s: seconds of a forward pass over its images.
    """

    statistics: FeatureStatistics
    full_s: float
    pass_s: float


class ElasticAverage(FedAvg):
    """FedAvg over the tensors that each client had time for.

    Every reply is checked; a broken one is left out, with a line that names its client. A client that does
    not answer is left out of the round.
    """

    def __init__(self, model: GlobalModel):
        """`model` is the server's."""
        super().__init__(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
        self._model = model
        self._names: Dict[int, str] = {}  # of clients, by node id
        self._asked: List[int] = []
        self._about: Dict[str, Any] = {}

    def arrays(self) -> ArrayRecord:
        """Return the tensors that clients do not have, by index: those that anyone has trained."""
        return ArrayRecord({str(index): Array(values) for index, values in self._model.to_send().items()})

    def solve_head(self, grid: Grid, config: ConfigRecord) -> List[float]:
        """Solve the head on the statistics of all clients, once there are as many as the settings ask for.

        Returns the seconds that full training of a round takes, for each client; UsageError where no client's
        statistics can be used.
        """
        _, self._asked = sample_nodes(grid, self._model.settings.clients, 1)
        content = RecordDict({"arrays": ArrayRecord(), "config": config})
        messages = self._construct_messages(content, self._asked, MessageType.QUERY)
        replies = grid.send_and_receive(messages, timeout=self._model.settings.timeout)
        described, _ = self._answers(replies, _read_description)
        if not described:
            raise UsageError(
                "no client has answered. The lines above say why; flower-supernode shows its own."
            )
        statistics = {client: one.statistics for client, one in described.items()}
        for line in self._model.solve_head(statistics, [one.pass_s for one in described.values()]):
            log.warning(line)
        return [one.full_s for one in described.values()]

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask every client that is connected now."""
        messages = list(super().configure_train(server_round, arrays, config, grid))
        self._asked = [message.metadata.dst_node_id for message in messages]
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> Tuple[Optional[ArrayRecord], Optional[MetricRecord]]:
        """Average the sound updates; return the tensors that anyone has trained."""
        answers, silent = self._answers(replies, _read_trained)
        updates = [
            Update(client, one.examples, one.tensors) for client, one in answers.items() if one.tensors
        ]
        refused = self._model.add_round(updates, [one.seconds for one in answers.values()])
        for line in refused:
            log.warning(line)
        sent = sum(values.nbytes for update in updates for values in update.tensors.values())
        self._about = {
            "trained": len(updates) - len(refused),
            "refused": len(refused) + len(self._asked) - silent - len(answers),
            "silent": silent,
            "megabytes": round(sent / 1e6, 3),
        }
        return self.arrays(), MetricRecord(dict(self._about))

    def evaluate(self, server_round: int, arrays: ArrayRecord) -> MetricRecord:
        """Test the server's model."""
        return MetricRecord(self._model.evaluate(server_round, **self._about))

    def _answers(
        self, replies: Iterable[Message], read: Callable[[RecordDict], Answer]
    ) -> Tuple[Dict[str, Answer], int]:
        """Return what `read` makes of the replies, by client, and how many clients sent none.

        Who sent an error, nothing at all or what cannot be read is logged.
        """
        answers: Dict[str, Answer] = {}
        silent = dict.fromkeys(self._asked, "no answer")
        why = ""
        for reply in replies:
            node = reply.metadata.src_node_id
            if reply.has_error():
                reason = (str(reply.error.reason).strip().splitlines() or [f"error {reply.error.code}"])[-1]
                if node in silent:
                    silent[node] = reason
                else:  # the SuperLink answers for a client that it cannot reach, and does not say for which
                    why = f" ({reason})"
                continue
            silent.pop(node, None)
            client = self._named(node, reply.content)
            try:
                answers[client] = read(reply.content)
            except (KeyError, TypeError, ValueError) as error:
                log.warning("%s: refused: its answer cannot be read (%s)", client, error)
        for node, reason in silent.items():
            client = self._names.get(node, f"node {node}")
            log.warning("%s: %s; the round goes on without it%s", client, reason, why)
        return answers, len(silent)

    def _named(self, node: int, content: RecordDict) -> str:
        """Return a client's name, which it says in its first answer: later it cannot take another's."""
        about = content.get("about")
        name = str(about["name"])[:80] if about and "name" in about else f"node {node}"
        return self._names.setdefault(
            node, name if name not in self._names.values() else f"{name} (node {node})"
        )


def _read_description(content: RecordDict) -> Description:
    arrays = {name: array.numpy() for name, array in content["arrays"].items()}
    statistics = FeatureStatistics.from_arrays(arrays)
    return Description(statistics, _seconds(content, "full-seconds"), _seconds(content, "pass-seconds"))


def _read_trained(content: RecordDict) -> Trained:
    tensors = {int(index): array.numpy() for index, array in content["arrays"].items()}
    return Trained(tensors, int(content["metrics"]["num-examples"]), _seconds(content, "seconds"))


def _seconds(content: RecordDict, name: str) -> float:
    seconds = float(content["metrics"][name])
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{name} is {seconds}")
    return seconds
