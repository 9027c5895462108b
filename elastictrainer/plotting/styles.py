"""The look of a run in every picture: its scheme gives the colour and the marker, its rho the shade."""

import zlib
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import matplotlib.colors

from elastictrainer.registry import takes_rho
from elastictrainer.runs.run_folder import RunFolder

# Okabe and Ito's palette, and a brown: colour-blind readers can tell them apart (a test measures it).
SCHEMES: Dict[str, Tuple[str, str]] = {
    "elastic": ("#D55E00", "s"),
    "elastic-weight-magnitude": ("#000000", "X"),
    "elastic-grad-magnitude": ("#663311", "P"),
    "freeze-below": ("#009E73", "D"),
    "full": ("#0072B2", "o"),
    "traditional-tl": ("#E69F00", "^"),
    "bn-bias": ("#CC79A7", "v"),
    "prunetrain": ("#56B4E9", "p"),
}
# Schemes of users: the name alone decides, so that a scheme looks the same in every picture.
OWN_COLOURS = ("#7700DD", "#112288", "#99BB66", "#554455", "#BB55FF")
OWN_MARKERS = ("*", "h", "<", ">", "d")
LINES = ("-", "--", ":", "-.")
HATCHES = ("", "//", "..", "xx")
_USUAL_RHO = 0.5  # has the scheme's own colour


class Style(NamedTuple):
    """Colour and marker of Matplotlib, and what tells namesakes apart: a line style, or a bar's hatch."""

    colour: str
    marker: str
    line: str = LINES[0]
    hatch: str = HATCHES[0]


def of_scheme(scheme: str, rho: Optional[float] = None) -> Style:
    """Return the look of a scheme, the same in every picture; a lower rho is lighter, a higher one darker."""
    colour, marker = SCHEMES.get(scheme) or _own(scheme)
    return Style(colour if rho is None else _shaded(colour, rho), marker)


def styles(groups: Mapping[str, Sequence[RunFolder]]) -> Dict[str, Style]:
    """Return the looks of the groups of `replicates` in one picture, whatever their order.

    Groups of one scheme differ in their lines, those of one shade in their hatches too; the longest is plain.
    """
    configs = {name: members[0].config() for name, members in groups.items()}
    result: Dict[str, Style] = {}
    same_colour: Dict[str, List[str]] = {}
    for name in sorted(groups, key=lambda name: (-(configs[name].get("epochs") or 0), name)):
        scheme, rho = configs[name]["scheme"], configs[name].get("rho")
        style = of_scheme(scheme, rho if takes_rho(scheme) else None)
        of_colour = same_colour.setdefault(of_scheme(scheme).colour, [])
        of_shade = [other for other in of_colour if result[other].colour == style.colour]
        result[name] = style._replace(
            line=LINES[len(of_colour) % len(LINES)], hatch=HATCHES[len(of_shade) % len(HATCHES)]
        )
        of_colour.append(name)
    return {name: result[name] for name in groups}


def _own(scheme: str) -> Tuple[str, str]:
    number = zlib.crc32(scheme.encode())  # unlike hash(), the same in every process
    marker = OWN_MARKERS[number // len(OWN_COLOURS) % len(OWN_MARKERS)]
    return OWN_COLOURS[number % len(OWN_COLOURS)], marker


def _shaded(colour: str, rho: float) -> str:
    towards = matplotlib.colors.to_rgb("white" if rho < _USUAL_RHO else "black")
    share = min(0.6, abs(rho - _USUAL_RHO) / _USUAL_RHO)
    red, green, blue = (
        (1 - share) * a + share * b for a, b in zip(matplotlib.colors.to_rgb(colour), towards)
    )
    return matplotlib.colors.to_hex((red, green, blue))
