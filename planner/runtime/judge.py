"""What a split run is held against: the whole model and its float64 twin."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from planner.graph.model import Graph
from planner.runtime.compare import coarsest_eps
from planner.runtime.reference import NoReferenceError, Reference
from planner.runtime.whole import WholeModel


class Judge:
    """The whole model in the stock runtime, and in float64 where that can be computed.

    Args:
        graph: with all its constants.

    Raises:
        ModelError: the whole model cannot be run.
    """

    def __init__(self, graph: Graph) -> None:
        self.whole = WholeModel(graph)
        self.eps = coarsest_eps(graph)
        """By floating-point output, of the coarsest precision on the way to it."""
        self.no_reference = ""
        """Why there is no float64 reference; "" if there is one."""
        self._reference: Reference | None = None
        try:
            self._reference = Reference(graph)
        except NoReferenceError as reason:
            self.no_reference = str(reason)

    def exact(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """The float64 outputs; None where there are none, and then ``no_reference`` says why."""
        if self._reference is None:
            return None
        try:
            return self._reference.step(values)
        except NoReferenceError as reason:
            self.no_reference, self._reference = str(reason), None
            return None
