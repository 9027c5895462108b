r"""How much of what layers bring would each metric's selection have brought, in the same time?

    python studies/captured.py --truth studies/truth-cub100.csv --profile profile.json

`truth.py` measured the gain of each layer by itself. Here each metric chooses layers for a part of a full
step's time by a profile of the same network (of et-profile or of a run), as `study_schemes:ByLayer` does,
and what its layers bring is added up. `known` chooses by what layers brought on other minibatches: no
metric can be expected to do better. `freeze-below` takes all layers above one, as deep as the time allows.
Printed: the loss that the chosen layers took away at each point of training, and the sum over the points,
in per cent of what `known` reaches.
"""

import argparse

import numpy as np

import layers
from correlation import read
from elastictrainer import Profile, select


def chosen_by(profile, importance, rho):
    """(L,) bool: the layers that importance per layer chooses; the head, the last one, always is."""
    scores = np.append(importance, importance.max() + np.abs(importance).sum())
    return select(profile, scores, rho).mask[:-1]


def chosen_from_above(profile, rho):
    """(L,) bool: all layers down to the deepest one that the time allows."""
    count, best = len(profile), None
    for deepest in range(count - 1, -1, -1):
        mask = np.arange(count) >= deepest
        if profile.step_time(mask) <= rho * profile.full_ms:
            best = mask
    if best is None:
        raise SystemExit(f"not even the head fits rho {rho:g}; the lowest is {profile.rho_min:.3f}")
    return best[:-1]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--truth", required=True, metavar="CSV", help="written by truth.py")
    parser.add_argument("--profile", required=True, help="of the same network")
    parser.add_argument("--rho", type=float, nargs="+", default=[0.25, 0.5])
    options = parser.parse_args()
    tensors = Profile.load(options.profile)
    profile = layers.merged(tensors, layers.of(tensors.names, tensors.shapes)).with_cache
    ((name, points),) = read([options.truth]).items()
    print(f"{name}: after {', '.join(map(str, points))} epochs of full training")
    metrics = [m for m in next(iter(points.values())) if not m.startswith("gain")]
    for rho in options.rho:
        found = {}
        for columns in points.values():
            # The file begins with the layer nearest the head.
            gains = columns["gain_0"][::-1], columns["gain_1"][::-1]
            masks = {metric: chosen_by(profile, columns[metric][::-1], rho) for metric in metrics}
            masks["freeze-below"] = chosen_from_above(profile, rho)
            for rule, mask in masks.items():
                found.setdefault(rule, []).append(np.mean([gain[mask].sum() for gain in gains]))
            known = [gain[chosen_by(profile, other, rho)].sum() for gain, other in (gains, gains[::-1])]
            found.setdefault("known", []).append(np.mean(known))
        best = sum(found["known"])
        for rule, brought in sorted(found.items(), key=lambda item: -sum(item[1])):
            each = "".join(f"{gain:8.2f}" for gain in brought)
            print(f"  rho {rho:g}  {rule:<14}{100 * sum(brought) / best:5.0f} %   at each:{each}")


if __name__ == "__main__":
    main()
