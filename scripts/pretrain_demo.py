"""Pre-train the demo network on the source domain and write its weights into the package.

    python scripts/pretrain_demo.py

Takes a few minutes on two cores. Prints the accuracy on the source domain, and on the target domain before
any adaptation.
"""

import argparse

import numpy as np
import tensorflow as tf

from elastictrainer.data import demo_digits
from elastictrainer.models import demo_network


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--output", default=str(demo_network.WEIGHTS))
    arguments = parser.parse_args()

    tf.keras.utils.set_random_seed(0)
    images, labels = demo_digits.source("train")
    pixels = tf.keras.Input((demo_digits.SIZE, demo_digits.SIZE, 3))
    features = tf.keras.layers.Rescaling(1 / 127.5, offset=-1.0)(pixels)
    backbone = demo_network.backbone((demo_digits.SIZE, demo_digits.SIZE, 3))
    pooled = tf.keras.layers.GlobalAveragePooling2D()(backbone(features))
    model = tf.keras.Model(pixels, tf.keras.layers.Dense(len(demo_digits.CLASSES))(pooled))
    steps = arguments.epochs * (len(images) // 32)
    model.compile(
        tf.keras.optimizers.Adam(tf.keras.optimizers.schedules.CosineDecay(2e-3, steps)),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(images, labels, batch_size=32, epochs=arguments.epochs, verbose=2)
    demo_network.save_weights(backbone, arguments.output)
    demo_network.load_weights(backbone, arguments.output)  # in the half precision that ships
    for name, (x, y) in {
        "source domain": demo_digits.source("test"),
        "target domain": demo_digits.target("test"),
    }.items():
        accuracy = np.mean(model.predict(x, verbose=0).argmax(axis=1) == y)
        print(f"accuracy on {name}: {100 * accuracy:.1f} %")


if __name__ == "__main__":
    main()
