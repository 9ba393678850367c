"""What a split run is held against: the whole model and its float64 twin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from planner.graph.model import Graph
from planner.runtime.compare import StepComparison, coarsest_eps, compare_step, errors
from planner.runtime.reference import ForeignReference, NoReferenceError, Reference
from planner.runtime.rounding import RUNS, Rounding
from planner.runtime.whole import WholeModel


class Judge:
    """The whole model in the stock runtime, and in float64 where that can be computed.

    Args:
        graph: with all its constants.
        references: by (domain, op type), operators of other domains in NumPy.
        libraries: of custom operators.

    Raises:
        ModelError: the whole model cannot be run.
    """

    def __init__(
        self,
        graph: Graph,
        references: Mapping[tuple[str, str], ForeignReference] | None = None,
        libraries: Sequence[Path] = (),
    ) -> None:
        self.whole = WholeModel(graph, libraries)
        self.eps = coarsest_eps(graph)
        """By floating-point output, of the coarsest precision on the way to it."""
        self.no_reference = ""
        """Why there is no float64 reference; "" if there is one."""
        self._reference: Reference | None = None
        try:
            self._reference = Reference(graph, references=references, libraries=libraries)
        except NoReferenceError as reason:
            self.no_reference = str(reason)

    @property
    def own_precision(self) -> tuple[str, ...]:
        """Operators that the reference has in the model's own precision; () without a reference."""
        return () if self._reference is None else self._reference.own_precision

    def exact(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
        """The float64 outputs; None where there are none, and then ``no_reference`` says why."""
        if self._reference is None:
            return None
        try:
            return self._reference.step(values)
        except NoReferenceError as reason:
            self.no_reference, self._reference = str(reason), None
            return None

    def compare(
        self, step: int, split: Mapping[str, np.ndarray], values: Mapping[str, np.ndarray]
    ) -> tuple[StepComparison, dict[str, np.ndarray]]:
        """The verdict on a step, and what the whole model makes of it.

        Args:
            step: its number.
            split: all outputs, as the workers made them.
            values: of every input, as they were before the step.
        """
        right, exact = self.whole.step(values), self.exact(values)
        found = compare_step(step, split, right, exact, self.eps)
        if found.is_same or exact is None:
            return found, right
        floats = [tensor.tensor for tensor in found.tensors if not tensor.is_same and tensor.tensor in self.eps]
        noise = dict.fromkeys(floats, (0.0, 0.0))
        for run in range(2 * RUNS if floats else 0):
            self._listen(noise, values, exact, Rounding(run, has_partial_sums=run >= RUNS))
            found = compare_step(step, split, right, exact, self.eps, noise)
            if found.is_same:
                break
        return found, right

    def _listen(
        self,
        noise: dict[str, tuple[float, float]],
        values: Mapping[str, np.ndarray],
        exact: Mapping[str, np.ndarray],
        rounding: Rounding,
    ) -> None:
        """Takes one more sample of rounding, of which the largest error of each output counts."""
        assert self._reference is not None, "there is a reference"
        rough = self._reference.step(values, rounding)
        for name, (largest, median) in noise.items():
            more, more_median = errors(rough[name], exact[name])
            noise[name] = (max(largest, more), max(median, more_median))
