"""Networks that are no chain of convolutions: a GRU that reads text, and a graph network.

    python studies/no_chains.py --csv no-chains.csv

Each learns to tell from which of eight installed packages a Python function comes (as text, or as its syntax
tree), all of it trained; then it is fine-tuned to eight packages of the standard library: all of it
for all epochs, all of it for half of them, elastic and freeze-below at rho 0.5, and its head alone. A row
of the CSV file is a run; accuracy is that of functions from other files, in per cent.
"""

import argparse
import os
from collections import defaultdict

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

import python_functions
from elastictrainer.plotting.replicates import spread
from elastictrainer.runs.files import write_csv

BEFORE = ("matplotlib", "scipy", "sklearn", "numpy", "PIL", "tensorboard", "tensorflow_datasets", "pip")
AFTER = ("idlelib", "asyncio", "email", "tkinter", "unittest", "multiprocessing", "xml", "lib2to3")
RHO = 0.5


def gru():
    """Embedding and two recurrent layers; gives (inputs, features)."""
    import tensorflow as tf

    layers = tf.keras.layers
    tokens = tf.keras.Input((python_functions.LENGTH,), dtype="int32", name="tokens")
    words = layers.Embedding(python_functions.WORDS, 64, name="words")(tokens)
    inner = layers.GRU(128, return_sequences=True, name="inner")(words)
    return {"tokens": tokens}, layers.GRU(128, name="outer")(inner)


def graph():
    """Four graph convolutions (Kipf and Welling) with shortcuts, and the mean over the nodes."""
    import tensorflow as tf

    layers = tf.keras.layers
    kinds = tf.keras.Input((python_functions.NODES,), dtype="int32", name="kinds")
    edges = tf.keras.Input((python_functions.NODES,) * 2, name="edges")
    nodes = layers.Embedding(python_functions.KINDS, 128, name="kind")(kinds)
    for number in range(4):
        messages = layers.Dense(128, activation="relu", name=f"graph{number}")(
            layers.Dot(axes=(2, 1))([edges, nodes])
        )
        nodes = layers.LayerNormalization(name=f"norm{number}")(layers.Add()([nodes, messages]))
    return {"kinds": kinds, "edges": edges}, layers.GlobalAveragePooling1D()(nodes)


NETWORKS = {"gru": (gru, python_functions.as_tokens), "graph": (graph, python_functions.as_graph)}


def with_head(network, classes):
    """The network with a new head of zeros, as for images."""
    import tensorflow as tf

    inputs, features = network()
    head = tf.keras.layers.Dense(classes, kernel_initializer="zeros", name="head")
    return tf.keras.Model(inputs, head(features))


def compiled(model, steps, learning_rate):
    import tensorflow as tf

    rate = tf.keras.optimizers.schedules.CosineDecay(learning_rate, steps)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(rate), loss, metrics=["accuracy"])


def fine_tuned(network, weights, train, test, options, seed, **how):
    """A row of results of one run."""
    import tensorflow as tf

    from elastictrainer import Trainer

    tf.keras.utils.set_random_seed(seed)
    epochs = how.pop("epochs", options.epochs)
    model = with_head(network, len(AFTER))
    for layer, values in weights.items():
        model.get_layer(layer).set_weights(values)
    compiled(model, epochs * (len(train[1]) // options.batch_size), options.learning_rate)
    trainer = Trainer(model, profile=options.profile, **how)
    history = trainer.fit(*train, batch_size=options.batch_size, epochs=epochs, verbose=0)
    options.profile = trainer.profile  # the first run that needs a profile makes it
    figures = history.elastic
    return {
        "accuracy": 100 * model.evaluate(*test, verbose=0)[1],
        "training s": figures["train_seconds"],
        "achieved": figures["rho_achieved"],
        "replayed": 100 * figures["cached_share"],
    }


def pretrained(network, encode, options):
    """Weights by layer, all but the head's; and what became of the training."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    train, test = python_functions.load(BEFORE, options.most, encode)
    model = with_head(network, len(BEFORE))
    compiled(model, options.pretrain * (len(train[1]) // options.batch_size), 1e-3)
    model.fit(*train, batch_size=options.batch_size, epochs=options.pretrain, verbose=0)
    print(f"{len(train[1])} functions before, accuracy {100 * model.evaluate(*test, verbose=0)[1]:.1f} %")
    return {
        layer.name: layer.get_weights() for layer in model.layers if layer.weights and layer.name != "head"
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), help="gru, graph")
    parser.add_argument("--epochs", type=int, default=24, help="of fine-tuning")
    parser.add_argument("--pretrain", type=int, default=10, help="epochs before")
    parser.add_argument("--most", type=int, default=600, help="functions of a package")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--csv", default="no-chains.csv")
    options = parser.parse_args()
    runs = {
        "full": {"scheme": "full"},
        "full, half the epochs": {"scheme": "full", "epochs": options.epochs // 2},
        "elastic": {"scheme": "elastic", "rho": RHO},
        "freeze-below": {"scheme": "freeze-below", "rho": RHO},
        "traditional-tl": {"scheme": "traditional-tl"},
    }
    rows = []
    for name in options.networks:
        network, encode = NETWORKS[name]
        weights = pretrained(network, encode, options)
        train, test = python_functions.load(AFTER, options.most, encode)
        print(f"{name}: {len(train[1])} functions to train on, {len(test[1])} to test")
        options.profile = None
        for seed in options.seeds:
            for run, how in runs.items():
                row = fine_tuned(network, weights, train, test, options, seed, **how)
                rows.append({"network": name, "run": run, "seed": seed, **row})
                print(rows[-1], flush=True)
    write_csv(options.csv, rows[0], (row.values() for row in rows))
    found = defaultdict(list)
    for row in rows:
        found[row["network"], row["run"]].append(row)
    for (name, run), same in found.items():
        accuracy = [row["accuracy"] for row in same]
        achieved = [row["achieved"] for row in same if row["achieved"] is not None]
        print(
            f"{name:<8}{run:<24}{np.mean(accuracy):6.1f} ± {spread(accuracy) or 0:.1f} %"
            + (f"   achieved {np.mean(achieved):.3f}" if achieved else "")
        )


if __name__ == "__main__":
    main()
