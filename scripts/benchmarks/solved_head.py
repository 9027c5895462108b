"""The effect of the L2 penalty's strength on a solved head: accuracy and loss on the test images.

    python scripts/benchmarks/solved_head.py --weights path/to/mobilenet_v2.h5 --images path/to/cub100
    python scripts/benchmarks/solved_head.py --model demo --images demo

The features are those of one pass without augmentation, in inference mode. "time" is the solver's alone. The
default strength is marked.
"""

import argparse
import json
import time

import numpy as np

STRENGTHS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


def features_of(head, data, split):
    """Return (n, width) features and (n,) labels of a part of the data."""
    parts = [(head.features(x).numpy(), y.numpy()) for x, y in data.batches_of(split)]
    return tuple(np.concatenate(part) for part in zip(*parts))


def row(solved_head, strength, train, test, classes):
    """Solve with one strength; returns figures of the test images."""
    solved_head.PENALTY = strength
    began = time.perf_counter()
    kernel, bias, loss = solved_head.solve(train[0], np.eye(classes, dtype=np.float32)[train[1]])
    seconds = time.perf_counter() - began
    logits = test[0] @ kernel + bias
    logits -= logits.max(axis=1, keepdims=True)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return {
        "strength": strength,
        "accuracy": float((logits.argmax(axis=1) == test[1]).mean()),
        "test_loss": float(-np.log(chances[np.arange(len(test[1])), test[1]]).mean()),
        "train_loss": loss,
        "seconds": seconds,
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="mobilenetv2")
    parser.add_argument("--weights", default="imagenet")
    parser.add_argument("--images", required=True, help="as et-train --dataset")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--output", default="solved-head.json")
    options = parser.parse_args()
    from elastictrainer.data import datasets
    from elastictrainer.models import solved_head, zoo

    usual = solved_head.PENALTY
    size = options.image_size or zoo.default_image_size(options.model)
    data = datasets.load(options.images, 32, (size, size))
    classes = len(data.class_names)
    model = zoo.create(options.model, classes, size, options.weights, "solve")
    head = solved_head.SolvableHead(model)
    train, test = (features_of(head, data, split) for split in (data.train_split, data.test_split))
    rows = [row(solved_head, strength, train, test, classes) for strength in STRENGTHS]
    print(f"{options.model}, {len(train[1])} training and {len(test[1])} test images")
    print(f"{'strength':<10}{'accuracy':>10}{'test loss':>11}{'train loss':>12}{'time':>9}")
    for found in rows:
        mark = " *" if found["strength"] == usual else ""
        print(
            f"{found['strength']:<10g}{100 * found['accuracy']:>8.1f} %{found['test_loss']:>11.3f}"
            f"{found['train_loss']:>12.3f}{found['seconds']:>7.1f} s{mark}"
        )
    with open(options.output, "w", encoding="utf-8") as file:
        json.dump({"model": options.model, "images": options.images, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
