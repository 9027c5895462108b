"""The number of probe minibatches that a selection needs.

    python scripts/benchmarks/probes.py --images path/to/images --weights path/to/mobilenet_v2.h5

Tensors are scored on 48 minibatches; the sum of these scores is the reference. Selections are then made by
the scores of 1 to 16 other minibatches, and their summed reference is compared with that of the selection by
the reference itself, which is 1.0. Medians over the draws that the minibatches allow.
"""

import numpy as np

import bench
from elastictrainer import select

COUNTS = (1, 2, 4, 5, 6, 8, 16)
REFERENCE = 48  # minibatches; three times the largest count, so that each count has three draws at least


def main() -> None:
    parser = bench.parser(__doc__, "probes.json", ["mobilenetv2"])
    parser.add_argument("--rho", type=float, default=0.5)
    options = parser.parse_args()
    results = bench.Results(options)
    print(f"{'model':<13}{'probes':>8}{'draws':>7}{'median':>9}{'worst':>8}")
    for name in options.models:
        made = bench.prepare(name, options)
        evaluator = made.evaluator()
        batches = made.data.probe(0)
        scores = np.array([evaluator([next(batches)]) for _ in range(2 * REFERENCE)])
        reference = scores[:REFERENCE].sum(axis=0)
        best = select(made.profile, reference, options.rho).importance
        for count in COUNTS:
            used = REFERENCE // count * count
            draws = scores[REFERENCE:][:used].reshape(-1, count, scores.shape[1]).sum(axis=1)
            reached = [
                float(reference[select(made.profile, draw, options.rho).mask].sum() / best) for draw in draws
            ]
            results.add({"model": name, "probes": count, "reached": reached})
            print(
                f"{name:<13}{count:>8}{len(reached):>7}{np.median(reached):>9.3f}{min(reached):>8.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
