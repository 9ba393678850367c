"""Gelu that a file spells in simple ops, as the one op: fewer passes, and a gradient in fewer, too.

Exporters for opsets before 20, and models that compute it themselves, write x/2 (1 + erf(x/√2)), or its approximation
by tanh or sigmoid, in many orders and with many ways to x³. So what is read is the sum that the ops amount to.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType
from typing import Final, TypeAlias

from planner.graph.core.dependence import live_ops
from planner.graph.core.model import Attribute, DType, Graph, Op

_Terms: TypeAlias = Mapping[tuple[int, int], float]
"""Factors of xᵖ fᑫ, by p and q."""
_CUBE: Final = 3.0
_MOST_POWER: Final = 3
_NEAR: Final = {DType.FLOAT16: 1e-3, DType.BFLOAT16: 8e-3}
"""How far the numbers of a formula are from the exact ones, relative: what the dtype rounds; 1e-6 of others."""
_SLOPE: Final = math.sqrt(2.0 / math.pi)
_SPELLED: Final[Mapping[str, tuple[_Terms, _Terms, tuple[tuple[str, Attribute], ...]]]] = MappingProxyType(
    {
        "Erf": ({(1, 0): math.sqrt(0.5)}, {(1, 0): 0.5, (1, 1): 0.5}, ()),
        "Tanh": (
            {(1, 0): _SLOPE, (3, 0): 0.044715 * _SLOPE}, {(1, 0): 0.5, (1, 1): 0.5}, (("approximate", "tanh"),)
        ),
        "Sigmoid": (
            {(1, 0): 2 * _SLOPE, (3, 0): 2 * 0.044715 * _SLOPE}, {(1, 1): 1.0}, (("approximate", "tanh"),)
        ),
    }
)  # fmt: skip
"""By function f: its argument, what Gelu is, both as sums over x and f, and Gelu's attributes."""


@dataclass(frozen=True, slots=True)
class _Sum:
    """The form of a tensor: a sum of powers of another tensor x, some of them times a function f of x."""

    terms: _Terms
    x: str = ""
    """"" of a number."""
    f: str = ""
    """The function's result; "" where it does not occur."""

    def times(self, multiplier: _Sum) -> _Sum | None:
        """The product; None where it is no such sum."""
        terms: dict[tuple[int, int], float] = {}
        for ((p, q), factor), ((r, s), scale) in product(self.terms.items(), multiplier.terms.items()):
            power = p + r, q + s
            terms[power] = terms.get(power, 0.0) + factor * scale
        return self._joined(multiplier, terms)

    def plus(self, addend: _Sum) -> _Sum | None:
        """The sum; None where x or f are others."""
        powers = dict.fromkeys((*self.terms, *addend.terms))
        return self._joined(
            addend, {power: self.terms.get(power, 0.0) + addend.terms.get(power, 0.0) for power in powers}
        )

    def _joined(self, operand: _Sum, terms: _Terms) -> _Sum | None:
        is_one = all(not a or not b or a == b for a, b in ((self.x, operand.x), (self.f, operand.f)))
        is_low = all(p <= _MOST_POWER and q <= 1 for p, q in terms)
        return _Sum(terms, self.x or operand.x, self.f or operand.f) if is_one and is_low else None


def composed(forward: Graph, trained: Collection[str]) -> Graph:
    """A model in which each Gelu that simple ops make is one op; the model itself where there is none.

    Args:
        forward: the model, of opset 20 or later.
        trained: constants whose values change.
    """
    reader = _Reader(forward, trained)
    ops = [reader.read(op) for op in forward.ops]
    return forward if tuple(ops) == forward.ops else _without_unread(replace(forward, ops=tuple(ops)), forward.used)


class _Reader:
    def __init__(self, forward: Graph, trained: Collection[str]) -> None:
        self._tensors = forward.tensors
        self._numbers = {
            name: float(value.reshape(()))
            for name, value in forward.constants.items()
            if value is not None and value.size == 1 and name not in trained and forward.tensors[name].dtype.is_float
        }
        self._sums: dict[str, _Sum] = {}
        self._functions: dict[str, tuple[str, _Terms]] = {}
        """By result: which function it is, and of what."""

    def read(self, op: Op) -> Op:
        """The op, or the Gelu that its result is."""
        output = self._tensors[op.outputs[0]] if op.outputs[0] else None
        if op.domain or output is None or not output.dtype.is_float:
            return op
        total = self._sum_of(op, [self._sum(name) for name in op.inputs])
        if total is None or not total.x or self._tensors[total.x].shape != output.shape:
            return op
        self._sums[output.name] = total
        return self._gelu(op, total, _NEAR.get(output.dtype, 1e-6)) or op

    def _sum(self, name: str) -> _Sum:
        if name in self._numbers:
            return _Sum({(0, 0): self._numbers[name]})
        return self._sums.get(name) or _Sum({(1, 0): 1.0}, name)

    def _sum_of(self, op: Op, operands: list[_Sum]) -> _Sum | None:
        match op.op_type, operands:
            case "Add", [a, b]:
                return a.plus(b)
            case "Sub", [a, b]:
                negated = b.times(_Sum({(0, 0): -1.0}))
                return a.plus(negated) if negated else None
            case "Mul", [a, b]:
                return a.times(b)
            case "Neg", [a]:
                return a.times(_Sum({(0, 0): -1.0}))
            case "Div", [a, b] if not b.x and b.terms[0, 0]:
                return a.times(_Sum({(0, 0): 1.0 / b.terms[0, 0]}))
            case "Pow", [a, b] if not b.x and b.terms[0, 0] in (2.0, 3.0):
                square = a.times(a)
                return square.times(a) if square and b.terms[0, 0] == _CUBE else square
            case kind, [a] if kind in _SPELLED and not a.f:
                self._functions[op.outputs[0]] = kind, a.terms
                return _Sum({(0, 1): 1.0}, a.x, op.outputs[0])
        return None

    def _gelu(self, op: Op, total: _Sum, near: float) -> Op | None:
        """Gelu of a multiple of x, of which there is a tensor."""
        if not total.f:
            return None
        kind, argument = self._functions[total.f]
        inner, outer, attributes = _SPELLED[kind]
        multiple = argument.get((1, 0), 0.0) / inner[1, 0]
        if not (_is_near(argument, inner, multiple, near) and _is_near(total.terms, outer, multiple, near)):
            return None
        names = [total.x, *(name for name, entry in self._sums.items() if entry.x == total.x and not entry.f)]
        for name in names:
            if _is_near(self._sum(name).terms, {(1, 0): 1.0}, multiple, near):
                return Op(op.name, "Gelu", (name,), op.outputs, attributes)
        return None


def _is_near(terms: _Terms, wanted: _Terms, multiple: float, near: float) -> bool:
    """Whether a sum is another one, of a multiple of x."""
    exact = {power: factor * multiple ** power[0] for power, factor in wanted.items()}
    largest = max(map(abs, exact.values()))
    return all(
        math.isclose(
            terms.get(power, 0.0), exact.get(power, 0.0), rel_tol=near, abs_tol=near * largest * (power not in exact)
        )
        for power in (*terms, *exact)
    )


def _without_unread(graph: Graph, used: Collection[str]) -> Graph:
    """The graph without the ops whose results only such ops read that are no longer there."""
    unread = {name for op in graph.ops for name in op.outputs if name and name not in used}
    ops = live_ops(graph.ops, (*graph.outputs, *unread))
    gone = {name for op in graph.ops for name in op.outputs} - {name for op in ops for name in op.outputs}
    tensors = {name: tensor for name, tensor in graph.tensors.items() if name not in gone}
    return replace(graph, ops=ops, tensors=tensors)
