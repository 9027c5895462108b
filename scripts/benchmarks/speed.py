"""Does a run keep to its budget? On the paper's models.

    python scripts/benchmarks/speed.py --images path/to/images --weights mobilenet_v2.h5 --output speed.json

For each rho of at least rho_min, the policy of the package makes the selections and corrections in the first
three intervals of a run of the paper's length (12 epochs of 1,500 steps, interval 3). At each selection, and
around the full steps by which the policy reviews it, real training steps run on real minibatches. The steps
in between do not run: the clock is advanced by their time, with selected steps at the ratio measured last.
"achieved" is the time of the three intervals, full steps, importance, selection and compilation included,
over full training's. Target: within 0.02 of rho; selections use 97 % of their budget while a tensor of
positive importance is left.
"""

import itertools
import time
from typing import Any, Dict, List

import numpy as np

import bench
from elastictrainer.selection.clock import IMPORTANCE, SELECTING, TRACING
from elastictrainer.selection.policy import FULL, PLAIN
from elastictrainer.training.stopwatch import STEPS, Stopwatch

EPOCHS, STEPS_PER_EPOCH, INTERVAL = 12, 1500, 3
INTERVALS = 3  # that are measured: the first, and two that follow corrections
PARTS = 3  # of an interval: start, middle and end; in each, the first bursts of full steps are measured


class Run:
    """A run at `rho`: the real policy, real training steps, and a clock that is advanced in between."""

    def __init__(self, made: bench.Bench, rho: float, scores: List[np.ndarray], scoring_s: float, block: int):
        from elastictrainer.selection.budget import Budget
        from elastictrainer.selection.elastic import ElasticPolicy
        from elastictrainer.selection.schedule import Schedule

        self.made, self.block = made, block
        self.schedule = Schedule(EPOCHS, STEPS_PER_EPOCH, INTERVAL)
        self.clock = Stopwatch()
        self.records: List[Dict[str, Any]] = []
        self.at = 0  # the step up to which the clock is advanced
        self.full_s = 0.0  # what full training would have taken up to there
        self._batches = made.minibatches()
        self._scores, self._scoring_s = scores, scoring_s
        budget = Budget(rho, made.timings, self.schedule)
        budget.WINDOW = 2 * block  # shorter than a run's: steps of large models take seconds here
        self.policy = ElasticPolicy(budget, self._score, self.clock, log=self.records.append)

    def _score(self, step: int) -> np.ndarray:
        """The importances that were scored once for every rho; their time is charged again."""
        self.clock.seconds[IMPORTANCE] += self._scoring_s
        return self._scores[self.schedule.selection_steps.index(step)]

    def take(self, step: int) -> float:
        """Make training step number `step`, charge its compilation if any, and return its ms."""
        mask = self.policy.next_mask(step, *divmod(step, STEPS_PER_EPOCH))
        compiled = not self.made.steps.has(mask)
        start = time.perf_counter()
        float(self.made.steps.get(mask)(*next(self._batches)))
        ms = 1e3 * (time.perf_counter() - start)
        if compiled:
            self.clock.seconds[TRACING] += 1e-3 * ms
        self.policy.step_taken(step, ms, None, compiled, FULL if mask.all() else PLAIN)
        return ms

    def advance(self, end: int, ratio: float) -> None:
        """Charge the scheduled steps up to number `end`, selected ones at `ratio` of a full one."""
        full_step_s = 1e-3 * self.policy.full_step_ms()
        full = sum(self.schedule.full_step_due(step) for step in range(self.at, end))
        self.clock.seconds[STEPS] += full_step_s * (full + ratio * (end - self.at - full))
        self.full_s += full_step_s * (end - self.at)
        self.at = end

    def open(self, first: int) -> None:
        """Go to step number `first`, before which the first selection is due: make the last full steps."""
        for step in range(first - self.block - 1, first):
            self.take(step)
        self.advance(first, 1.0)

    def begin_interval(self) -> float:
        """Select, make as many steps as the first review needs, and return the ratio measured by then."""
        compare = self.policy.budget.WINDOW + 2  # the first two are compiled in, and not typical
        for step in range(self.at, self.at + compare):
            self.take(step)
        ratio = self.policy.budget.measured_ratio()
        self.advance(self.at + compare, ratio)
        self.take(self.at)  # before it, the policy reviews the selection
        return ratio

    def go_to_burst(self, burst: int) -> float:
        """Make the steps before, in and after the burst that begins with step `burst`; return their ratio."""
        after = burst + self.schedule.burst_left(burst)
        selected_ms = [self.take(step) for step in range(burst - self.block - 1, burst)][1:]
        full_ms = [self.take(step) for step in range(burst, after)][1:]
        ratio = float(np.median(selected_ms) / np.median(full_ms))
        self.advance(after, ratio)
        if not self.schedule.selection_due(after):
            self.take(after)
            self.take(after + 1)  # before it, the policy reviews the selection
        return ratio


def bursts_between(schedule: Any, begin: int, end: int) -> List[int]:
    """The numbers of the steps with which full steps begin between two selections."""
    full = [schedule.full_step_due(step) for step in range(begin, end)]
    return [begin + k for k in range(1, len(full)) if full[k] and not full[k - 1]]


def measure(
    made: bench.Bench, rho: float, scores: List[np.ndarray], scoring_s: float, block: int, rounds: int
) -> Dict[str, Any]:
    """The first three intervals of a run at `rho`."""
    run = Run(made, rho, scores, scoring_s, block)
    selections = run.schedule.selection_steps
    run.open(selections[0])
    intervals = []
    for begin, end in zip(selections[:INTERVALS], selections[1:]):
        ratio = run.begin_interval()
        parts = []
        for bursts in np.array_split(bursts_between(run.schedule, begin, end), PARTS):
            target, record, mask = run.policy.target_ratio(run.at), run.records[-1], run.policy.mask
            measured = []
            for burst in bursts[:rounds].tolist():
                ratio = run.go_to_burst(burst)
                measured.append(ratio)
            parts.append(
                {
                    "target": target,
                    "measured": float(np.median(measured)),
                    "predicted": record["predicted_ratio"],
                    "budget": record["rho_selector"],
                    "tensors": int(mask.sum()),
                    "importance_left": bool((np.array(record["importance"])[~mask] > 0).any()),
                }
            )
        run.advance(end, ratio)
        intervals.append(parts)
    return {
        "model": made.name,
        "rho": rho,
        "achieved": run.clock.training() / run.full_s,
        "corrections": run.policy.corrections,
        "intervals": intervals,
        "selecting_s": run.clock.of(*SELECTING),
    }


def main() -> None:
    parser = bench.parser(__doc__, "speed.json")
    parser.add_argument("--rho", type=float, nargs="+", default=[0.4, 0.5, 0.6, 0.7, 0.8])
    parser.add_argument("--block", type=int, default=8, help="steps of one kind at a time")
    parser.add_argument("--rounds", type=int, default=3, help="bursts of full steps to measure in each part")
    options = parser.parse_args()
    results = bench.Results(options)
    print(
        f"{'model':<13}{'full ms':>8}{'rho_min':>9}{'rho':>6}{'achieved':>10}{'off':>8}{'corrections':>12}"
        f"{'budget used':>13}   measured, in each part of each interval"
    )
    for name in options.models:
        made = bench.prepare(name, options)
        evaluator = made.evaluator()
        scores, seconds = [], []
        for k in range(INTERVALS):
            start = time.perf_counter()
            scores.append(evaluator(itertools.islice(made.data.probe(k), options.importance_batches)))
            seconds.append(time.perf_counter() - start)
        for rho in options.rho:
            asked = f"{name:<13}{made.timings.full_ms:>8.1f}{made.timings.rho_min:>9.3f}{rho:>6g}"
            if rho < made.timings.rho_min + 0.01:
                print(f"{asked}  below what this device can have")
                continue
            row = {
                "full_ms": made.timings.full_ms,
                "rho_min": made.timings.rho_min,
                **measure(made, rho, scores, seconds[-1], options.block, options.rounds),
            }
            results.add(row)
            parts = [part for interval in row["intervals"] for part in interval]
            used = [part["predicted"] / part["budget"] for part in parts if part["importance_left"]]
            print(
                f"{asked}{row['achieved']:>10.3f}{row['achieved'] - rho:>+8.3f}{row['corrections']:>12}"
                f"{min(used) if used else 1:>12.1%}   "
                + "; ".join(
                    " ".join(f"{part['measured']:.3f}" for part in interval) for interval in row["intervals"]
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
