"""The Flower ServerApp: hears what clients have, solves the head, and averages round by round."""

import time
from typing import Callable, Dict, Iterable, List, Mapping, Set, TypeVar

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
        settings = FleetSettings.from_config(context.run_config)
        server = Server(grid, GlobalModel(settings))
        server.wait()
        LOG.info(f"fleet: {settings.clients} clients describe their images")
        server.play(0)
        server.model.solve_head()
        server.report(0, began)
        LOG.info(f"fleet: a round has {server.model.round_s:.1f} s of the clients' time, by their profiles")
        for number in range(1, settings.rounds + 1):
            server.play(number)
            server.report(number, began)
        server.model.save()


class Server:
    """The server's side of the conversation with all clients.

    A client is asked to describe its images before it trains, whenever it joins. Who is refused, or does not
    answer, is left out of the round, and a line names it.
    """

    def __init__(self, grid: Grid, model: GlobalModel):
        self.model = model
        self._grid = grid
        self._names: Dict[int, str] = {}  # of clients, by node id
        self._refused: Set[int] = set()  # nodes whose description was refused: they are not asked again
        self._about: Dict[str, float] = {}  # of the latest round, as in rounds.csv

    def wait(self) -> None:
        """Wait until as many clients are connected as the settings ask for."""
        said = -1
        while (count := len(list(self._grid.get_node_ids()))) < self.model.settings.clients:
            if count != said:
                LOG.info(f"fleet: {count} of {self.model.settings.clients} clients are connected")
                said = count
            time.sleep(1)

    def play(self, number: int) -> None:
        """Play round `number`: clients that are known train, and new ones describe their images."""
        model, nodes = self.model, [n for n in self._grid.get_node_ids() if n not in self._refused]
        known = [node for node in nodes if self._names.get(node) in model.clients]
        new = [node for node in nodes if node not in known]
        messages = self._messages(number, MessageType.TRAIN, known)
        messages += self._messages(number, MessageType.QUERY, new)
        replies = self._grid.send_and_receive(messages, timeout=model.settings.timeout)
        contents = self._contents(replies, nodes)
        refused: Dict[int, str] = {}
        described = _read(self._description, {n: contents[n] for n in new if n in contents}, refused)
        self._refused.update(refused)
        model.clients.update({self._names[node]: one for node, one in described.items()})
        trained = _read(_trained, {n: contents[n] for n in known if n in contents}, refused)
        answers = {self._names[node]: one for node, one in trained.items()}
        why = {**{self._names[node]: said for node, said in refused.items()}, **model.add_round(answers)}
        for name, problem in why.items():
            LOG.warning(f"fleet: {name}: refused: {problem}")
        sent = sum(values.nbytes for one in answers.values() for values in one.tensors.values())
        self._about = {
            "trained": sum(bool(one.tensors) for name, one in answers.items() if name not in why),
            "refused": len(why),
            "silent": len(nodes) - len(contents),
            "megabytes": round(sent / 1e6, 3),
        }

    def report(self, number: int, began: float) -> None:
        """Test the model after round `number`; say how good it is, and how long the rest will take."""
        row = self.model.evaluate(number, self._about if number else {})
        LOG.info(f"fleet: {_line(row, self.model.settings.rounds, time.monotonic() - began)}")

    def _messages(self, number: int, kind: str, nodes: List[int]) -> List[Message]:
        """Return a message of round `number` for each node; the model's tensors go to those that train."""
        model = self.model
        about = {"class-names": model.class_names, "image-size": list(model.data.image_size)}
        config = ConfigRecord(
            {**about, "start": model.start, "seconds": model.round_s, "server-round": number}
        )
        tensors = model.to_send() if kind == MessageType.TRAIN else {}
        arrays = ArrayRecord({str(index): Array(values) for index, values in tensors.items()})
        content = RecordDict({"arrays": arrays, "config": config})
        return [Message(content, message_type=kind, dst_node_id=node) for node in nodes]

    def _description(self, content: RecordDict) -> Description:
        figures = {name: float(content["metrics"][name]) for name in ("full-seconds", "pass-seconds")}
        arrays = {name: content["arrays"][name].numpy() for name in ("counts", "sums", "moment")}
        return Description.from_arrays(arrays, figures, self.model.limits)

    def _contents(self, replies: Iterable[Message], asked: List[int]) -> Dict[int, RecordDict]:
        """Return the content of each node's first reply; log who sent an error, or nothing."""
        contents: Dict[int, RecordDict] = {}
        silent = dict.fromkeys(asked, "no answer")
        why = ""
        for reply in replies:
            node = reply.metadata.src_node_id
            if not reply.has_error():
                if silent.pop(node, None):
                    contents[node] = reply.content
                    self._name(node, reply.content)
                continue
            said = (str(reply.error.reason).strip().splitlines() or [f"error {reply.error.code}"])[-1]
            if node in silent:
                silent[node] = shortened(said, 200)
            else:  # the SuperLink answers for a client that it cannot reach, and does not say for which
                why = f" ({shortened(said, 200)})"
        for node, said in silent.items():
            client = self._names.get(node, f"node {node}")
            LOG.warning(f"fleet: {client}: {said}; the round goes on without it{why}")
        return contents

    def _name(self, node: int, content: RecordDict) -> None:
        """Note a client's name, which it says in its first answer: later it cannot take another's."""
        if node in self._names:
            return
        about = content.get("about")
        said = str(about["name"]) if isinstance(about, ConfigRecord) and "name" in about else ""
        name = "".join(filter(str.isprintable, said))[:80].strip() or f"node {node}"
        while name in self._names.values():
            name += f" (node {node})"
        self._names[node] = name


def _read(
    read: Callable[[RecordDict], Answer], contents: Mapping[int, RecordDict], refused: Dict[int, str]
) -> Dict[int, Answer]:
    """Return what `read` makes of the contents, by node; add to `refused` why of any it makes nothing."""
    answers: Dict[int, Answer] = {}
    for node, content in contents.items():
        try:
            answers[node] = read(content)
        except Refused as error:
            refused[node] = str(error)
        except Exception as error:  # whatever a stranger's bytes raise, the others go on
            refused[node] = f"its answer cannot be read ({shortened(reason(error), 120)})"
    return answers


def _trained(content: RecordDict) -> Trained:
    tensors = {int(index): array.numpy() for index, array in content["arrays"].items()}
    metrics = content["metrics"]
    return Trained(tensors, int(metrics["num-examples"]), float(metrics["seconds"]))


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
