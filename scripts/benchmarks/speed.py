"""Does a run take the share of the time that was asked for? Requested, predicted and measured, on the paper's models.

    python scripts/benchmarks/speed.py --images path/to/images --weights path/to/mobilenet_v2.h5 --output speed.json

For each rho that the device can have, the program's own plan, pace and selector drive a run of the paper's length (12 epochs of
1,500 steps, interval 3). At each of its first three selections real training steps on real minibatches are made: full
ones, importance and selection, the first steps of the selection, the check and the corrections that the closed loop
asks for; then selected and full steps in turn, input pipeline included. The steps in between are not run: they are
taken to go on at the measured ratio. "achieved" is the time of the three intervals, full steps, importance, selection
and compilation included, over full training's. Target: within 0.02 of rho; selections use 97 % of their budget.
"""

import itertools
import json
import time
from pathlib import Path

import bench
import numpy as np

from elastictrainer import environment
from elastictrainer.files import write_json

EPOCHS, STEPS_PER_EPOCH, INTERVAL = 12, 1500, 3


def measure(made: bench.Bench, rho: float, scores: list, scoring_s: float, block: int) -> dict:
    """The first three intervals of a run at `rho`."""
    from elastictrainer.pace import Pace
    from elastictrainer.plan import Plan
    from elastictrainer.reselection import Reselector
    from elastictrainer.stopwatch import Stopwatch

    plan = Plan(EPOCHS, STEPS_PER_EPOCH, INTERVAL)
    pace = Pace(rho, made.timings, plan)
    pace.FIRST_CHECKS = (block,)
    watch = Stopwatch()
    reselect = Reselector(None, pace, watch, 0, "dp", feedback=True)
    batches = made.minibatches()
    everything = made.timings.connected
    done = {"mask": None}

    def run(mask: np.ndarray, count: int, step: int, keep: bool = True) -> float:
        """Median ms of `count` training steps, the first of the graph left out."""
        took = []
        for k in range(count + 1):
            start = time.perf_counter()
            x, y = next(batches)
            float(made.steps.get(mask)(x, y))
            took.append(1e3 * (time.perf_counter() - start))
            if keep:
                pace.record(step + k, took[-1], mask is everything)
        return float(np.median(took[1:]))

    def compiled(mask: np.ndarray, step_ms: float) -> None:
        if not made.steps.has(mask):
            start = time.perf_counter()
            float(made.steps.get(mask)(*next(batches)))
            watch.seconds["tracing"] += max(0.0, time.perf_counter() - start - 1e-3 * step_ms)
            done["compile_s"] = time.perf_counter() - start

    intervals, corrections = [], 0
    full_s = 0.0
    for k, step in enumerate(plan.selection_steps[:3]):
        end = plan.selection_steps[k + 1]
        run(everything, 3 * block // 2, step - 3 * block // 2)
        watch.seconds["importance"] += scoring_s
        reselect.importance = scores[k]
        if k == 0:
            watch.seconds["steps"] += 1e-3 * pace.full_step_ms() * step
            full_s += 1e-3 * pace.full_step_ms() * step
        for attempt in range(4):
            mask, record = reselect.choose(step, done["mask"])
            if attempt and (mask == done["mask"]).all():
                break
            corrections += attempt > 0
            done["mask"] = mask
            compiled(mask, record["predicted_ms"])
            pace.new_selection(record["predicted_ratio"])
            run(mask, block, step)
            if not pace.check(step, reselect.target_ratio(step), done["compile_s"])[0]:
                break
        ratio, all_ratios = bench.median_ratio(lambda: run(mask, block, step, False), lambda: run(everything, block, step, False), 4)
        whole_s = 1e-3 * pace.full_step_ms()
        full_steps = end - step - plan.selected_left(step)
        watch.seconds["steps"] += whole_s * (full_steps + ratio * plan.selected_left(step))
        full_s += whole_s * (end - step)
        budget = record["rho_selector"]
        useful_left = bool((scores[k][~mask] > 0).any())
        intervals.append(
            {"target": record["rho_target"], "measured": ratio, "rounds": all_ratios, "predicted": record["predicted_ratio"],
             "budget_used": record["predicted_ratio"] / budget if useful_left else None, "tensors": int(mask.sum())}
        )  # fmt: skip
    achieved = watch.training() / full_s
    return {"model": made.name, "rho": rho, "achieved": achieved, "corrections": corrections, "intervals": intervals,
            "selecting_s": sum(watch.seconds[n] for n in ("importance", "selection", "tracing"))}  # fmt: skip


def main() -> None:
    parser = bench.parser(__doc__, "speed.json")
    parser.add_argument("--rho", type=float, nargs="+", default=[0.4, 0.5, 0.6, 0.7, 0.8])
    parser.add_argument("--block", type=int, default=8, help="steps of one kind at a time")
    options = parser.parse_args()
    rows = []
    if Path(options.output).exists():
        rows = [row for row in json.loads(Path(options.output).read_text())["rows"] if row["model"] not in options.models]
    print(f"{'model':<13}{'full ms':>8}{'rho_min':>9}{'rho':>6}{'achieved':>10}{'off':>8}{'corrections':>12}{'budget used':>13}   target -> measured")
    for name in options.models:
        made = bench.prepare(name, options)
        evaluator = made.evaluator()
        scores, seconds = [], []
        for k in range(3):
            start = time.perf_counter()
            scores.append(evaluator(itertools.islice(made.data.train(1_000_000 + k), options.importance_batches)))
            seconds.append(time.perf_counter() - start)
        for rho in options.rho:
            if rho < made.timings.rho_min + 0.01:
                print(f"{name:<13}{made.timings.full_ms:>8.1f}{made.timings.rho_min:>9.3f}{rho:>6g}  below what this device can have")
                continue
            row = {"full_ms": made.timings.full_ms, "rho_min": made.timings.rho_min, **measure(made, rho, scores, seconds[-1], options.block)}
            rows.append(row)
            write_json(options.output, {"rows": rows, "options": vars(options), **environment.describe()})
            used = [i["budget_used"] for i in row["intervals"] if i["budget_used"] is not None]
            print(
                f"{name:<13}{row['full_ms']:>8.1f}{row['rho_min']:>9.3f}{rho:>6g}{row['achieved']:>10.3f}{row['achieved'] - rho:>+8.3f}"
                f"{row['corrections']:>12}{min(used) if used else 1:>12.1%}   "
                + ", ".join(f"{i['target']:.3f} -> {i['measured']:.3f}" for i in row["intervals"]),
                flush=True,
            )


if __name__ == "__main__":
    main()
