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

from planner.algebra.region import Boxes, index_space
from planner.algebra.tiling import Reducer
from planner.features.prove.proof.claims import Claim, Partial, Symbol
from planner.features.prove.proof.expression import Num, UnprovenError
from planner.features.prove.proof.pairing import Literal
from planner.features.prove.proof.reading import Function, read_rule
from planner.features.prove.proof.whole import ModelOp, Whole
from planner.features.prove.proof.whole import held as holding
from planner.graph.core.model import Op
from planner.tdl.expr import VarKind
from planner.tdl.local import NotLocalError

MOST_RANGES: Final = 64
"""So many parts are tried, at most."""
Held: TypeAlias = "Mapping[Symbol, Claim]"
"""What is known of an array."""


def by_rule(
    function: Function,
    number: int,
    model_op: ModelOp,
    values: Mapping[str, Held],
    stated: Sequence[Claim],
    reference: Whole,
) -> tuple[int, dict[str, Claim]] | None:
    """The number of nodes from one on that are an op's local op, and their results; None if they are not seen to be.

    Args:
        function: of the worker.
        number: of the first node.
        model_op: the op.
        values: what is known so far of arrays that data may change, by name.
        stated: what the function's outputs are stated to hold.
        reference: the model.
    """
    described_op = model_op.described_op
    first = function.graph.ops[number]
    if described_op.description.local is None or function.is_constant(first):
        return None
    tensors = {name for name in first.inputs if name}
    wanted = {
        slot: symbol
        for slot in described_op.read_slots
        if (symbol := model_op.reads[slot]) is not None and not isinstance(symbol, Num | Literal)
    }
    read = [values[name] for name in tensors if name in values]
    if wanted and not any(symbol in claims for symbol in wanted.values() for claims in read):
        return None
    candidates = {
        slot: [(name, claims[symbol]) for name, claims in values.items() if symbol in claims]
        for slot, symbol in wanted.items()
    }
    chosen = []
    for names in candidates.values():
        # Inputs that the first node reads go first: others may hold the same part by chance.
        sure = [candidate for candidate in names if candidate[1].partial is None and None not in candidate[1].lo]
        near = [candidate for candidate in sure if candidate[0] in tensors]
        chosen.append(near or sure)
    for inputs in itertools.islice(itertools.product(*chosen), MOST_RANGES):
        held = dict(zip(candidates, inputs, strict=True))
        for ranges in _ranges(model_op, held, values, stated):
            ruled = _as_ruled(function, number, model_op, held, ranges, reference)
            if ruled is not None:
                return ruled
    return None


def _as_ruled(
    function: Function,
    number: int,
    model_op: ModelOp,
    held: Mapping[int, tuple[str, Claim]],
    ranges: Boxes,
    reference: Whole,
) -> tuple[int, dict[str, Claim]] | None:
    """``by_rule`` for one part of the op."""
    described_op, op, graph = model_op.described_op, model_op.described_op.op, function.graph
    reads = described_op.reads(ranges)
    for slot, (_, claim) in held.items():
        region = reads[slot].boxes.region(0)
        if region.shape != index_space(claim.shape) or not claim.holds(region):
            return None
    key = model_op.kind, ranges.lo.tobytes(), ranges.hi.tobytes()
    if key not in reference.rules:
        try:
            part = described_op.part(ranges, reads, 0)
            reference.rules[key] = read_rule(model_op, described_op.local_op(part), part, reference)
        except (NotLocalError, UnprovenError, AssertionError):  # some are parts that no strategy makes
            reference.rules[key] = None
    rule, inputs = reference.rules[key], {f"in{slot}": name for slot, (name, _) in held.items()}
    match = None if rule is None else _same_nodes(function, number, rule, inputs)
    if match is None:
        return None
    end, names = match
    numbers = [n for n, variable in enumerate(described_op.variables) if variable.kind is VarKind.REDUCTION]
    cut = {
        described_op.variables[n].reducer
        for n in numbers
        if (ranges.lo[0, n], ranges.hi[0, n]) != (0, described_op.extents[n])
    }
    if len(cut) > 1 or None in cut:
        return None
    partial = _partial(model_op, ranges, numbers, cut.pop()) if cut else None
    claims = {}
    for position, name in enumerate(op.outputs):
        symbol = model_op.makes[position]
        if name and symbol is not None and f"out{position}" in names:
            region = described_op.makes(ranges, position).region(0)
            mine = graph.tensors[names[f"out{position}"]]
            dtype = described_op.node.output_dtypes[position]
            if index_space(mine.shape) != region.shape or mine.dtype is not dtype:
                return None
            claims[mine.name] = Claim(symbol, region.lo if mine.shape else (), mine.shape, partial)
    return end - number, claims


def _ranges(
    model_op: ModelOp,
    held: Mapping[int, tuple[str, Claim]],
    values: Mapping[str, Held],
    stated: Sequence[Claim],
) -> Iterator[Boxes]:
    """Parts of the iteration space that inputs and outputs suggest; each is checked by what it reads and says."""
    described_op = model_op.described_op
    spans: dict[int, set[tuple[int, int]]] = {}
    for read, numbers in described_op.plain_dims:
        for dim, variable in enumerate(numbers):
            if read.slot in held and variable is not None and dim < len(held[read.slot][1].lo):
                claim = held[read.slot][1]
                lo = claim.lo[dim]
                assert lo is not None, "claims without a place are refused before"
                spans.setdefault(variable, set()).add((lo, lo + claim.shape[dim]))
    for claim in stated:
        place = model_op.makes.index(claim.tensor) if claim.tensor in model_op.makes else None
        if place is not None and not described_op.analysis.steps_of(place):
            numbers = described_op.analysis.outputs[place] or ()
            for variable, first, size in zip(numbers, claim.lo, claim.shape, strict=False):  # a scalar's are none
                if first is not None:
                    spans.setdefault(variable, set()).add((first, first + size))
    seen = {
        (lo, lo + size)
        for value in values.values()
        for claim in value.values()
        for lo, size in zip(claim.lo, claim.shape, strict=True)
        if lo is not None
    }
    for variable, extent in enumerate(described_op.extents):
        spans.setdefault(variable, {(0, extent), *((lo, hi) for lo, hi in seen if hi <= extent)})
    # Most variables are whole.
    every = itertools.product(
        *(sorted(spans[n], key=lambda part: (part != (0, size), part)) for n, size in enumerate(described_op.extents))
    )
    for chosen in itertools.islice(every, MOST_RANGES):
        boxes = Boxes.whole(described_op.extents, 1)
        if len(chosen):
            boxes.lo[0], boxes.hi[0] = zip(*chosen, strict=True)
        yield boxes


def _same_nodes(
    function: Function, number: int, rule: Function, inputs: Mapping[str, str]
) -> tuple[int, dict[str, str]] | None:
    """Where a rule's nodes end, and what its names are in the function, if they stand there.

    What no data change is compared by value, whichever nodes make it.
    """
    names, ops = dict(inputs), function.graph.ops
    for wanted in itertools.filterfalse(rule.is_constant, rule.graph.ops):
        while number < len(ops) and function.is_constant(ops[number]):
            number += 1
        if number == len(ops):
            return None
        node, number = ops[number], number + 1
        if _form(node) != _form(wanted):
            return None
        for mine, label in zip(node.inputs, wanted.inputs, strict=True):
            array = rule.derived.value(label) if label and mine else None
            if array is not None:
                held_array = function.derived.value(mine)
                if held_array is None or held_array.dtype != array.dtype or held_array.shape != array.shape:
                    return None
                if holding(held_array) != holding(array):
                    return None
            elif bool(mine) != bool(label) or names.setdefault(label, mine) != mine:
                return None
        for mine, label in zip(node.outputs, wanted.outputs, strict=True):
            if bool(mine) != bool(label) or names.setdefault(label, mine) != mine:
                return None
    return number, names


def _form(op: Op) -> tuple[object, ...]:
    """Equal for ops that differ in names alone."""
    return op.op_type, op.domain, len(op.inputs), len(op.outputs), dict(op.attributes)


def _partial(model_op: ModelOp, ranges: Boxes, numbers: Sequence[int], reducer: Reducer | None) -> Partial:
    """Which contributions the part makes, of the op's reduction variables."""
    assert reducer is not None, "a part without a reducer is refused before"
    box = tuple(int(ranges.lo[0, n]) for n in numbers), tuple(int(ranges.hi[0, n]) for n in numbers)
    extents = tuple(model_op.described_op.extents[n] for n in numbers)
    return Partial(reducer, ((0, (box,)),), ((0, extents),))
