"""Predicted against measured time of selections, on the models of the package and on others.

    python scripts/benchmarks/time_model.py --output time_model.json
    python scripts/benchmarks/time_model.py resnet50 gru-lstm-text --batch 16 --inter-op 1

Each model is profiled in a new process; then 20 selections are measured, each in turn with the full step:
near the output, scattered, a single deep tensor, biases only, normalisation only, all. Three passes measure
all of them; the median counts, since other work on the machine comes and goes. Target: median error 3 %,
90th percentile 8 %, coverage 99 % of the busy time. "noise" is the error of the same measurement of the full
step against itself. The host of a virtual machine may take the processors away: profile and measurements are
then repeated, up to a limit; "stolen" is the share that the host still took during the profile. "later" is
the full step's time during the measurements over that in the profile: far from 1, the machine has changed
its speed, and with it the ratios.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from elastictrainer import Profile
from elastictrainer.runs import environment
from elastictrainer.runs.files import write_json

_NOISE = 3  # measurements of the full step against itself: as many have a median
_PASSES = 3  # over all selections, for the same reason
_STOLEN = 0.01  # of the processors' time: a profile from which the host took more is made again
_PROFILES = 5  # at most; a host that is busy for longer will not be idle soon
_FULL = 6  # full steps in a row before each pass
_PATIENCE = 30  # times as many rounds as needed, to find enough from which the host took nothing


def masks(profile: Profile, count: int, seed: int = 0) -> List[Tuple[str, np.ndarray]]:
    """(kind, (N,) bool) selections, the kinds in turn; a kind that a model has no tensor for is left out."""
    random = np.random.default_rng(seed)
    n = len(profile)
    order = profile.order[profile.connected[profile.order]]
    last = np.array([name.split("/")[-1].split(":")[0] for name in profile.names])
    norm = np.isin(last, ("gamma", "beta"))
    bias = last == "bias"

    def of(indices: Any) -> np.ndarray:
        mask = np.zeros(n, bool)
        mask[indices] = True
        return mask & profile.connected

    kinds = {
        "near the output": lambda: of(order[: random.integers(1, len(order) + 1)]),
        "scattered": lambda: of(np.flatnonzero(random.random(n) < random.uniform(0.05, 0.6))),
        "single deep": lambda: of([order[random.integers(len(order) // 2, len(order))]]),
        "bias only": lambda: of(np.flatnonzero(bias & (random.random(n) < 0.7))),
        "norm only": lambda: of(np.flatnonzero(norm & (random.random(n) < 0.7))),
        "all": lambda: profile.connected.copy(),
    }
    chosen: List[Tuple[str, np.ndarray]] = []
    everything = False
    for k in range(20 * count):
        kind = list(kinds)[k % len(kinds)]
        if kind == "all" and everything:
            continue
        mask = kinds[kind]()
        if mask.any() and len(chosen) < count:
            chosen.append((kind, mask))
            everything |= kind == "all"
    return chosen


def measure(name: str, batch_size: int, inter_op: int, count: int, seconds: float) -> Dict[str, Any]:
    """Profile one model in this process, and compare predicted with measured times."""
    import tensorflow as tf

    from bench import stolen_seconds, undisturbed
    from elastictrainer import profile_model
    from elastictrainer.experiment.assembly import configure
    from elastictrainer.profiler.calibration import ratios_to_full
    from elastictrainer.steps import optimizers
    from elastictrainer.steps.compiled_step import CompiledSteps
    from elastictrainer.steps.objective import Objective
    from elastictrainer.steps.timing import step_ms
    from zoo import ZOO

    if inter_op:
        tf.config.threading.set_inter_op_parallelism_threads(inter_op)
    configure(seed=0)
    model, loss, batch = ZOO[name](batch_size)
    optimizer = optimizers.make("sgd")
    profiles: List[Tuple[float, Profile]] = []
    while len(profiles) < _PROFILES and not (profiles and profiles[-1][0] <= _STOLEN):
        start, before = time.perf_counter(), stolen_seconds()
        profile = profile_model(model, loss, batch, optimizer)
        processor_s = (time.perf_counter() - start) * (os.cpu_count() or 1)
        profiles.append(((stolen_seconds() - before) / processor_s, profile))
    stolen, profile = min(profiles, key=lambda profile: profile[0])
    chosen = masks(profile, count)
    every = [profile.connected] * _NOISE + [mask for _, mask in chosen]
    cache = CompiledSteps(Objective(model, loss), optimizer, size=len(every) + 1)
    random = np.random.default_rng(0)
    passes = np.empty((_PASSES, len(every)))
    later_ms: List[float] = []
    for one in passes:
        later_ms.extend(step_ms(cache.get(profile.connected), batch, 1 + _FULL)[1:])
        for k in random.permutation(len(every)):
            (one[k],) = ratios_to_full(
                cache.get,
                [every[k]],
                profile.connected,
                batch,
                seconds,
                rounds=1,
                repeat=partial(undisturbed, patience=_PATIENCE),
            )
    noise, ratios = np.split(np.median(passes, axis=0), [_NOISE])
    noise = np.abs(noise - 1)
    full_ms = profile.step_time(profile.connected)
    rows = [
        {
            "kind": kind,
            "selected": np.flatnonzero(mask).tolist(),
            "predicted_ms": profile.step_time(mask),
            "measured_ms": ratio * full_ms,
        }
        for (kind, mask), ratio in zip(chosen, ratios)
    ]
    off = np.abs([row["predicted_ms"] / row["measured_ms"] - 1 for row in rows])
    return {
        "model": name,
        "batch": batch_size,
        "inter_op": inter_op,
        "tensors": len(profile),
        "full_ms": profile.full_ms,
        "later": float(np.median(later_ms)) / profile.full_ms,
        "rho_min": profile.rho_min,
        "frozen_saving": profile.frozen_saving,
        "overlap": profile.overlap,
        "coverage": profile.metadata["coverage"],
        "stolen": stolen,
        "median_error": float(np.median(off)),
        "p90_error": float(np.quantile(off, 0.9)),
        "noise_median": float(np.median(noise)),
        "noise_p90": float(np.quantile(noise, 0.9)),
        "worst": rows[int(np.argmax(off))]["kind"],
        "selections": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", help="of the zoo; all if none is named")
    parser.add_argument("--batch", type=int, nargs="+", default=[4])
    parser.add_argument(
        "--inter-op", type=int, nargs="+", default=[0], help="inter-op threads; 0: TensorFlow chooses"
    )
    parser.add_argument("--selections", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement in each pass")
    parser.add_argument(
        "--output", default="time_model.json", help="JSON file to write; what is there is kept, and added to"
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.here:
        write_json(
            asked.output,
            measure(asked.models[0], asked.batch[0], asked.inter_op[0], asked.selections, asked.seconds),
        )
        return
    from zoo import ZOO

    unknown = [name for name in asked.models if name not in ZOO]
    if unknown:
        parser.error(f"unknown model {unknown[0]!r}; valid: {', '.join(ZOO)}")
    results = json.loads(Path(asked.output).read_text())["results"] if Path(asked.output).exists() else []
    print(
        f"{'model':<20}{'batch':>6}{'inter-op':>9}{'tensors':>8}{'step ms':>9}{'coverage':>10}"
        f"{'stolen':>8}{'later':>7}{'median':>9}{'90th perc.':>11}{'noise':>8}{'90th':>8}  worst kind"
    )
    for name in asked.models or list(ZOO):
        for batch in asked.batch:
            for inter_op in asked.inter_op:
                with tempfile.TemporaryDirectory() as folder:
                    file = Path(folder, "result.json")
                    done = subprocess.run(
                        [
                            sys.executable,
                            __file__,
                            name,
                            "--batch",
                            str(batch),
                            "--inter-op",
                            str(inter_op),
                            "--selections",
                            str(asked.selections),
                            "--seconds",
                            str(asked.seconds),
                            "--output",
                            str(file),
                            "--here",
                        ],
                        capture_output=True,
                        text=True,
                        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
                    )
                    if done.returncode:
                        print(
                            f"{name:<20}{batch:>6}{inter_op:>9}  failed: "
                            f"{(done.stderr.strip().splitlines() or ['?'])[-1]}"
                        )
                        continue
                    row = json.loads(file.read_text())
                results = [
                    r for r in results if (r["model"], r["batch"], r["inter_op"]) != (name, batch, inter_op)
                ] + [row]
                write_json(asked.output, {"results": results, **environment.describe()})
                print(
                    f"{name:<20}{batch:>6}{inter_op or 'auto':>9}{row['tensors']:>8}{row['full_ms']:>9.1f}"
                    f"{100 * row['coverage']:>8.1f} %"
                    f"{100 * row['stolen']:>6.1f} %{row['later']:>7.2f}"
                    f"{100 * row['median_error']:>7.1f} %{100 * row['p90_error']:>9.1f} %"
                    f"{100 * row['noise_median']:>6.1f} %{100 * row['noise_p90']:>6.1f} %  {row['worst']}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
