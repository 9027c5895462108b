"""A profile that was measured on fewer examples than a minibatch has. No TensorFlow."""

import dataclasses

from elastictrainer.profiler.profile import Profile


def for_batch(profile: Profile, measured: int, batch: int) -> Profile:
    """Return the profile of minibatches of `batch` examples, from one of `measured`: every time grows alike.

    That is too much for the updates, and for what a step costs however small it is. The metadata says so
    (`measured_examples`).
    """
    factor = batch / measured
    reuse = profile.reuse and dataclasses.replace(
        profile.reuse,
        once=profile.reuse.once.scaled(factor),
        once_flops=profile.reuse.once_flops.scaled(factor),
        cut_mb=profile.reuse.cut_mb * factor,
        recompute_ms=profile.reuse.recompute_ms * factor,
    )
    steps = ("predicted_ms", "measured_ms")
    return dataclasses.replace(
        profile,
        dw=profile.dw.scaled(factor),
        dy=profile.dy.scaled(factor),
        forward=profile.forward.scaled(factor),
        t_update=profile.t_update * factor,
        flops=profile.flops and profile.flops.scaled(factor),
        reuse=reuse,
        memory=profile.memory and profile.memory.for_batch(batch),
        metadata={**profile.metadata, "measured_examples": measured},
        validation=[{**row, **{key: row[key] * factor for key in steps}} for row in profile.validation],
    )
