"""The settings of a fleet: Flower's run configuration, checked."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Tuple

from elastictrainer.errors import UsageError, unknown
from elastictrainer.experiment.settings import TrainSettings
from elastictrainer.fleet.round_work import RULES

_LIMITS: Tuple[Tuple[Callable[[float], bool], str, str], ...] = (
    (lambda x: x >= 1, "at least 1", "rounds clients most-images batch-size importance-batches"),
    (lambda x: x > 0, "above 0", "learning-rate timeout concentration"),
    (lambda x: 0 < x <= 1, "above 0 and at most 1", "least-rho"),
    (lambda x: x >= 0, "0 or more", "seconds image-size seed"),
)


@dataclass(frozen=True)
class FleetSettings:
    """What `flwr run --run-config` sets; the keys have hyphens there (`image-size`)."""

    # As of et-train. Simulated clients divide the training part of the server's data; others have their own.
    dataset: str = "demo"
    model: str = "demo"
    weights: str = "imagenet"
    image_size: int = 0  # 0: the model's own
    batch_size: int = 4
    optimizer: str = "sgd"
    learning_rate: float = 1e-4
    seed: int = 0
    rounds: int = 5
    seconds: float = 0.0  # of a round; 0: of full training by the slowest of the faster half of the clients
    rule: str = "elastic"  # see `round_work`
    least_rho: float = 0.5  # of elastic clients, the least time of a step over a full step's
    importance_batches: int = 3  # that an elastic client scores its tensors on
    clients: int = 2  # that the server waits for before the first round
    most_images: int = 50_000  # of one client; one that says it has more is refused
    timeout: float = 600.0  # seconds by the clock that the server waits for the answers of a round
    concentration: float = 0.5  # of the Dirichlet distribution that divides classes among simulated clients
    # By simulated client, how many times as long its steps are counted to take, "1,1,4"; those beyond: 1.
    slow_downs: str = ""
    profile: str = ""  # file of the model's; it is made where there is none; empty: made for each run
    output: str = ""  # folder for rounds.csv and model.keras; empty: nothing is written

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> "FleetSettings":
        """Read Flower's run configuration; UsageError for an unknown key, another type, or out of range."""
        fields = {field.name.replace("_", "-"): field for field in dataclasses.fields(cls)}
        given: Dict[str, Any] = {}
        for key, value in config.items():
            if key not in fields:
                raise unknown("setting", key, fields)
            wanted: Any = type(fields[key].default)
            if wanted is float and isinstance(value, int) and not isinstance(value, bool):
                value = float(value)
            if type(value) is not wanted:
                raise UsageError(f"{key} must be of type {wanted.__name__}, not {value!r}.")
            given[fields[key].name] = value
        return cls(**given)

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise unknown("rule", self.rule, RULES)
        for holds, words, names in _LIMITS:
            for name in names.split():
                value = getattr(self, name.replace("-", "_"))
                if not holds(value):  # NaN holds none
                    raise UsageError(f"{name} must be {words}, not {value:g}.")
        self.slow_down(0)

    def slow_down(self, client: int) -> float:
        """Return how many times as long the steps of simulated client number `client` are counted to take."""
        try:
            factors: List[float] = [float(part) for part in self.slow_downs.split(",") if part.strip()]
        except ValueError:
            factors = [0.0]
        if any(not factor > 0 for factor in factors):
            raise UsageError(f"slow-downs must be numbers above 0 as in '1,1,4', not {self.slow_downs!r}.")
        return factors[client] if client < len(factors) else 1.0

    def for_training(self) -> TrainSettings:
        """Return the settings of et-train that say the same of model, data and optimizer."""
        same = ("dataset", "model", "weights", "batch_size", "optimizer", "learning_rate", "seed")
        values = {name: getattr(self, name) for name in (*same, "importance_batches")}
        return TrainSettings(image_size=self.image_size or None, **values)
