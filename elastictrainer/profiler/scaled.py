"""A profile that was measured on fewer examples than a minibatch has. No TensorFlow."""

import dataclasses

from elastictrainer.profiler.profile import Profile


def time_ratio(profile: Profile, full: int, fewer: int, examples: int) -> float:
    """Return the time of a full step on `full` examples over that of one on `fewer`.

    Times grow by `example_ms` of the profile's metadata for each example. Where that was not measured, all
    but the updates is proportional to the examples, which is more than it takes.

    Args:
        profile: of minibatches of `examples`.
    """
    step_ms = profile.full_ms
    example_ms = profile.metadata.get("example_ms", (step_ms - float(profile.t_update.sum())) / examples)
    full_ms, fewer_ms = (step_ms + (count - examples) * example_ms for count in (full, fewer))
    return float(full_ms / fewer_ms)


def for_batch(profile: Profile, measured: int, batch: int) -> Profile:
    """Return the profile of minibatches of `batch` examples, from one of `measured`: all times grow alike.

    The metadata says so (`measured_examples`).
    """
    factor, times = batch / measured, time_ratio(profile, batch, measured, measured)
    costs = profile.cache and dataclasses.replace(
        profile.cache,
        once=profile.cache.once.scaled(times),
        once_flops=profile.cache.once_flops.scaled(factor),
        cut_mb=profile.cache.cut_mb * factor,
        recompute_ms=profile.cache.recompute_ms * times,
    )
    steps = ("predicted_ms", "measured_ms")
    return dataclasses.replace(
        profile,
        dw=profile.dw.scaled(times),
        dy=profile.dy.scaled(times),
        forward=profile.forward.scaled(times),
        t_update=profile.t_update * times,
        flops=profile.flops and profile.flops.scaled(factor),
        cache=costs,
        memory=profile.memory and profile.memory.for_batch(batch),
        metadata={**profile.metadata, "measured_examples": measured},
        validation=[{**row, **{key: row[key] * times for key in steps}} for row in profile.validation],
    )
