"""The Flower ServerApp: waits for clients, solves the head, sets the time of a round, and averages."""

import logging
from typing import Dict, List

from elastictrainer.fleet.flower import require_flower

require_flower()
from flwr.app import ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp

from elastictrainer.fleet.global_model import GlobalModel
from elastictrainer.fleet.settings import FleetSettings
from elastictrainer.fleet.strategy import ElasticAverage, ask_for_statistics, record_of, wait_for_clients

log = logging.getLogger("flwr")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train the fleet's model, round by round."""
    settings = FleetSettings.from_config(context.run_config)
    model = GlobalModel(settings)
    wait_for_clients(grid, settings.clients, settings.timeout)
    config = ConfigRecord(
        {
            "class-names": model.class_names,
            "image-size": list(model.data.image_size),
            "start": model.start,
        }
    )
    names: Dict[int, str] = {}
    full_s = ask_for_statistics(grid, model, config, names)
    round_s = settings.seconds or sorted(full_s)[(len(full_s) - 1) // 2]
    log.info("a round takes %.1f s; full training of the clients: %s", round_s, _listed(full_s))
    strategy = ElasticAverage(model, round_s, names)
    strategy.start(
        grid,
        record_of(model),
        settings.rounds,
        settings.timeout,
        train_config=config,
        evaluate_fn=strategy.evaluate,
    )
    model.save()


def _listed(seconds: List[float]) -> str:
    return ", ".join(f"{one:.1f}" for one in sorted(seconds)) + " s"
