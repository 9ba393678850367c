"""Ops that sum products of two inputs: what a description's value says of it, not the operator's name."""

from __future__ import annotations

from collections.abc import Sequence

from planner.algebra.tiling import Reducer
from planner.tdl.expr import Access, Apply, Match, Number, OpaqueResult, Reduce, Value, subvalues

Product = tuple[Access, Access]
"""The two elements that are multiplied, as indexed under the sum."""


def product_of(values: Sequence[Value]) -> Product | None:
    """The two factors, if each element of the one output is a function of one sum of products of two inputs.

    What is added to the sum, or done with it element by element (a bias, a factor, an activation), does not matter.

    Args:
        values: of the outputs that are there.

    Returns:
        None where an op is anything else: it has several outputs, several sums, products of three, lookups.
    """
    if len(values) != 1:
        return None
    inside = list(subvalues(values[0]))
    if any(isinstance(value, OpaqueResult | Match) for value in inside):
        return None
    sums = [value for value in inside if isinstance(value, Reduce)]
    if not sums or any(value.reducer is not Reducer.SUM for value in sums):
        return None
    body: Value = sums[0]
    seen = 0
    while isinstance(body, Reduce):
        seen += 1
        body = _without_factor(body.body)
    if seen != len(sums):
        return None  # there is another sum beside it, or inside
    match body:
        case Apply("*", (Access() as first, Access() as second)):
            return first, second
    return None


def _without_factor(value: Value) -> Value:
    """A value without the constants that it is multiplied with or divided by."""
    match value:
        case Apply("*", (Number(), inner)) | Apply("*" | "/", (inner, Number())):
            return _without_factor(inner)
    return value
