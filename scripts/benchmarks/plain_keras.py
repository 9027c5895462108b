"""A rival without this package: MobileNetV2 fine-tuned by a careful Keras script.

    python scripts/benchmarks/plain_keras.py path/to/cub100 --weights mobilenetv2.h5 --epochs 8 --rate 3e-4

The early layers run once over the images, and what they give is kept in memory. A new last layer is trained
on the features, then all layers above `--cut` with AdamW, a cosine after a warm-up, label smoothing and batch
norms that keep their statistics. The seconds that are printed cover the pass over the training images, the
last layer and the training of the layers; not loading, nor the test on all test images.
"""

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # the faster kernels, as this package has them

import numpy as np
import tensorflow as tf

_SIZE, _BATCH, _SMOOTHING, _HEAD_EPOCHS, _WARM = 224, 16, 0.1, 20, 0.1


def images_of(folder, classes=None):
    """Return minibatches of images (N, H, W, 3) in -1..1 and labels (N, C), and the names of the classes."""
    data = tf.keras.utils.image_dataset_from_directory(
        folder, label_mode="categorical", class_names=classes, image_size=(_SIZE, _SIZE), shuffle=False
    )
    names = data.class_names
    return data.map(lambda x, y: (x / 127.5 - 1, y)).prefetch(1), names


def compile_for(model, rate):
    loss = tf.keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=_SMOOTHING)
    model.compile(tf.keras.optimizers.AdamW(rate), loss, metrics=["accuracy"])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", help="folder with train/CLASS/IMAGE and test/CLASS/IMAGE")
    parser.add_argument("--weights", default="imagenet")
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--cut", default="block_12_add")
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bfloat16", action="store_true", help="layers but the last compute in bfloat16")
    given = parser.parse_args()
    tf.keras.utils.set_random_seed(given.seed)
    if given.bfloat16:
        tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    network = tf.keras.applications.MobileNetV2(
        (_SIZE, _SIZE, 3), include_top=False, weights=given.weights, pooling="avg"
    )
    cut = network.get_layer(given.cut).output
    early, late = tf.keras.Model(network.input, cut), tf.keras.Model(cut, network.output)
    training, names = images_of(f"{given.dataset}/train")

    began = time.perf_counter()
    parts = [(early.predict_on_batch(x), y) for x, y in training]
    activations, labels = (np.concatenate(part).astype(np.float32) for part in zip(*parts))
    head = tf.keras.Sequential([tf.keras.layers.Dense(len(names), dtype="float32")])
    compile_for(head, 3e-3)
    features = late.predict(activations, verbose=0)
    head.fit(features, labels, batch_size=64, epochs=_HEAD_EPOCHS, verbose=0)
    took = time.perf_counter() - began
    known = head.evaluate(features, labels, verbose=0)[1]
    print(f"head after {took:.0f} s, {100 * known:.1f} % of the training images")
    for layer in late.layers:
        layer.trainable = not isinstance(layer, tf.keras.layers.BatchNormalization)
    model = tf.keras.Model(late.input, head(late.output))
    steps = given.epochs * -(-len(labels) // _BATCH)
    warm = int(_WARM * steps)
    cosine = tf.keras.optimizers.schedules.CosineDecay(
        0.0, steps - warm, warmup_target=given.rate, warmup_steps=warm
    )
    compile_for(model, cosine)
    model.fit(activations, labels, batch_size=_BATCH, epochs=given.epochs, verbose=0)
    took = time.perf_counter() - began

    print(f"{given.epochs} epochs, in all {took:.0f} s of training")
    test, _ = images_of(f"{given.dataset}/test", names)
    whole = tf.keras.Model(network.input, model(early(network.input)))
    compile_for(whole, given.rate)
    accuracy = 100 * whole.evaluate(test, verbose=0)[1]
    print(f"accuracy {accuracy:.2f} %")


if __name__ == "__main__":
    main()
