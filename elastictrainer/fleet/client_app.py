"""The Flower ClientApp: a client's images, its profile, and its rounds."""

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Mapping, Tuple

import numpy as np

from elastictrainer.fleet import require_flower

require_flower()
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from elastictrainer.data.image_data import ImageData
from elastictrainer.errors import UsageError
from elastictrainer.experiment import assembly
from elastictrainer.fleet.local_training import LocalTraining, dirichlet, keep_decoded, own_images
from elastictrainer.fleet.round_work import Device
from elastictrainer.fleet.settings import FleetSettings

_RECORD = "elastictrainer"  # record of the context's state: what holds from one round to the next

app = ClientApp()


# A process that simulates several clients makes each of these once.
_training = functools.lru_cache(maxsize=1)(LocalTraining)


@functools.lru_cache(maxsize=1)
def _data_set(settings: FleetSettings) -> ImageData:
    data = assembly.load_data(settings.for_training())
    return keep_decoded(replace(data, splits={"train": data.train_split}))  # the server tests


@functools.lru_cache(maxsize=64)
def _share(settings: FleetSettings, partition: int, partitions: int) -> ImageData:
    data = _data_set(settings)
    whole = data.train_split
    owner = dirichlet(whole.labels, partitions, settings.concentration, settings.seed, settings.batch_size)
    return replace(data, splits={"train": whole.subset(owner == partition)}, seed=partition)


@functools.lru_cache(maxsize=1)
def _own(settings: FleetSettings, folder: str, names: Tuple[str, ...], size: Tuple[int, int]) -> ImageData:
    images = own_images(Path(folder), names)
    return keep_decoded(ImageData(folder, names, {"train": images}, settings.batch_size, size, settings.seed))


def name_of(context: Context) -> str:
    """Return a client's name in messages: of --node-config, its number in a simulation, or its id."""
    config = context.node_config
    if "name" in config:
        return str(config["name"])
    return f"client {config['partition-id']}" if "partition-id" in config else f"node {context.node_id}"


def _prepared(message: Message, context: Context) -> Tuple[LocalTraining, ImageData, Device]:
    settings = FleetSettings.from_config(context.run_config)
    order = message.content["config"]
    names, size = tuple(order["class-names"]), tuple(order["image-size"])
    config = context.node_config
    training = _training(settings, len(names))
    slow_down = 1.0
    if "images" in config:
        data = _own(settings, str(config["images"]), names, size)
    elif "partition-id" in config:
        partition = int(config["partition-id"])
        data = _share(settings, partition, int(config["num-partitions"]))
        slow_down = settings.slow_down(partition)
    else:
        raise UsageError(
            f"{name_of(context)} has no images: start its SuperNode with --node-config \"images='FOLDER'\"."
        )
    if order["start"] != training.start:
        raise UsageError(
            f"{name_of(context)} starts from other weights than the server: give both the same weights file "
            "(weights) and seed."
        )
    profile = str(config.get("profile", settings.profile))
    return training, data, Device(training.profile(data, profile), slow_down)


@app.query()
def describe(message: Message, context: Context) -> Message:
    """Reply with the statistics of the client's images, and with what a round of full training takes."""
    training, data, device = _prepared(message, context)
    full_s = device.full_seconds(data.steps_per_epoch)
    figures = {"full-seconds": full_s, "pass-seconds": device.profile.forward_share * full_s}
    return _reply(message, context, training.statistics(data).arrays(), figures)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train for a round; reply with the tensors that trained, and nothing else of the model."""
    training, data, device = _prepared(message, context)
    order = message.content["config"]
    state = context.state.get(_RECORD)
    trained, client_state = training.train(
        {int(index): array.numpy() for index, array in message.content["arrays"].items()},
        data,
        device,
        float(order["seconds"]),
        int(order["server-round"]),
        state["client_state"] if state else "",
    )
    context.state[_RECORD] = ConfigRecord({"client_state": client_state})
    figures = {"num-examples": trained.examples, "seconds": trained.seconds}
    return _reply(message, context, trained.tensors, figures)


def _reply(
    message: Message, context: Context, arrays: Mapping[Any, np.ndarray], figures: Dict[str, float]
) -> Message:
    record = {str(name): Array(np.ascontiguousarray(values)) for name, values in arrays.items()}
    about = ConfigRecord({"name": name_of(context)})
    content = {"arrays": ArrayRecord(record), "metrics": MetricRecord(figures), "about": about}
    return Message(RecordDict(content), reply_to=message)
