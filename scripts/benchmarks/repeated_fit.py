"""Time what calls of `fit`, one after the other, cost in addition to their steps; watch the memory.

    python scripts/benchmarks/repeated_fit.py --weights path/to/mobilenet_v2.h5
    python scripts/benchmarks/repeated_fit.py --model demo --calls 30

Each call trains one epoch of a few new minibatches. "overhead" is the call's time without that of its steps.
"""

import statistics
import time

import numpy as np
import psutil

import bench


def main():
    parser = bench.bare_parser(__doc__)
    parser.add_argument("--model", default="mobilenetv2")
    parser.add_argument("--weights", default="none")
    parser.add_argument("--scheme", default="elastic")
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--minibatches", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--output", default="repeated-fit.json")
    options = parser.parse_args()
    import tensorflow as tf

    from elastictrainer import Trainer
    from elastictrainer.models import zoo

    size, random = zoo.default_image_size(options.model), np.random.default_rng(0)
    model = zoo.create(options.model, 10, size, options.weights, "zeros")
    trainer = Trainer(model, scheme=options.scheme, rho=0.5)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile(tf.keras.optimizers.SGD(1e-4, momentum=0.9), loss, metrics=["accuracy"])
    count, rows = options.minibatches * options.batch_size, []
    for number in range(options.calls):
        x = random.uniform(0, 255, (count, size, size, 3)).astype(np.float32)
        y = random.integers(0, 10, count)
        began = time.perf_counter()
        figures = trainer.fit(x, y, batch_size=options.batch_size, epochs=1, verbose=0).elastic
        seconds, parts = time.perf_counter() - began, figures["seconds"]
        over = {"overhead_s": seconds - parts.get("steps", 0.0) - parts.get("cache_read", 0.0)}
        memory = {"resident_mb": psutil.Process().memory_info().rss / 2**20}
        scored = {"scored_s": figures["importance_seconds"]}
        rows.append({"call": number + 1, "seconds": seconds, **over, **scored, **memory})
    later = [row for row in rows[1:] if not row["scored_s"]]
    scoring = [row["overhead_s"] for row in rows[1:] if row["scored_s"]]
    early = rows[min(len(rows) // 5, len(rows) - 1)]["resident_mb"]
    print(f"{options.model}, {options.scheme}, {options.calls} calls of {options.minibatches} minibatches")
    print(f"first call           {rows[0]['overhead_s']:8.2f} s in addition to its steps")
    print(f"later calls          {statistics.median(row['overhead_s'] for row in later):8.2f} s (median)")
    if scoring:
        print(f"those that score     {statistics.median(scoring):8.2f} s (median of {len(scoring)})")
    print(f"resident memory      {early:8.0f} MB after a fifth, {rows[-1]['resident_mb']:.0f} at the end")
    bench.write_json(options.output, {"options": vars(options), "rows": rows})


if __name__ == "__main__":
    main()
