"""Schemes with the same time in every interval, for `--scheme evenly:NAME` with this folder on PYTHONPATH.

Below rho 0.5 a run gives its early intervals more (`elastictrainer.selection.shares`). `Elastic` and
`FreezeBelow` are the schemes `elastic` and `freeze-below` without that.
"""

from elastictrainer.selection import shares
from elastictrainer.selection.schemes import SCHEMES


def Elastic():
    """`elastic`, evenly."""
    return _evenly("elastic")


def FreezeBelow():
    """`freeze-below`, evenly."""
    return _evenly("freeze-below")


def _evenly(name):
    shares.FRONT = 0.0  # of this process, which trains one run
    return SCHEMES[name]()
