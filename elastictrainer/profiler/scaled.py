"""A profile that was measured on fewer examples than a minibatch has. NumPy only."""

import dataclasses

from elastictrainer.profiler.timings import TensorTimings


def for_batch(timings: TensorTimings, measured: int, batch: int) -> TensorTimings:
    """Return the profile of minibatches of `batch` examples, from one of `measured`: every time grows alike.

    That is too much for the updates, and for what a step costs however small it is. The metadata says so
    (`measured_examples`).
    """
    factor = batch / measured
    reuse = timings.reuse and dataclasses.replace(
        timings.reuse,
        once=timings.reuse.once.scaled(factor),
        once_flops=timings.reuse.once_flops.scaled(factor),
        cut_mb=timings.reuse.cut_mb * factor,
        recompute_ms=timings.reuse.recompute_ms * factor,
    )
    steps = ("predicted_ms", "measured_ms")
    return dataclasses.replace(
        timings,
        dw=timings.dw.scaled(factor),
        dy=timings.dy.scaled(factor),
        forward=timings.forward.scaled(factor),
        t_update=timings.t_update * factor,
        flops=timings.flops and timings.flops.scaled(factor),
        reuse=reuse,
        memory=timings.memory and timings.memory.for_batch(batch),
        metadata={**timings.metadata, "measured_examples": measured},
        validation=[{**row, **{key: row[key] * factor for key in steps}} for row in timings.validation],
    )
