"""Elements of arrays inside of a worker's function, and of the model's ops, as expressions in tensors of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isclose, prod
from typing import Any, TypeAlias

import ml_dtypes

from planner.algebra.tiling import Reducer
from planner.features.prove.proof import index
from planner.features.prove.proof.claims import Claim, Place, Symbol
from planner.features.prove.proof.expression import Acc, At, Described, Expr, Num, Read, Red, UnprovenError, terms_of
from planner.features.prove.proof.index import Lin, Space
from planner.features.prove.proof.pairing import Literal
from planner.features.prove.proof.whole import ModelOp, Whole, array_of
from planner.graph.core.model import DType, Shape

Reads: TypeAlias = "Sequence[Symbol | Num | Literal | None]"
"""What an op of the model reads, by slot."""


@dataclass(frozen=True, slots=True)
class Value:
    """The facts of an array inside of a function."""

    claims: Mapping[Symbol, Claim]
    """By tensor of which it holds a part; the last one is that of the latest op."""
    constant: Num | Literal | None = None
    producer: Described | None = None
    """By which node it is made."""
    reads: tuple[Value | None, ...] = ()
    """Of that node, by slot."""
    shape: Shape = ()


def readings(model_op: ModelOp) -> list[Reads]:
    """The readings of an op's inputs: a constant of one number as that, and then as a part of other constants."""
    numbers = tuple(None if isinstance(tensor, Literal) else tensor for tensor in model_op.reads)
    slots = model_op.described_op.read_slots
    return [numbers, model_op.reads] if any(isinstance(model_op.reads[slot], Literal) for slot in slots) else [numbers]


def reader(model_op: ModelOp) -> Read:
    """Reads tensors of the model."""

    def read(slot: int, at: At, fill: float | None) -> Expr:
        tensor = model_op.reads[slot]
        shape = model_op.described_op.node.input_shape(slot)
        assert tensor is not None, "what is read is there"
        if isinstance(tensor, Num) and (fill is None or fill == tensor.value):
            return tensor
        return Acc(tensor, at, (0,) * len(shape), shape, shape, fill)

    return read


def is_padding(expression: Described, model_op: ModelOp, lo: Place, shape: Shape, fill: Num) -> bool:
    """Whether all of a part of what an op makes is one number that lies around what it reads."""
    space = Space()
    at = [index.plus(space.variable(size), index.number(first or 0)) for first, size in zip(lo, shape, strict=True)]
    try:
        access = expression.at(at, reader(model_op), space)
    except UnprovenError:
        return False
    if not isinstance(access, Acc) or access.fill is None or Num(access.fill) != fill:
        return False
    reaches = [
        (index.reach(lin, space), n) for lin, n in zip(access.at, access.sizes, strict=True) if isinstance(lin, Lin)
    ]
    return any(high < 0 or low >= size for (low, high), size in reaches)


def element(array: Value, at: Sequence[Lin], space: Space, prefer: Reads, reference: Whole) -> Expr:
    """The element of an array that a node makes, in tensors of the model.

    Args:
        array: the array.
        at: which element.
        space: of the variables.
        prefer: by which of its claims what is read is told, where it has several: the slot's own, then the first.
        reference: says how large tensors are.
    """
    assert array.producer is not None, "a node makes it"

    def read(slot: int, where: At, fill: float | None) -> Expr:
        value = array.reads[slot]
        if value is None:
            raise UnprovenError("an array of which nothing is known is read")
        # A part of a tensor may be a part of two that an op reads: x, and a Slice of x.
        dtype = array.producer.node.input_dtypes[slot] if array.producer else None
        return _read(value, where, fill, space, (*prefer[slot : slot + 1], *prefer), reference, dtype)

    return array.producer.at(at, read, space)


def _read(
    value: Value,
    at: At,
    fill: float | None,
    space: Space,
    prefer: Reads,
    reference: Whole,
    dtype: DType | None,
) -> Expr:
    chosen = [value.claims[symbol] for symbol in prefer if symbol in value.claims]
    if not chosen and value.claims and value.constant is None:
        chosen = [list(value.claims.values())[-1]]
    # A claim says most, and a constant more than the node that made it: an expression grows with every node.
    if chosen:
        return _access(chosen[0], at, fill, reference)
    as_elements = any(isinstance(symbol, Literal) for symbol in prefer) and value.constant not in prefer
    if value.constant is not None and dtype is not None and as_elements:
        array = array_of(value.constant, value.shape, dtype)
        return Acc(Literal("", array), at, (0,) * len(value.shape), value.shape, value.shape, fill)
    if isinstance(value.constant, Num) and (fill is None or fill == value.constant.value):
        return value.constant
    if value.constant is not None:
        tensor = value.constant if isinstance(value.constant, Literal) else ("filled", value.constant)
        return Acc(tensor, at, (0,) * len(value.shape), value.shape, value.shape, fill)
    if value.producer is None:
        raise UnprovenError("an array of which nothing is known is read")
    inside: list[Lin] = []
    for place, size in zip(at, value.shape, strict=True):
        if not isinstance(place, Lin):
            raise UnprovenError("all of a dim is read of what is no part of a tensor")
        low, high = index.reach(place, space)
        if fill is not None and (low < 0 or high >= size):
            raise UnprovenError("what is no part of a tensor is padded")
        inside.append(place)
    expression = element(value, inside, space, prefer, reference)
    _check_factors(expression, value.producer.dtype, space)
    return expression


def _check_factors(expression: Expr, dtype: DType, space: Space) -> None:
    """Refuses an array between two nodes whose constant factors leave its dtype little room for what they scale.

    Factors of the nodes after it are multiplied with them as if nothing had been lost. Half of the exponents, to either
    side, are left to the data; a sum's factor is looked at alone and times what is summed, unless it makes a mean.
    """
    if not dtype.is_float:
        return
    limits: Any = ml_dtypes.finfo(dtype.array_dtype)  # type: ignore[no-untyped-call]
    low, high = float(limits.smallest_normal) ** 0.5, float(limits.max) ** 0.5
    for factor, term in terms_of(expression):
        summed = term.variables if isinstance(term, Red) and term.reducer is Reducer.SUM else ()
        count = prod([space.extents[variable] for variable in summed])
        scale = abs(factor * term.value if isinstance(term, Num) else factor)
        if scale != 1 and not isclose(scale * count, 1, rel_tol=0.01) and not low <= scale <= scale * count <= high:
            raise UnprovenError(f"constant factors of {scale:.3g} between nodes, near the ends of {dtype.value}")


def _access(claim: Claim, at: At, fill: float | None, reference: Whole) -> Expr:
    sizes = reference.sizes[claim.tensor].shape
    moved_at = tuple(
        index.plus(place, index.number(first)) if isinstance(place, Lin) and first is not None else place
        for place, first in zip(at, claim.lo, strict=True)
    )
    return Acc(claim.tensor, moved_at, claim.lo, claim.shape, sizes, fill, claim.partial, claim.number)
