"""A profile as a table for the terminal."""

from typing import List

import numpy as np

from elastictrainer.profiler.timings import TensorTimings

_COSTLIEST = 10


def _work(timings: TensorTimings) -> List[str]:
    """FLOPs as a line, where they were counted."""
    full = timings.step_flops(np.ones(len(timings), bool))
    if not full:
        return []
    forward = timings.step_flops(np.zeros(len(timings), bool))
    return [f"FLOPs         {full / 1e9:9.2f} G    a full step; {100 * forward / full:.1f} % of them forward"]


def table(timings: TensorTimings) -> str:
    """Step, forward share, coverage, rho_min, the costliest tensors, and the validation if there is one."""
    about = timings.metadata
    lines = [
        f"{about.get('model', 'model')}: {len(timings)} trainable tensors, batch {about.get('batch_size')}, "
        f"input {'x'.join(map(str, about.get('input_shape', [])))}, {about['device']}, "
        f"{about['threads']['processors']} processor(s)",
        f"full step     {timings.full_ms:9.1f} ms",
        f"forward       {100 * timings.forward_share:9.1f} %   of the full step; {100 * timings.frozen_saving:.0f} % less where it is frozen",
        f"overlap       {100 * timings.overlap:9.1f} %   of a tensor's own work remains when it is left out (below 0: more than it is saved)",
        *_work(timings),
        f"coverage      {100 * about['coverage']:9.1f} %   of the busy time is attributed",
        f"rho_min       {timings.rho_min:9.3f}     the smallest --rho this device can keep",
    ]
    for lost in about["unattributed"][:3]:
        lines.append(f"  unattributed: {lost['op']} {lost['ms']:.2f} ms")
    lines += ["", f"{'costliest tensors':<56}{'forward':>9}{'dW':>9}{'dy':>9}   ms"]
    for i in np.argsort(-(timings.t_dw + timings.t_dy), kind="stable")[:_COSTLIEST]:
        mark = " estimated" if timings.estimated[i] else ""
        name = timings.names[i] if len(timings.names[i]) <= 54 else "..." + timings.names[i][-51:]
        lines.append(
            f"{name:<56}{timings.t_forward[i]:9.2f}{timings.t_dw[i]:9.2f}{timings.t_dy[i]:9.2f}{mark}"
        )
    if timings.validation:
        lines += ["", f"{'random selection':<24}{'predicted ms':>14}{'measured ms':>14}{'error':>9}"]
        off = timings.validation_errors
        for result, error in zip(timings.validation, off):
            lines.append(
                f"{len(result['selected']):>5} of {len(timings)} tensors   ".ljust(24)
                + f"{result['predicted_ms']:14.1f}{result['measured_ms']:14.1f}{100 * error:8.1f}%"
            )
        lines.append(
            f"absolute error: median {100 * np.median(np.abs(off)):.1f} %, "
            f"90th percentile {100 * np.quantile(np.abs(off), 0.9):.1f} %"
        )
    return "\n".join(lines)
