"""The head of old and new classes, on the features of a run's network: what is kept, and how it is solved.

    python studies/held_columns.py --run continual/first-seed0 --new continual/second

The run knows the old classes. Kept images are drawn by chance, or nearest to the mean of their class
(herding, as in iCaRL: Rebuffi et al., CVPR 2017). The head is solved on them and all new images, every class
weighing the same: all of it, or with the old columns held. A row is accuracy in per cent on the old and the
new test images.
"""

import argparse
import os
from pathlib import Path

import numpy as np

from elastictrainer.runs.files import write_csv


def features_of(run_path, new, cache):
    """Arrays by name: features and labels of both data sets' parts, and the run's kernel and bias."""
    if cache.exists():
        return dict(np.load(cache))
    from elastictrainer.data import datasets
    from elastictrainer.experiment import assembly
    from elastictrainer.models import user_models
    from elastictrainer.models.solved_head import SolvableHead
    from elastictrainer.runs.run_folder import RunFolder

    assembly.configure(0)
    run = RunFolder(run_path)
    model = user_models.read(run.weights_path())
    head, found = SolvableHead(model), {}
    for which, name in {"first": run.config()["dataset"], "second": new}.items():
        data = datasets.load(name, 32, model.input_shape[1:3])
        for part, split in data.splits.items():
            pairs = [(head.features(x).numpy(), y.numpy()) for x, y in data.batches_of(split)]
            features, labels = map(np.concatenate, zip(*pairs))
            found[f"{which}_{part}_x"] = features
            found[f"{which}_{part}_y"] = labels + (head.classes if which == "second" else 0)
    found["kernel"], found["bias"] = head.layer.get_weights()
    np.savez(cache, **found)
    return found


def drawn(features, labels, each, seed):
    """(n,) numbers of `each` images of every class, by chance."""
    random = np.random.default_rng(seed)
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    return np.concatenate([random.permutation(numbers)[:each] for numbers in members])


def herded(features, labels, each, seed):
    """(n,) numbers of images whose mean, one after the other, comes nearest to that of their class."""
    unit, chosen = features / np.linalg.norm(features, axis=1, keepdims=True), []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        of_class, taken = unit[members], []
        for k in range(each):
            total = of_class[taken].sum(axis=0)
            away = np.linalg.norm(of_class.mean(axis=0) - (total + of_class) / (k + 1), axis=1)
            away[taken] = np.inf
            taken.append(int(away.argmin()))
        chosen.append(members[taken])
    return np.concatenate(chosen)


def accuracies(a, chosen, held):
    """Accuracy in per cent on the old and the new test images, of a head solved with the images `chosen`."""
    from elastictrainer.models.solved_head import solve

    features = np.concatenate([a["second_train_x"], a["first_train_x"][chosen]])
    labels = np.concatenate([a["second_train_y"], a["first_train_y"][chosen]])
    counts = np.bincount(labels)
    weights = (1 / np.maximum(counts, 1))[labels]
    columns = (a["kernel"], a["bias"]) if held else None
    targets = np.eye(len(counts), dtype=np.float32)[labels]
    kernel, bias, _ = solve(features, targets, weights / weights.mean(), held=columns)
    for which in ("first", "second"):
        logits = a[f"{which}_test_x"] @ kernel + bias
        yield 100 * float((logits.argmax(axis=1) == a[f"{which}_test_y"]).mean())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", required=True, help="that knows the old classes")
    parser.add_argument("--new", required=True, help="data of the new classes")
    parser.add_argument("--kept", nargs="+", type=int, default=[1, 5, 10, 20])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path, default=Path("held-columns-features.npz"))
    parser.add_argument("--csv", default="held-columns.csv")
    options = parser.parse_args()
    arrays, rows = features_of(options.run, options.new, options.cache), []
    for kept in options.kept:
        for choice, choose in {"by chance": drawn, "herding": herded}.items():
            chosen = choose(arrays["first_train_x"], arrays["first_train_y"], kept, options.seed)
            for held in (True, False):
                found = (f"{accuracy:.1f}" for accuracy in accuracies(arrays, chosen, held))
                rows.append((kept, choice, "old columns held" if held else "all solved", *found))
                print(*rows[-1], flush=True)
                write_csv(options.csv, ("kept", "choice", "head", "old", "new"), rows)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
