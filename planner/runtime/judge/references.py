"""References that a split run is compared with: the whole model and its float64 twin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from planner.graph.core.attributes import integer
from planner.graph.core.model import Graph
from planner.graph.core.traits import RANDOM
from planner.runtime.judge.compare import FarTensor, Noise, StepComparison, compare_step, errors
from planner.runtime.judge.far import far_tensors, limits
from planner.runtime.judge.precision import coarsest_eps, fed_strange
from planner.runtime.judge.reference import ForeignReference, NoReferenceError, Reference
from planner.runtime.judge.rounding import RUNS, Rounding, nudged
from planner.runtime.judge.whole import WholeModel

_FAR_RUNS: Final = 4
"""Samples of the reference that are looked at before the whole model is called far."""


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
        self.graph = graph
        self._suspicious_from = limits(graph, self.eps)
        self._known_far: set[str] = set()
        self._has_checked_ops = False
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
        """The verdict on a step, and its right results: those from which the next step starts.

        They are what the whole model makes; but where that is far from float64 (see ``far``), the reference's, rounded.

        Args:
            step: its number.
            split: all outputs, as the workers made them.
            values: of every input, as they were before the step.

        Raises:
            ModelError: of an op, the runtime and the reference make different things.
        """
        right, exact = _in_one_order(self.graph, self.whole.step(values)), self.exact(values)
        exact, split = exact and _in_one_order(self.graph, exact), _in_one_order(self.graph, split)
        before = {pair.following: values[pair.current] for pair in self.graph.state}
        if self._reference is not None and exact is not None and not self._has_checked_ops:
            strays = (errors(right[name], exact[name])[0] > limit for name, limit in self._suspicious_from.items())
            self._has_checked_ops = any(strays)
            if self._has_checked_ops:
                self._reference.step(values, checks_ops=True)
        far = () if exact is None else self._far(values, right, exact, before)
        if far:
            assert exact is not None, "it was compared with"
            off = {tensor.tensor for tensor in far}
            handed_on = {name: exact[name].astype(array.dtype) for name, array in right.items()}
            right = {name: handed_on[name] if name in off else array for name, array in right.items()}
        else:
            handed_on = right
        strange = fed_strange(self.graph, values)

        def judged(noise: Mapping[str, Noise] | None) -> StepComparison:
            return replace(compare_step(step, split, right, exact, self.eps, noise, before, strange), far=far)

        comparison = judged(None)
        floats = [tensor.tensor for tensor in comparison.tensors if not tensor.is_same and tensor.tensor in self.eps]
        if not floats:
            return comparison, handed_on
        noise = dict.fromkeys(floats, Noise(0.0, 0.0))
        # What a whole model does that is far says nothing of rounding.
        samples = (
            self._exact_samples(values, 2 * RUNS) if far else self._samples(values, has_reference=exact is not None)
        )
        for sample in samples:
            for name, level in noise.items():
                error, median = errors(sample[name], right[name] if exact is None else exact[name])
                if np.isfinite(error):  # a sample that overflows says nothing of how far a right run may be off
                    noise[name] = Noise(max(level.largest, error), max(level.median, median))
            comparison = judged(noise)
            if comparison.is_same:
                break
        return comparison, handed_on

    def _far(
        self,
        values: Mapping[str, np.ndarray],
        original: Mapping[str, np.ndarray],
        exact: Mapping[str, np.ndarray],
        before: Mapping[str, np.ndarray],
    ) -> tuple[FarTensor, ...]:
        def samples() -> Iterator[tuple[Mapping[str, np.ndarray], bool]]:
            for sample in self._nudged(values):
                yield sample, False
            for sample in self._exact_samples(values, _FAR_RUNS):
                yield sample, True

        tensors = far_tensors(original, exact, self._suspicious_from, before, samples, self._known_far)
        self._known_far.update(tensor.tensor for tensor in tensors)
        return tensors

    def _samples(self, values: Mapping[str, np.ndarray], *, has_reference: bool) -> Iterator[Mapping[str, np.ndarray]]:
        """Results of right runs, each rounded otherwise: at first those that cost least."""
        yield from self._nudged(values)
        if has_reference:
            yield from self._exact_samples(values, 2 * RUNS)

    def _nudged(self, values: Mapping[str, np.ndarray]) -> Iterator[Mapping[str, np.ndarray]]:
        """Of the whole model; none of one that draws random numbers: it would draw others."""
        for seed in range(0 if self._is_random else RUNS):
            yield _in_one_order(self.graph, self.whole.step(nudged(values, seed)))

    def _exact_samples(self, values: Mapping[str, np.ndarray], count: int) -> Iterator[Mapping[str, np.ndarray]]:
        """Of the reference: results rounded at first, then partial sums, too, as many of each."""
        assert self._reference is not None, "there is a reference"
        for seed in range(count):
            sample = self._reference.step(values, Rounding(seed, has_partial_sums=2 * seed >= count))
            yield _in_one_order(self.graph, sample)


def _in_one_order(graph: Graph, results: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Results, with those of a TopK that leaves their order open by their places, or else by size."""
    arrays = dict(results)
    for op in graph.ops_of("TopK"):
        if not op.attribute("sorted", 1):
            outputs, axis = [name for name in reversed(op.outputs) if name in arrays], integer(op, "axis", -1)
            order = [np.argsort(arrays[name], axis=axis) for name in outputs[:1]]
            arrays |= {name: np.take_along_axis(arrays[name], order[0], axis) for name in outputs}
    return arrays
