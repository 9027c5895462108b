"""The Flower ServerApp: hears what clients have, solves the head, and averages round by round."""

import time
from typing import Callable, Dict, Iterable, List, Mapping, Set, TypeVar

import numpy as np

from elastictrainer.fleet import require_flower

require_flower()
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

from elastictrainer.errors import reason, shortened
from elastictrainer.fleet.answers import Description, Refused, Trained
from elastictrainer.fleet.global_model import GlobalModel, Row
from elastictrainer.fleet.settings import FleetSettings
from elastictrainer.runs.log import LOG, printed

Answer = TypeVar("Answer")
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    with printed():
        began = time.monotonic()
        model = GlobalModel(FleetSettings.from_config(context.run_config))
        server, rounds = Server(grid, model), model.settings.rounds
        server.wait()
        LOG.info(f"fleet: {model.settings.clients} clients describe their images")
        for number in range(rounds + 1):
            about = server.play(number)
            if number == 0:
                model.solve_head()
            row = model.evaluate(number, about)
            LOG.info(f"fleet: {_line(row, rounds, time.monotonic() - began)}")
            if number == 0:
                LOG.info(f"fleet: a round has {model.round_s:.1f} s of the clients' time, by their profiles")
        model.save()


class Server:
    """The server's side of the conversation with all clients, which it knows by their node ids.

    A client is asked to describe its images before it trains, whenever it joins. Who is refused, or does not
    answer, is left out of the round, and a line names it.
    """

    def __init__(self, grid: Grid, model: GlobalModel):
        self.model = model
        self._grid = grid
        self._names: Dict[int, str] = {}  # of who has answered
        self._refused: Set[int] = set()  # whose description was refused: they are not asked again

    def wait(self) -> None:
        """Wait until as many clients are connected as the settings ask for."""
        said = -1
        while (count := len(list(self._grid.get_node_ids()))) < self.model.settings.clients:
            if count != said:
                LOG.info(f"fleet: {count} of {self.model.settings.clients} clients are connected")
                said = count
            time.sleep(1)

    def play(self, number: int) -> Dict[str, float]:
        """Play round `number`: clients that are known train, and new ones describe their images.

        Returns what is known of it, as in rounds.csv; in round 0 nobody trains.
        """
        model, nodes = self.model, [n for n in self._grid.get_node_ids() if n not in self._refused]
        new = [node for node in nodes if node not in model.clients]
        known = [node for node in nodes if node in model.clients]
        messages = self._messages(number, MessageType.TRAIN, known)
        messages += self._messages(number, MessageType.QUERY, new)
        replies = self._grid.send_and_receive(messages, timeout=model.settings.timeout)
        contents = self._contents(replies, nodes)
        refused: Dict[int, str] = {}
        described = _read(self._description, contents, new, refused)
        self._refused.update(refused)
        model.clients.update(described)
        trained = _read(_trained, contents, known, refused)
        refused.update(model.add_round(trained))
        for node, why in refused.items():
            LOG.warning(f"fleet: {self._names[node]}: refused: {_one_line(why, 200)}")
        if number == 0:
            return {}
        sent = sum(values.nbytes for one in trained.values() for values in one.tensors.values())
        return {
            "trained": sum(bool(one.tensors) for node, one in trained.items() if node not in refused),
            "refused": len(refused),
            "silent": len(nodes) - len(contents),
            "megabytes": round(sent / 1e6, 3),
        }

    def _messages(self, number: int, kind: str, nodes: List[int]) -> List[Message]:
        """Return a message of round `number` for each node; the model's tensors go to those that train."""
        model = self.model
        config = ConfigRecord({"start": model.start, "seconds": model.round_s, "server-round": number})
        config["class-names"], config["image-size"] = model.class_names, list(model.data.image_size)
        tensors = model.to_send() if kind == MessageType.TRAIN else {}
        arrays = ArrayRecord({str(index): Array(values) for index, values in tensors.items()})
        content = RecordDict({"arrays": arrays, "config": config})
        return [Message(content, message_type=kind, dst_node_id=node) for node in nodes]

    def _description(self, content: RecordDict) -> Description:
        figures = {name: float(content["metrics"][name]) for name in ("full-seconds", "pass-seconds")}
        return Description.from_arrays(_arrays(content), figures, self.model.limits)

    def _contents(self, replies: Iterable[Message], asked: List[int]) -> Dict[int, RecordDict]:
        """Return the content of each node's first reply; log who sent an error, or nothing."""
        contents: Dict[int, RecordDict] = {}
        silent = dict.fromkeys(asked, "no answer")
        why = ""
        for reply in replies:
            node = reply.metadata.src_node_id
            if reply.has_error():
                lines = str(reply.error.reason or "").strip().splitlines()
                said = _one_line(lines[-1] if lines else f"error {reply.error.code}", 200)
                if node in silent:
                    silent[node] = said
                else:  # the SuperLink answers for a client that it cannot reach, and does not say for which
                    why = f" ({said})"
            elif node in silent:
                del silent[node]
                contents[node] = reply.content
                self._name(node, reply.content)
        for node, said in silent.items():
            client = self._names.get(node, f"node {node}")
            LOG.warning(f"fleet: {client}: {said}; the round goes on without it{why}")
        return contents

    def _name(self, node: int, content: RecordDict) -> None:
        """Note a client's name, which it says in its first answer. It is nobody else's, and stays."""
        if node not in self._names:
            about = content.get("about")
            said = str(about["name"]) if isinstance(about, ConfigRecord) and "name" in about else ""
            name = _one_line(said, 80)
            if not name or "node" in name.lower() or name in self._names.values():
                name = f"{name} (node {node})" if name else f"node {node}"
            self._names[node] = name


def _read(
    read: Callable[[RecordDict], Answer],
    contents: Mapping[int, RecordDict],
    nodes: Iterable[int],
    refused: Dict[int, str],
) -> Dict[int, Answer]:
    """Return what `read` makes of the nodes' contents; add to `refused` why of any it makes nothing."""
    answers: Dict[int, Answer] = {}
    for node in filter(contents.__contains__, nodes):
        try:
            answers[node] = read(contents[node])
        except Exception as error:  # whatever a stranger's bytes raise, the others go on
            unread = f"its answer cannot be read ({reason(error)})"
            refused[node] = str(error) if isinstance(error, Refused) else unread
    return answers


def _arrays(content: RecordDict) -> Dict[str, np.ndarray]:
    arrays = {name: sent.numpy() for name, sent in content["arrays"].items()}
    if not all(isinstance(values, np.ndarray) for values in arrays.values()):
        raise Refused("an archive in the place of an array")  # which NumPy opens as well
    return arrays


def _trained(content: RecordDict) -> Trained:
    tensors, metrics = {int(index): values for index, values in _arrays(content).items()}, content["metrics"]
    return Trained(tensors, int(metrics["num-examples"]), float(metrics["seconds"]))


def _one_line(text: str, most: int) -> str:
    """Return what a stranger said as one line of the log, without characters that move a cursor."""
    return shortened("".join(c if c.isprintable() else " " for c in text), most)


def _line(row: Row, rounds: int, spent_s: float) -> str:
    """Say what a round got, and when the last one will be done."""
    number = int(row["round"])
    what = f"round {number} of {rounds}" if number else "the head, solved on all clients' features"
    got = (
        f"accuracy {100 * row['accuracy']:.1f} %, loss {row['loss']:.3f}, {row['seconds']:.1f} s of training"
    )
    if not number:
        return f"{what}: {got}; took {_minutes(spent_s)}"
    left_s = spent_s / (number + 1) * (rounds - number)
    rest = f"about {_minutes(left_s)} left" if number < rounds else f"all took {_minutes(spent_s)}"
    about = f"{row['trained']} trained, {row['megabytes']} MB"
    about += "".join(f", {row[name]} {name}" for name in ("refused", "silent") if row[name])
    return f"{what}: {got}; {about}; {rest}"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} minutes"
