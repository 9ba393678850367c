"""The lemma of local rules: a local op that is, node by node, what its description's local rule makes of that part.

Some ops have a local op that their description cannot be held against: a lookup that is cut along what it looks up
counts the data's indices from its part, and finds nothing for others. What its local rule says is executed against the
whole op for every cut (`tofu ops --verify`); here it is asked for the same part, and must say the same nodes, with the
same attributes and constants, on inputs that hold what the part reads.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from planner.algebra.region import Boxes, Region, index_space
from planner.algebra.tiling import Reducer
from planner.graph.model import Graph, Shape
from planner.prove.claims import Claim, Partial, Symbol
from planner.prove.expression import Num
from planner.prove.pairing import Literal
from planner.prove.whole import Known
from planner.prove.whole import held as holding
from planner.tdl.expr import VarKind
from planner.tdl.local import LocalNode, LocalOp, NotLocalError

MOST_RANGES: Final = 64
"""So many parts are tried, at most."""
Held: TypeAlias = "Mapping[Symbol, Claim] | np.ndarray | Num | Literal"
"""What is known of an array: claims, or its elements."""


def by_rule(
    graph: Graph,
    number: int,
    known: Known,
    values: Mapping[str, Held],
    stated: Sequence[Claim],
) -> tuple[int, dict[str, Claim]] | None:
    """How many nodes from one on are an op's local op, and what they make; None if they are not seen to be.

    Args:
        graph: of the function.
        number: of the first node.
        known: the op.
        values: what is known so far, by name: claims, or a constant's array.
        stated: what the function's outputs are stated to hold.
    """
    described_op = known.described_op
    if described_op.description.local is None:
        return None
    first = graph.ops[number]
    tensors = {name for name in first.inputs if name}
    wanted = {
        slot: symbol
        for slot in described_op.read_slots
        if (symbol := known.reads[slot]) is not None and not isinstance(symbol, Num | Literal)
    }
    read = [claims for name in tensors if isinstance(claims := values.get(name), Mapping)]
    if not any(symbol in claims for symbol in wanted.values() for claims in read):
        return None
    candidates = {
        slot: [
            (name, claims[symbol])
            for name, claims in values.items()
            if isinstance(claims, Mapping) and symbol in claims
        ]
        for slot, symbol in wanted.items()
    }
    chosen = []
    for names in candidates.values():
        sure = [one for one in names if one[1].partial is None and None not in one[1].lo]
        near = [one for one in sure if one[0] in tensors]
        chosen.append(near or sure)
    for inputs in itertools.islice(itertools.product(*chosen), MOST_RANGES):
        held = dict(zip(candidates, inputs, strict=True))
        for ranges in _ranges(known, held, values, stated):
            found = _as_ruled(graph, number, known, held, values, ranges)
            if found is not None:
                return found
    return None


def _as_ruled(
    graph: Graph,
    number: int,
    known: Known,
    held: Mapping[int, tuple[str, Claim]],
    values: Mapping[str, Held],
    ranges: Boxes,
) -> tuple[int, dict[str, Claim]] | None:
    """The same, of one part of the op."""
    described_op, op = known.described_op, known.described_op.op
    reads = described_op.reads(ranges)
    for slot, (_, claim) in held.items():
        region = reads[slot].boxes.region(0)
        if region.shape != index_space(claim.shape) or not claim.holds(region):
            return None
    try:
        part = described_op.part(ranges, reads, 0)
        local = described_op.local_op(part)
    except NotLocalError:
        return None
    inputs = {slot: name for slot, (name, _) in held.items()}
    names = _same_nodes(graph, number, local, known, part.inputs, inputs, values)
    if names is None:
        return None
    numbers = [n for n, variable in enumerate(described_op.variables) if variable.kind is VarKind.REDUCTION]
    cut = {
        described_op.variables[n].reducer
        for n in numbers
        if (ranges.lo[0, n], ranges.hi[0, n]) != (0, described_op.extents[n])
    }
    if len(cut) > 1 or None in cut:
        return None
    partial = _partial(known, ranges, numbers, cut.pop()) if cut else None
    claims = {}
    for position, name in enumerate(op.outputs):
        symbol = known.makes[position]
        if name and symbol is not None and f"out{position}" in names:
            region = described_op.makes(ranges, position).region(0)
            mine = names[f"out{position}"]
            shape = graph.tensors[mine].shape
            if (
                index_space(shape) != region.shape
                or graph.tensors[mine].dtype is not described_op.node.output_dtypes[position]
            ):
                return None
            claims[mine] = Claim(symbol, region.lo if shape else (), shape, partial)
    return len(_without_fills(local)[0]), claims


def _ranges(
    known: Known,
    held: Mapping[int, tuple[str, Claim]],
    values: Mapping[str, Held],
    stated: Sequence[Claim],
) -> Iterator[Boxes]:
    """Parts of the iteration space that inputs and outputs suggest; each is checked by what it reads and says."""
    described_op = known.described_op
    found: dict[int, set[tuple[int, int]]] = {}
    for read, numbers in described_op.plain_dims:
        for dim, variable in enumerate(numbers):
            if read.slot in held and variable is not None and dim < len(held[read.slot][1].lo):
                claim = held[read.slot][1]
                lo = claim.lo[dim]
                assert lo is not None, "claims without a place are refused before"
                found.setdefault(variable, {(lo, lo + claim.shape[dim])})
    for claim in stated:
        place = known.makes.index(claim.tensor) if claim.tensor in known.makes else None
        if place is not None and not described_op.analysis.steps_of(place):
            numbers = described_op.analysis.outputs[place] or ()
            for variable, first, size in zip(numbers, claim.lo, claim.shape, strict=False):  # a scalar's are none
                if first is not None:
                    found.setdefault(variable, {(first, first + size)})
    seen = {
        (lo, lo + size)
        for value in values.values()
        if isinstance(value, Mapping)
        for claim in value.values()
        for lo, size in zip(claim.lo, claim.shape, strict=True)
        if lo is not None
    }
    for variable, extent in enumerate(described_op.extents):
        found.setdefault(variable, {(0, extent), *((lo, hi) for lo, hi in seen if hi <= extent)})
    # Most variables are whole.
    every = itertools.product(
        *(sorted(found[n], key=lambda part: (part != (0, size), part)) for n, size in enumerate(described_op.extents))
    )
    for chosen in itertools.islice(every, MOST_RANGES):
        boxes = Boxes.whole(described_op.extents, 1)
        if len(chosen):
            boxes.lo[0], boxes.hi[0] = zip(*chosen, strict=True)
        yield boxes


def _same_nodes(
    graph: Graph,
    number: int,
    local: LocalOp,
    known: Known,
    regions: Sequence[Region | None],
    inputs: Mapping[int, str],
    values: Mapping[str, Held],
) -> dict[str, str] | None:
    """What the local op's names are in the function, if its nodes stand there."""
    names = {f"in{slot}": name for slot, name in inputs.items()}
    constants = known.described_op.node.constants
    wanted_nodes, known_arrays = _without_fills(local)
    nodes = graph.ops[number : number + len(wanted_nodes)]
    if len(nodes) != len(wanted_nodes):
        return None
    for node, wanted in zip(nodes, wanted_nodes, strict=True):
        is_alike = (node.op_type, node.domain, len(node.inputs), len(node.outputs)) == (
            wanted.op_type,
            wanted.domain,
            len(wanted.inputs),
            len(wanted.outputs),
        )
        if not is_alike or dict(node.attributes) != dict(wanted.attributes):
            return None
        for mine, label in zip(node.inputs, wanted.inputs, strict=True):
            if not label or not mine:
                if label or mine:
                    return None
                continue
            array = known_arrays.get(label)
            if array is None and label.startswith("in") and label not in names and label[2:].isdigit():
                slot = int(label[2:])
                whole, region = constants[slot], regions[slot]
                if whole is None:
                    return None
                array = (
                    whole if region is None or whole.shape == () else whole[region.within(Region.whole(whole.shape))]
                )
            if array is not None:
                there = values.get(mine)
                if not _same(there, array, graph.tensors[mine].shape):
                    return None
            elif names.setdefault(label, mine) != mine:
                return None
        for mine, label in zip(node.outputs, wanted.outputs, strict=True):
            if bool(mine) != bool(label) or names.setdefault(label, mine) != mine:
                return None
    return names


def _without_fills(local: LocalOp) -> tuple[list[LocalNode], dict[str, np.ndarray]]:
    """The nodes of a local op, and its constants: what spreads a constant out is one, where a function is read."""
    nodes, arrays = [], dict(local.constants)
    for node in local.nodes:
        if node.op_type == "Expand" and all(name in arrays for name in node.inputs):
            value, shape = (arrays[name] for name in node.inputs)
            arrays[node.outputs[0]] = np.broadcast_to(value, np.broadcast_shapes(value.shape, tuple(shape.tolist())))
        else:
            nodes.append(node)
    return nodes, arrays


def _same(there: Held | None, wanted: np.ndarray, shape: Shape) -> bool:
    if isinstance(there, np.ndarray):
        return there.dtype == wanted.dtype and there.shape == wanted.shape and there.tobytes() == wanted.tobytes()
    return isinstance(there, Num | Literal) and there == holding(wanted) and shape == wanted.shape


def _partial(known: Known, ranges: Boxes, numbers: Sequence[int], reducer: Reducer | None) -> Partial:
    """Which contributions the part makes, of the op's reduction variables."""
    assert reducer is not None, "a part without a reducer is refused before"
    box = tuple(int(ranges.lo[0, n]) for n in numbers), tuple(int(ranges.hi[0, n]) for n in numbers)
    extents = tuple(known.described_op.extents[n] for n in numbers)
    return Partial(reducer, ((0, (box,)),), ((0, extents),))
