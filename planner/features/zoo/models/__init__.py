"""Models of the papers and of today, as training graphs without weights: planning reads shapes only."""

from planner.features.zoo.models.catalogue import FAMILIES, PAPERS, build, family_of, names
from planner.features.zoo.models.perceptron import mlp
from planner.features.zoo.models.step import trained

__all__ = ["FAMILIES", "PAPERS", "build", "family_of", "mlp", "names", "trained"]
