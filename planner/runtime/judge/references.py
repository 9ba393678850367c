"""What a split run is held against: the whole model and its float64 twin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from planner.graph.model import Graph
from planner.runtime.judge.compare import Noise, StepComparison, coarsest_eps, compare_step, errors
from planner.runtime.judge.reference import RANDOM, ForeignReference, NoReferenceError, Reference
from planner.runtime.judge.rounding import RUNS, Rounding, nudged
from planner.runtime.judge.whole import WholeModel


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
        self._state = graph.state
        self._is_random = any(op.op_type in RANDOM for op in graph.ops)
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
        before = {pair.following: values[pair.current] for pair in self._state}
        found = compare_step(step, split, right, exact, self.eps, before=before)
        floats = [tensor.tensor for tensor in found.tensors if not tensor.is_same and tensor.tensor in self.eps]
        if not floats:
            return found, right
        noise = dict.fromkeys(floats, Noise(0.0, 0.0))
        for sample in self._samples(values, has_reference=exact is not None):
            for name, known in noise.items():
                more, more_median = errors(sample[name], right[name] if exact is None else exact[name])
                if np.isfinite(more):  # a sample that overflows says nothing of how far a right run may be off
                    noise[name] = Noise(max(known.largest, more), max(known.median, more_median))
            found = compare_step(step, split, right, exact, self.eps, noise, before)
            if found.is_same:
                break
        return found, right

    def _samples(self, values: Mapping[str, np.ndarray], *, has_reference: bool) -> Iterator[Mapping[str, np.ndarray]]:
        """Results of right runs, each rounded otherwise: at first those that cost least.

        A model that draws random numbers gives none of the first kind: it would draw others.
        """
        for seed in range(0 if self._is_random else RUNS):
            yield self.whole.step(nudged(values, seed))
        for seed in range(2 * RUNS if has_reference else 0):
            assert self._reference is not None, "there is a reference"
            yield self._reference.step(values, Rounding(seed, has_partial_sums=seed >= RUNS))
