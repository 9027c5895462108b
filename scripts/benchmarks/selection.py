"""The importance that the selector reaches within its budget, against the exact optimum and simpler rules.

    python scripts/benchmarks/selection.py --images path/to/images --weights path/to/mobilenet_v2.h5

Real profiles, importances of real minibatches. Every rule has the same budget by the cost groups. "milp" is
the optimum. Target: dp reaches 99 % of it for each model and rho.
"""

import itertools
import sys
import time
from pathlib import Path
from typing import Callable, Dict

import numpy as np

import bench
from elastictrainer import Profile, select

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "helpers"))
from milp_oracle import milp  # the exact solver is a test's


def first_that_fit(
    profile: Profile, importance: np.ndarray, order: np.ndarray, budget_ms: float
) -> np.ndarray:
    """Take the tensors in `order`, each if the step still fits the budget with it."""
    mask = np.zeros(len(profile), bool)
    for i in order:
        if importance[i] > 0 and profile.connected[i]:
            mask[i] = True
            if profile.step_time(mask) > budget_ms:
                mask[i] = False
    return mask


def by_density(profile: Profile, importance: np.ndarray, budget_ms: float) -> np.ndarray:
    """Again and again the tensor with the most importance for the time that it adds."""
    mask = np.zeros(len(profile), bool)
    left = set(np.flatnonzero((importance > 0) & profile.connected))
    now = profile.step_time(mask)
    while left:
        unpaid = profile.shared.rows(~profile.shared.active_groups(mask)).amount_per_tensor()
        cost = profile.t_dw + unpaid
        left = {i for i in left if now + cost[i] <= budget_ms}
        if not left:
            break
        best = max(left, key=lambda i: importance[i] / max(cost[i], 1e-9))
        mask[best] = True
        left.remove(best)
        now = profile.step_time(mask)
    return mask


RULES: Dict[str, Callable] = {
    "most important": lambda t, i, ms: first_that_fit(t, i, np.argsort(-i), ms),
    "importance per ms": by_density,
    "last layers": lambda t, i, ms: first_that_fit(t, i, t.order, ms),
}


def main() -> None:
    parser = bench.parser(__doc__, "selection.json")
    parser.add_argument("--rho", type=float, nargs="+", default=[0.4, 0.5, 0.6, 0.7, 0.8])
    parser.add_argument("--draws", type=int, default=3, help="importances, from different minibatches")
    options = parser.parse_args()
    results = bench.Results(options)
    print(
        f"{'model':<13}{'rho':>6}{'dp / milp':>11}"
        + "".join(f"{name:>20}" for name in RULES)
        + f"{'dp ms':>8}{'milp ms':>9}"
    )
    for name in options.models:
        made = bench.prepare(name, options)
        evaluator = made.evaluator()
        draws = [
            evaluator(itertools.islice(made.data.probe(k), options.importance_batches))
            for k in range(options.draws)
        ]
        for rho in options.rho:
            if rho < made.profile.rho_min:
                continue
            reached, took = [], []
            for importance in draws:
                start = time.perf_counter()
                dp = select(made.profile, importance, rho)
                middle = time.perf_counter()
                best = select(made.profile, importance, rho, solver=milp).importance
                took.append([1e3 * (middle - start), 1e3 * (time.perf_counter() - middle)])
                others = [
                    importance[rule(made.profile, importance, rho * made.profile.full_ms)].sum()
                    for rule in RULES.values()
                ]
                reached.append(np.array([dp.importance, *others]) / best)
            row = {
                "model": name,
                "rho": rho,
                "dp_ms": float(np.median(took, 0)[0]),
                "milp_ms": float(np.median(took, 0)[1]),
                **{rule: [float(r[k]) for r in reached] for k, rule in enumerate(["dp", *RULES])},
            }
            results.add(row)
            print(
                f"{name:<13}{rho:>6g}{min(row['dp']):>11.4f}"
                + "".join(f"{np.mean(row[rule]):>20.3f}" for rule in RULES)
                + f"{row['dp_ms']:>8.1f}{row['milp_ms']:>9.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
