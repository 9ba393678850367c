"""Models of the papers and of today, as training graphs without weights: planning reads shapes only.

Called, the package is :func:`planner.api.zoo`.
"""

from planner.callable_package import make_callable
from planner.zoo.catalogue import FAMILIES, PAPERS, build, family_of, names
from planner.zoo.perceptron import mlp
from planner.zoo.step import trained

__all__ = ["FAMILIES", "PAPERS", "build", "family_of", "mlp", "names", "trained"]

make_callable(__name__)
