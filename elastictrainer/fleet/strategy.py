"""FedAvg in which every client sends back only what it trained, within the time of a round."""

import logging
import time
from typing import Any, Dict, Iterable, List, Optional, Tuple

from elastictrainer.fleet.flower import require_flower

require_flower()
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from elastictrainer.errors import RunError, UsageError
from elastictrainer.fleet.feature_statistics import FeatureStatistics
from elastictrainer.fleet.global_model import GlobalModel
from elastictrainer.fleet.partial_average import Update

log = logging.getLogger("flwr")
_LOOK_S = 1.0  # between two looks for clients


class ElasticAverage(FedAvg):
    """FedAvg over the tensors that each client had time for.

    Every reply is checked; a broken one is left out, with a line that names its client. A client that does
    not answer is left out of the round.

    Attributes:
        round_seconds: the time of a round.
    """

    def __init__(self, model: GlobalModel, round_seconds: float, names: Dict[int, str]):
        """
        Args:
            model: the server's.
            round_seconds: see above.
            names: of clients, by node id.
        """
        super().__init__(fraction_evaluate=0.0)
        self.round_seconds = round_seconds
        self._model, self._names = model, names
        self._asked: List[int] = []
        self._about: Dict[str, Any] = {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask every client that is connected now; `arrays` are the tensors that anyone has trained."""
        self._asked = wait_for_clients(grid, 1, self._model.settings.timeout)
        config["server-round"], config["seconds"] = server_round, self.round_seconds
        content = RecordDict({"arrays": arrays, "config": config})
        return [Message(content, message_type=MessageType.TRAIN, dst_node_id=node) for node in self._asked]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> Tuple[Optional[ArrayRecord], Optional[MetricRecord]]:
        """Average the sound updates; return the tensors that anyone has trained."""
        sound = answers(replies, self._asked, self._names)
        updates, seconds, sent = [], [], 0
        for node, content in sound.items():
            try:
                update = Update(self._names[node], *_update(content))
                seconds.append(float(content["metrics"]["seconds"]))
            except (KeyError, TypeError, ValueError) as error:
                log.warning("%s: refused: its answer cannot be read (%s)", self._names[node], error)
                continue
            if update.tensors:
                updates.append(update)
                sent += sum(values.nbytes for values in update.tensors.values())
        refused = self._model.add_round(updates, seconds)
        for line in refused:
            log.warning(line)
        self._about = {
            "trained": len(updates) - len(refused),
            "refused": len(refused) + len(sound) - len(seconds),
            "silent": len(self._asked) - len(sound),
            "megabytes": round(sent / 1e6, 3),
        }
        return record_of(self._model), MetricRecord(dict(self._about))

    def evaluate(self, server_round: int, arrays: ArrayRecord) -> MetricRecord:
        """Test the server's model."""
        return MetricRecord(self._model.evaluate(server_round, **self._about))


def answers(replies: Iterable[Message], asked: List[int], names: Dict[int, str]) -> Dict[int, RecordDict]:
    """Return the content of the replies by node, and log who sent an error or nothing at all.

    `names` of clients by node id are completed from the replies.
    """
    contents: Dict[int, RecordDict] = {}
    failed: List[int] = []
    why = ""
    for reply in replies:
        node = reply.metadata.src_node_id
        if reply.has_error():
            reason = (str(reply.error.reason).strip().splitlines() or [f"error {reply.error.code}"])[-1]
            if node in asked:
                failed.append(node)
                log.warning("%s: left out of this round: %s", names.get(node, f"node {node}"), reason)
            else:  # the SuperLink answers for a client that it cannot reach, and does not say for which
                why = f" ({reason})"
            continue
        about = reply.content.get("about")
        said = str(about["name"])[:80] if about and "name" in about else f"node {node}"
        # A client says its name once: it cannot answer in the name of another later.
        names.setdefault(node, said if said not in names.values() else f"{said} (node {node})")
        contents[node] = reply.content
    for node in asked:
        if node not in contents and node not in failed:
            log.warning("%s: no answer; the round goes on without it%s", names.get(node, f"node {node}"), why)
    return contents


def wait_for_clients(grid: Grid, count: int, timeout: float) -> List[int]:
    """Return the ids of the clients that are connected, once there are `count`.

    Raises:
        RunError: there are fewer after `timeout` seconds.
    """
    ends = time.monotonic() + timeout
    while len(nodes := list(grid.get_node_ids())) < count:
        if time.monotonic() > ends:
            raise RunError(
                f"{len(nodes)} of {count} clients are connected after {timeout:g} s: start more "
                "(flower-supernode), or lower clients."
            )
        time.sleep(_LOOK_S)
    return nodes


def ask_for_statistics(
    grid: Grid, model: GlobalModel, config: ConfigRecord, names: Dict[int, str]
) -> List[float]:
    """Solve the head on the statistics of all clients; return what full training of a round takes for each.

    Raises:
        UsageError: no client's can be used.
    """
    asked = list(grid.get_node_ids())
    content = RecordDict({"arrays": ArrayRecord(), "config": config})
    messages = [Message(content, message_type=MessageType.QUERY, dst_node_id=node) for node in asked]
    replies = grid.send_and_receive(messages, timeout=model.settings.timeout)
    statistics, full_s, pass_s = {}, [], []
    for node, reply in answers(replies, asked, names).items():
        try:
            arrays = {name: array.numpy() for name, array in reply["arrays"].items()}
            statistics[names[node]] = FeatureStatistics.from_arrays(arrays)
            full_s.append(float(reply["metrics"]["full-seconds"]))
            pass_s.append(float(reply["metrics"]["pass-seconds"]))
        except (KeyError, TypeError, ValueError) as error:
            log.warning("%s: refused: its answer cannot be read (%s)", names[node], error)
    if not statistics:
        raise UsageError("no client has answered. The lines above say why; flower-supernode shows its own.")
    for line in model.solve_head(statistics, pass_s):
        log.warning(line)
    return full_s


def record_of(model: GlobalModel) -> ArrayRecord:
    """Return the tensors that clients do not have, by index."""
    return ArrayRecord({str(index): Array(values) for index, values in model.to_send().items()})


def _update(content: RecordDict) -> Tuple[int, Dict[int, Any]]:
    """Return the examples and the tensors by index that a client sent."""
    tensors = {int(index): array.numpy() for index, array in content["arrays"].items()}
    return int(content["metrics"]["num-examples"]), tensors
