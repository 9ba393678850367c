"""Parameters that a file holds once per sample.

An exporter that optimizes computes the Expand of a class token, or the lookup of token types that are all 0, and
writes the result: the same row once for each sample of the batch it was exported with. Trained as it stands, every
sample would have a row of its own, which is another model. So such a constant becomes its first row, read through an
Expand, or as it is by an op that broadcasts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from planner.errors import UnsupportedError
from planner.graph.core.check import check_graph
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.graph.core.traits import BROADCASTING
from planner.graph.core.wellformed import fresh_name
from planner.tdl.flow import Track
from planner.training.batch.change import samples_of_inputs
from planner.training.batch.rules import SampleFlow
from planner.training.parameters.exporter import UNSAID, Exporter
from planner.training.parameters.infer import Decision, Parameters, Verdict, infer_parameters
from planner.training.parameters.merged import unmerged
from planner.training.parameters.readers import Readers, Use
from planner.training.parameters.value_forms import is_one_value

_MATRICES: Final = frozenset({Use.PRODUCT, Use.KERNEL, Use.TABLE})
"""Uses that read a constant as one matrix, whatever its sizes are."""
_EQUAL: Final = "they are equal, but the samples cannot be followed to where it is read"


def decided(
    forward: Graph, target: str, *, train: Sequence[str] = (), freeze: Sequence[str] = (), exporter: Exporter = UNSAID
) -> tuple[Graph, Parameters]:
    """What is trained of a forward model, and the model in which each of these parameters stands once, and alone.

    Args:
        forward: the model, as the file has it.
        target: the output that the loss looks at.
        train: see ``parameters.infer_parameters``.
        freeze: see there.
        exporter: see there.

    Returns:
        The model; where parameters are held once per sample, or in one constant with running statistics (see
        ``merged``), another that computes the same. What is decided has that model's names and shapes.

    Raises:
        UsageError, UnsupportedError: see ``parameters.infer_parameters``.
    """
    forward, copies = unmerged(forward)
    parameters = infer_parameters(forward, target, train=train, freeze=freeze, exporter=exporter)
    samples = _Samples(forward)
    shared: dict[str, int] = {}
    decisions: list[Decision] = []
    for decision in parameters.decisions:
        if decision.name in copies:
            why = f"{decision.why}; the file has it in one constant with a running statistic, held apart here"
            decision = replace(decision, why=why, evidence=(*decision.evidence, "merged"))
        place = samples.place_in(decision.name) if decision.verdict is Verdict.TRAINED else None
        if place is None:
            decisions.append(decision)
            continue
        apart = _why_apart(forward.constants[decision.name], place)
        if not apart:
            shared[decision.name] = place.dim
            shape = (*decision.shape[: place.dim], 1, *decision.shape[place.dim + 1 :])
            why = f"{decision.why}; held once per sample, trained as one"
            decisions.append(replace(decision, shape=shape, why=why, evidence=(*decision.evidence, "samples")))
        elif place.is_sure or apart == _EQUAL:
            why = f"{decision.why}; one for each of {samples.count} samples, trained apart: {apart}"
            decisions.append(replace(decision, why=why))
        else:
            decisions.append(decision)
    return (_held_once(forward, shared) if shared else forward), Parameters(tuple(decisions))


@dataclass(frozen=True, slots=True)
class _Place:
    """The dim along which a constant has a value for each sample."""

    dim: int
    is_sure: bool
    """False where the dim has the size, but the samples of the data that it meets cannot be followed."""


class _Samples:
    """The place of the samples in a forward graph, and in constants that have a value for each."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.count, self._input_tracks = samples_of_inputs(graph)

    @cached_property
    def _readers(self) -> Readers:
        return Readers(self._graph)

    @cached_property
    def _flow(self) -> SampleFlow:
        return SampleFlow(self._graph, self.count)

    @cached_property
    def _followed(self) -> tuple[Mapping[str, Track], frozenset[str]]:
        """Where data have the samples; and the tensors of which this is not known."""
        return self._flow.follow(self._input_tracks)

    def place_in(self, constant: str) -> _Place | None:
        """Where a constant has a value for each sample; None if nowhere, or there is one sample."""
        shape = self._graph.tensors[constant].shape
        if self.count < 2 or self.count not in shape or constant in self._graph.outputs:
            return None
        if not _MATRICES.isdisjoint(reader.use for reader in self._readers.of(constant)):
            return None
        places = [place for dim, size in enumerate(shape) if size == self.count and (place := self._at(constant, dim))]
        return min(places, key=lambda place: not place.is_sure, default=None)

    def _at(self, constant: str, dim: int) -> _Place | None:
        """The place, if all ops at which a constant meets data have its values along a dim where the samples are."""
        tracks, lost = self._followed
        by_sample = {constant: Track(dim)}
        is_met, is_sure = False, True
        for op in self._graph.ops:
            if not any(name in by_sample for name in op.inputs):
                continue
            if any(name in lost for name in op.inputs):
                is_met, is_sure = True, False
                continue
            try:
                way = self._flow.through(op, {**tracks, **by_sample})
            except UnsupportedError:
                return None
            if any(name in tracks for name in op.inputs):
                is_met = True
            else:
                by_sample.update(way.after(op))
        return _Place(dim, is_sure) if is_met and not any(name in by_sample for name in self._graph.outputs) else None


def _why_apart(value: np.ndarray | None, place: _Place) -> str:
    """Why a constant that has a value for each sample is not one parameter; "" where it is."""
    if value is None:
        return "external data, not known to be equal"
    if not _is_repeated(value, place.dim):
        return "they differ"
    if is_one_value(value):
        # A table of positions that is 0 at first looks the same, in a model without a batch.
        return "one value throughout, so not known to be copies"
    return "" if place.is_sure else _EQUAL


def _is_repeated(value: np.ndarray, dim: int) -> bool:
    """Whether all slices along a dim are equal, bit for bit."""
    first = _first(value, dim).tobytes()
    return all(value.take([index], axis=dim).tobytes() == first for index in range(1, value.shape[dim]))


def _first(value: np.ndarray, dim: int) -> np.ndarray:
    return value.take([0], axis=dim)


def _held_once(forward: Graph, shared: Mapping[str, int]) -> Graph:
    """The same model with the first slices of constants, expanded for the ops that do not broadcast."""
    tensors, constants = dict(forward.tensors), dict(forward.constants)
    for name, dim in shared.items():
        value = constants[name]
        assert value is not None, "its slices were compared"
        first = _first(value, dim)
        constants[name] = first
        tensors[name] = replace(tensors[name], shape=first.shape)
    names, labels = set(tensors), {op.name for op in forward.ops}
    expanded: dict[str, str] = {}
    folded = set(forward.folded)

    def rewritten() -> Iterator[Op]:
        for op in forward.ops:
            operands = [name for name in dict.fromkeys(op.inputs) if name in shared]
            if not operands or _broadcasts(op, tensors):
                yield op
                continue
            # The Expand stands before the first op that cannot broadcast; later ops read the same one.
            for name in operands:
                if name in expanded:
                    continue
                output, size = fresh_name(f"{name}.samples", names), fresh_name(f"{name}.samples.shape", names)
                names.update((output, size))
                shape = forward.tensors[name].shape
                tensors[output] = Tensor(output, shape, forward.tensors[name].dtype)
                tensors[size] = Tensor(size, (len(shape),), DType.INT64)
                constants[size] = np.array(shape, np.int64)
                folded.add(size)
                expanded[name] = output
                label = fresh_name(f"{name}.samples", labels)
                labels.add(label)
                yield Op(label, "Expand", (name, size), (output,))
            yield replace(op, inputs=tuple(expanded.get(name, name) for name in op.inputs))

    ops = tuple(rewritten())
    held = replace(forward, tensors=tensors, constants=constants, ops=ops, folded=frozenset(folded))
    check_graph(held)
    return held


def _broadcasts(op: Op, tensors: Mapping[str, Tensor]) -> bool:
    """Whether an op makes what it made before, now that some of its operands have one sample."""
    if op.domain or op.op_type not in BROADCASTING:
        return False
    shapes = [tensors[name].shape for name in op.inputs]
    return np.broadcast_shapes(*shapes) == tensors[op.outputs[0]].shape
