"""Print one line per profile, with the error of its validation, and write them as JSON.

python scripts/benchmarks/summarise_profiles.py profiles/*.json --output results.json
"""

import argparse

import numpy as np

from elastictrainer import TensorTimings
from elastictrainer.runs.files import write_json


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("profiles", nargs="+")
    parser.add_argument("--output", help="JSON file to write")
    arguments = parser.parse_args()
    rows = []
    for path in arguments.profiles:
        if path == arguments.output:
            continue
        timings = TensorTimings.load(path)
        off = np.abs(timings.validation_errors)
        rows.append(
            {
                "model": timings.metadata["model"],
                "tensors": len(timings),
                "full_ms": timings.full_ms,
                "forward_share": timings.forward_share,
                "frozen_saving": timings.frozen_saving,
                "coverage": timings.metadata["coverage"],
                "rho_min": timings.rho_min,
                "selections": len(off),
                "median_error": float(np.median(off)) if len(off) else None,
                "p90_error": float(np.quantile(off, 0.9)) if len(off) else None,
            }
        )
    print(
        f"{'model':<14}{'tensors':>8}{'step ms':>10}{'forward':>9}{'coverage':>10}{'rho_min':>9}"
        f"{'median error':>14}{'90th perc.':>12}"
    )
    for row in rows:
        error = [
            f"{100 * row[k]:.1f} %" if row[k] is not None else "-" for k in ("median_error", "p90_error")
        ]
        print(
            f"{row['model']:<14}{row['tensors']:>8}{row['full_ms']:>10.1f}"
            f"{100 * row['forward_share']:>7.1f} %"
            f"{100 * row['coverage']:>8.1f} %{row['rho_min']:>9.3f}{error[0]:>14}{error[1]:>12}"
        )
    if arguments.output:
        write_json(arguments.output, rows)


if __name__ == "__main__":
    main()
