"""The look of a run in every picture: its scheme gives the colour and the marker."""

import zlib
from typing import Dict, Mapping, NamedTuple, Sequence

from elastictrainer.runs.run_folder import RunFolder

# Okabe and Ito's palette, and a brown: colour-blind readers can tell them apart (a test measures it).
SCHEMES = {
    "elastic": ("#D55E00", "s"),
    "elastic-weight-magnitude": ("#000000", "X"),
    "elastic-grad-magnitude": ("#663311", "P"),
    "freeze-below": ("#009E73", "D"),
    "full": ("#0072B2", "o"),
    "traditional-tl": ("#E69F00", "^"),
    "head-alone": ("#FFBBBB", "d"),
    "bn-bias": ("#CC79A7", "v"),
    "prunetrain": ("#56B4E9", "p"),
}
# Schemes of users: the name alone decides, so that a scheme looks the same in every picture.
OWN_COLOURS = ("#7700DD", "#112288", "#99BB66", "#554455", "#BB55FF")
OWN_MARKERS = ("*", "h", "<", ">", "8")
LINES = ("-", "--", ":", "-.")


class Style(NamedTuple):
    """Colour and marker of Matplotlib, and the line style that tells runs of one scheme apart."""

    colour: str
    marker: str
    line: str = LINES[0]


def of_scheme(scheme: str) -> Style:
    """Return the look of a scheme, the same in every picture."""
    if scheme in SCHEMES:
        return Style(*SCHEMES[scheme])
    number = zlib.crc32(scheme.encode())  # unlike hash(), the same in every process
    marker = OWN_MARKERS[number // len(OWN_COLOURS) % len(OWN_MARKERS)]
    return Style(OWN_COLOURS[number % len(OWN_COLOURS)], marker)


def styles(groups: Mapping[str, Sequence[RunFolder]]) -> Dict[str, Style]:
    """Return the looks of the groups of `replicates` in one picture, whatever their order.

    Groups of one colour differ in their lines; that of the longest is plain.
    """
    configs = {name: members[0].config() for name, members in groups.items()}
    result: Dict[str, Style] = {}
    for name in sorted(groups, key=lambda name: (-(configs[name].get("epochs") or 0), name)):
        style = of_scheme(configs[name]["scheme"])
        before = sum(other.colour == style.colour for other in result.values())
        result[name] = style._replace(line=LINES[before % len(LINES)])
    return {name: result[name] for name in groups}
