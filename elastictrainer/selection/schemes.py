"""Training schemes: which tensors train now, and what a scheme adds to the loss."""

from dataclasses import dataclass
from importlib import metadata
from typing import Any, Callable, Dict, Optional, Union

import numpy as np

from elastictrainer.errors import UsageError, unknown
from elastictrainer.registry import import_object
from elastictrainer.selection.selector import Solver, freeze_below


class Scheme:
    """A scheme that trains the same tensors from first to last.

    Attributes:
        importance_metric: name of the metric of each interval; None: the scheme does not select.
    """

    importance_metric: Optional[str] = None

    def mask(self, model: Any) -> np.ndarray:
        """Return (N,) bool: which of the N `model.trainable_weights`, in their order, train."""
        return np.ones(len(model.trainable_weights), bool)

    def penalty(self, model: Any) -> Optional[Callable[[], Any]]:
        """Return the term that the scheme adds to the training loss, from no arguments to a scalar tensor;
        None: none.
        """
        return None

    def at_interval(self, model: Any, optimizer: Any) -> Dict[str, float]:
        """Act at the start of an interval, for a scheme that does not select; returns figures for the log."""
        return {}


@dataclass
class Elastic(Scheme):
    """At every interval, the tensors of the largest importance within the budget (paper Sec. 3).

    Attributes:
        importance_metric: "update" (the paper's, Eq. 6), "grad-magnitude" or "weight-magnitude".
        solver: a name or a function, as for `select`; None: a knapsack.
    """

    importance_metric: str = "update"
    solver: Union[str, Solver, None] = None


# A factory, or where it is: a module that needs TensorFlow is imported when its scheme is created.
SCHEMES: Dict[str, Union[str, Callable[[], Scheme]]] = {
    "elastic": Elastic,
    "elastic-weight-magnitude": lambda: Elastic("weight-magnitude"),
    "elastic-grad-magnitude": lambda: Elastic("grad-magnitude"),
    # The rival that needs no importance: all tensors above a layer, which is as early as the time allows. The
    # metric is the one that costs nothing.
    "freeze-below": lambda: Elastic("weight-magnitude", freeze_below),
    "full": "elastictrainer.selection.baselines:Full",
    "traditional-tl": "elastictrainer.selection.baselines:TraditionalTransferLearning",
    "bn-bias": "elastictrainer.selection.baselines:BnBias",
    "prunetrain": "elastictrainer.selection.baselines:PruneTrain",
}


def register(name: str) -> Callable[[Callable[[], Scheme]], Callable[[], Scheme]]:
    """Register a user's scheme: `--scheme name` finds it once its module is imported.

    An installed package can name its schemes in the entry point group "elastictrainer.schemes" instead; then
    nothing needs importing.
    """

    def keep(factory: Callable[[], Scheme]) -> Callable[[], Scheme]:
        SCHEMES[name] = factory
        return factory

    return keep


def check_name(name: str) -> None:
    """Raise UsageError, with the valid names, if no scheme is called `name`. A `module:Class` is not
    imported.
    """
    if name not in SCHEMES and ":" not in name and name not in _installed():
        raise unknown("scheme", name, [*SCHEMES, *_installed()])


def create(name: str) -> Scheme:
    """Create the scheme called `name`: a registered one, one of an installed package, or
    `package.module:Class`.

    Raises:
        UsageError: there is none; with the valid names.
    """
    check_name(name)
    if name not in SCHEMES and ":" not in name:
        return _installed()[name].load()()
    factory = SCHEMES.get(name, name)
    if not isinstance(factory, str):
        return factory()
    made = import_object("--scheme", factory)()
    if not isinstance(made, Scheme):
        raise UsageError(f"--scheme {name} gave a {type(made).__name__}, not an elastictrainer.Scheme.")
    return made


def _installed() -> Dict[str, Any]:
    """Return the entry points of schemes that installed packages have, by name."""
    points, group = metadata.entry_points(), "elastictrainer.schemes"
    old = not hasattr(points, "select")  # Python 3.9
    return {point.name: point for point in (points.get(group, ()) if old else points.select(group=group))}
