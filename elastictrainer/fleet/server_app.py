"""The Flower ServerApp: waits for clients, solves the head, sets the time of a round, and averages."""

import logging

from elastictrainer.fleet.flower import require_flower

require_flower()
from flwr.app import ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp

from elastictrainer.fleet.global_model import GlobalModel
from elastictrainer.fleet.settings import FleetSettings
from elastictrainer.fleet.strategy import ElasticAverage

log = logging.getLogger("flwr")
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train the fleet's model, round by round."""
    settings = FleetSettings.from_config(context.run_config)
    model = GlobalModel(settings)
    strategy = ElasticAverage(model)
    about = {"class-names": model.class_names, "image-size": list(model.data.image_size)}
    config = ConfigRecord({**about, "start": model.start})
    full_s = sorted(strategy.solve_head(grid, config))
    config["seconds"] = round_s = settings.seconds or full_s[(len(full_s) - 1) // 2]
    listed = ", ".join(f"{seconds:.1f}" for seconds in full_s)
    log.info("a round takes %.1f s; full training of the clients: %s s", round_s, listed)
    options = {"train_config": config, "evaluate_fn": strategy.evaluate}
    strategy.start(grid, strategy.arrays(), settings.rounds, settings.timeout, **options)
    model.save()
