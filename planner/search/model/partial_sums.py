"""Tensors that may stay partial, and the ops that take them so: sums of partial results, joined once.

A product whose terms are divided gives each worker a contribution to all of it (Tofu, section 4.2, case 2). Where
such products are added, contributions can be added first and joined afterwards: the gradients of one activation from
several readers, of a weight that is used in several places or at several steps, or (Megatron-LM's operator f) from
the products with the weights of query, key and value. So a tensor may have ``P`` at a cut if

- the op that makes it can make contributions: it reduces with ``Sum``, or is itself one of the following,
- and all ops that read it are linear (``planner.tdl.linear``) in inputs that may all have ``P``.

Such an op may have ``P`` as well: its workers add the contributions that they have. Results of the graph, its inputs
and states never have it. Nor have tensors from which no sum can be reached that leaves less to join than it is given:
nothing would be saved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from planner.algebra.delivery import made_tiling
from planner.algebra.partial import partial_cuts, settled
from planner.algebra.tiling import Partial, Reducer, Tiling
from planner.cost.tables import CostTables
from planner.graph.core.model import Graph, Role, is_used
from planner.search.exact.network import Link
from planner.search.repeats.unrolled import Copies
from planner.tdl.bind import BoundOp
from planner.tdl.linear import Linearity

PARTIAL = Partial(Reducer.SUM)
"""The placement of contributions that are joined later."""


@dataclass(frozen=True, slots=True)
class PartialSums:
    """The variables that may have ``P``, by name."""

    tensors: frozenset[str] = frozenset()
    ops: frozenset[str] = frozenset()


def find_partial_sums(graph: Graph, ops: Sequence[BoundOp]) -> PartialSums:
    """The tensors and ops that may have ``P``.

    Args:
        graph: the training graph.
        ops: its ops with their descriptions, in the same order.
    """
    candidates = _Candidates(graph, ops)
    candidates.settle()
    while candidates.without_gain():
        candidates.settle()
    return PartialSums(frozenset(candidates.tensors), frozenset(candidates.ops))


def obstacle(graph: Graph, ops: Iterable[BoundOp], name: str) -> str:
    """The reason why a tensor cannot have ``P``, as far as the tensor, its maker and its readers tell.

    Args:
        graph: the training graph.
        ops: its ops with their descriptions.
        name: of a tensor that is not in ``PartialSums.tensors``.
    """
    role = graph.roles[name]
    if role is not Role.ACTIVATION:
        return f"it is {role.value}" + ("" if role is Role.DATA else " of the graph")
    if not graph.tensors[name].dtype.is_float:
        return f"it is of {graph.tensors[name].dtype.value}"
    for op in ops:
        label = f"{op.op.name} ({op.op.op_type})"
        if name in op.op.outputs and not _contributes(op) and not _is_linear(graph, op):
            return f"{label}, which makes it, has no partial sums"
        if name in op.op.inputs and not _is_linear(graph, op):
            return f"{label}, which reads it, is no sum of what it reads"
    return "what is added to it cannot be partial as well, or no sum has less to join for it"


def parted(copies: Copies, sums: PartialSums) -> Copies:
    """Copies of which some may have ``P`` and others may not are two kinds.

    The gradient of a weight at a step, and the sums of some of these, may be partial; the sum of all is not, but for
    that it is their copy (``planner.search.repeats.unrolled``).
    """
    if not sums.tensors:
        return copies
    return Copies(_parted(copies.tensors, sums.tensors), _parted(copies.ops, sums.ops))


def _parted(first_of: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    first: dict[tuple[str, bool], str] = {}
    return {name: first.setdefault((original, name in names), name) for name, original in first_of.items()}


def impossible_entry(
    graph: Graph, workers: int, links: Sequence[Link], charged: int, with_partial: int, tables: CostTables
) -> int:
    """The number that stands for an impossible entry in the tables of a search: more than a possible plan takes.

    To read a tensor brings each worker all of it at most. So does owning it, after partial results, one of each worker
    at most, have been joined. An op's charge is at most what it is where every worker executes the whole op.

    Args:
        graph: the training graph.
        workers: how many.
        links: all tables of what moves.
        charged: what all ops are charged at most.
        with_partial: how many of them have impossible entries; all of these together still fit in 64 bits.
        tables: that are summed.
    """
    counts = Counter(link.kind for link in links)
    example = {link.kind: link.name for link in links}  # tensors of one kind of link are of one size
    most_bytes = 2 * workers * sum(graph.tensors[example[kind]].size_bytes * times for kind, times in counts.items())
    return min(tables.impossible(most_bytes + charged), (1 << 62) // (1 + with_partial))


def is_possible(op: BoundOp, link: Link, tiling: Tiling, strategy: Tiling) -> bool:
    """Whether an op that is divided so can read or make a tensor that is owned so (``planner.algebra.partial``).

    Args:
        op: the op.
        link: between the two.
        tiling: of the tensor.
        strategy: of the op.
    """
    if link.is_input:
        return partial_cuts(tiling) == partial_cuts(strategy)
    dims = op.analysis.outputs[link.position]
    assert dims is not None, "an absent output has no link"
    source = made_tiling(strategy, dims, op.reducers(strategy), op.analysis.steps_of(link.position))
    return settled(source, tiling) is not None


class _Candidates:
    """The variables that may still turn out to have ``P``."""

    def __init__(self, graph: Graph, ops: Sequence[BoundOp]) -> None:
        """Linear ops, and tensors that are neither input, state nor result and are read by these alone."""
        self._graph = graph
        linear: set[str] = set()
        needed = set(graph.outputs)  # sums that somebody needs
        for op in ops:
            if _is_linear(graph, op):
                linear.add(op.op.name)
            else:
                needed.update(op.op.inputs)
        roles = graph.roles
        self.tensors = {
            name
            for name in graph.used - needed
            if name and roles[name] is Role.ACTIVATION and graph.tensors[name].dtype.is_float
        }
        self._touching = [op for op in ops if self._touches(op)]
        self.ops = {op.op.name for op in self._touching} & linear
        self._contributing = {op.op.name for op in self._touching if _contributes(op)}

    def settle(self) -> None:
        """Takes out what depends on something that is no candidate, until nothing does."""
        before = -1
        while before != (before := len(self.tensors) + len(self.ops)):
            for op in self._touching:
                self._settle(op)
            self._touching = [op for op in self._touching if op.op.name in self.ops or self._touches(op)]

    def _touches(self, op: BoundOp) -> bool:
        return not (self.tensors.isdisjoint(op.op.inputs) and self.tensors.isdisjoint(op.op.outputs))

    def _settle(self, op: BoundOp) -> None:
        """Takes an op out if an input is, and its inputs and outputs if it is."""
        read = [op.op.inputs[slot] for slot in op.read_slots]
        if not self.tensors.issuperset(read):
            self.ops.discard(op.op.name)
        if op.op.name not in self.ops:
            self.tensors.difference_update(read)
            if op.op.name not in self._contributing:
                self.tensors.difference_update(op.op.outputs)

    def without_gain(self) -> bool:
        """Takes out tensors that lead to no sum with a smaller result; True if there were any."""
        gaining: set[str] = set()
        for op in reversed(self._touching):
            if op.op.name in self.ops and self._gains(op, gaining):
                gaining.update(op.op.inputs[slot] for slot in op.read_slots)
        count = len(self.tensors)
        self.tensors &= gaining
        return len(self.tensors) < count

    def _gains(self, op: BoundOp, gaining: set[str]) -> bool:
        outputs = [name for name in op.op.outputs if name and is_used(self._graph, name)]
        if op.analysis.linearity is Linearity.ADDS:
            read = {op.op.inputs[slot] for slot in op.read_slots}
            if self._elements(read) > self._elements(outputs):
                return True
        return not gaining.isdisjoint(outputs)

    def _elements(self, names: Iterable[str]) -> int:
        return sum(self._graph.tensors[name].elements for name in names)


def _is_linear(graph: Graph, op: BoundOp) -> bool:
    """Whether an op is linear in all that it reads; what is the same for all workers would be added by each.

    Descriptions of operators that ONNX does not define say what is read, and need not say what is done with it.
    """
    return (
        op.analysis.linearity is not Linearity.NONE
        and not op.op.domain
        and bool(op.read_slots)
        and not any(op.op.inputs[slot] in graph.constants for slot in op.read_slots)
    )


def _contributes(op: BoundOp) -> bool:
    """Whether an op that is cut can make contributions."""
    return op.analysis.has_sums
