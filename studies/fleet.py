"""A fleet of eight simulated clients, four of them four times slower: accuracy over simulated time.

python studies/fleet.py run elastic --dataset DATA --model mobilenetv2 --weights FILE
python studies/fleet.py draw full drop elastic --output fleet.png

`run` leaves a folder RULE/ with rounds.csv; the profile of the model is made once, in profile.json. The time
is counted from that profile, so other work on the machine does not change it.
"""

import argparse
import csv
import os
from pathlib import Path
from typing import Any, Dict, List

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
CLIENTS = 8
SLOW_DOWNS = "1,1,1,1,4,4,4,4"
CAPTIONS = {
    "full": "FedAvg, waits for the slowest",
    "drop": "FedAvg, drops slow clients",
    "elastic": "elastic clients",
}


class OneProcess:
    """A Grid of clients that answer in turn in this process: without Ray, for a machine too busy for it."""

    def __init__(self, client: Any, config: Dict[str, Any]):
        from flwr.app import Context, RecordDict
        from flwr.supercore.task_identity import TaskIdentity

        # Flower says so in a server's process before it loads the app.
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
        self._client = client
        self._contexts = {
            100 + k: Context(1, 100 + k, {"partition-id": k, "num-partitions": CLIENTS}, RecordDict(), config)
            for k in range(CLIENTS)
        }

    def get_node_ids(self) -> List[int]:
        """Return the clients' ids."""
        return list(self._contexts)

    def send_and_receive(self, messages: Any, *, timeout: Any = None) -> List[Any]:
        """Return each client's answer."""
        return [self._client(m, self._contexts[m.metadata.dst_node_id]) for m in messages]


def settings_of(asked: argparse.Namespace) -> Dict[str, Any]:
    """Return Flower's run configuration."""
    from elastictrainer.fleet.settings import FleetSettings

    settings = FleetSettings(
        dataset=asked.dataset,
        model=asked.model,
        weights=asked.weights,
        image_size=asked.image_size,
        batch_size=asked.batch_size,
        learning_rate=asked.learning_rate,
        rounds=asked.rounds,
        rule=asked.rule,
        seconds=asked.seconds,
        least_rho=asked.least_rho,
        seed=asked.seed,
        clients=CLIENTS,
        timeout=7200.0,
        slow_downs=SLOW_DOWNS,
        profile=os.path.abspath("profile.json"),
        output=os.path.abspath(asked.output or asked.rule),
    )
    return {name.replace("_", "-"): value for name, value in vars(settings).items()}


def run(asked: argparse.Namespace) -> None:
    """Run one rule in Flower's simulation engine, one client at a time; or in this process alone."""
    from flwr.app import Context, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

    config = settings_of(asked)
    if asked.one_process:
        from elastictrainer.fleet import client_app, server_app

        server_app.main(OneProcess(client_app.app, config), Context(1, 0, {}, RecordDict(), config))
        return
    # Flower recommends `flwr run`; in one process the exit status tells whether the run has failed.
    from flwr.simulation import run_simulation

    server, client = ServerApp(), ClientApp()

    def told(context: Any) -> Any:
        """Return the context with the configuration, which Flower lets nobody set; the state is the same."""
        return Context(context.run_id, context.node_id, context.node_config, context.state, config)

    @server.main()
    def main(grid: Any, context: Any) -> None:
        from elastictrainer.fleet.server_app import main as serve

        serve(grid, told(context))

    @client.query()
    def query(message: Any, context: Any) -> Any:
        from elastictrainer.fleet.client_app import describe

        return describe(message, told(context))

    @client.train()
    def train(message: Any, context: Any) -> Any:
        from elastictrainer.fleet.client_app import train as train_client

        return train_client(message, told(context))

    backend = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 1}}
    run_simulation(server, client, CLIENTS, backend_config=backend)


def read(folder: Path) -> List[Dict[str, str]]:
    """Return the rows of rounds.csv in a folder that `run` made, with the rule."""
    with open(folder / "rounds.csv", newline="") as stream:
        return [{"rule": folder.name, **row} for row in csv.DictReader(stream)]


def draw(asked: argparse.Namespace) -> None:
    """Draw the rounds of each folder, write them as a table, and print when each is as good as the first."""
    from matplotlib.figure import Figure

    from elastictrainer.runs.files import write_csv

    figure = Figure((7, 4), layout="constrained")
    axes = figure.subplots()
    rows = [row for folder in asked.folders for row in read(Path(folder))]
    goal = None
    for rule in dict.fromkeys(row["rule"] for row in rows):
        seconds = [float(row["seconds"]) for row in rows if row["rule"] == rule]
        accuracy = [100 * float(row["accuracy"]) for row in rows if row["rule"] == rule]
        goal = max(accuracy) if goal is None else goal
        axes.plot(seconds, accuracy, marker="o", markersize=3, label=CAPTIONS.get(rule, rule))
        when = next((s for s, a in zip(seconds, accuracy) if a >= goal), None)
        reached = "never" if when is None else f"after {when:.1f} s"
        print(f"{rule}: best {max(accuracy):.1f} % in {seconds[-1]:.1f} s, {goal:.1f} % {reached}")
    axes.axhline(goal, color="grey", linewidth=0.8, linestyle=":")
    axes.set_xlabel("simulated time (s)")
    axes.set_ylabel("test accuracy (%)")
    axes.legend(frameon=False)
    figure.savefig(asked.output, dpi=120)
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = ([row.get(name, "") for name in names] for row in rows)
    write_csv(Path(asked.output).with_suffix(".csv"), names, table)


def main() -> None:
    """Parse the command line, and do what it asks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    running = commands.add_parser("run")
    running.add_argument("rule", choices=sorted(CAPTIONS))
    running.add_argument("--dataset", default="demo")
    running.add_argument("--model", default="demo")
    running.add_argument("--weights", default="imagenet")
    running.add_argument("--image-size", type=int, default=0)
    running.add_argument("--batch-size", type=int, default=16)
    running.add_argument("--learning-rate", type=float, default=1e-4)
    running.add_argument("--rounds", type=int, default=6)
    running.add_argument("--seconds", type=float, default=0.0)
    running.add_argument("--least-rho", type=float, default=0.5)
    running.add_argument("--seed", type=int, default=0)
    running.add_argument("--output")
    running.add_argument("--one-process", action="store_true", help="hand messages over without Ray")
    running.set_defaults(do=run)
    drawing = commands.add_parser("draw")
    drawing.add_argument("folders", nargs="+")
    drawing.add_argument("--output", default="fleet.png")
    drawing.set_defaults(do=draw)
    asked = parser.parse_args()
    asked.do(asked)


if __name__ == "__main__":
    main()
