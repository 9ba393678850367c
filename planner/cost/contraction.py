"""Products and convolutions as sums of products: which index variable is in which of the three tensors.

A *contraction* sums products of elements of two inputs. Each of its index variables is in two of the three tensors
(rows, columns and terms of a matrix product), in all three (a batch), or in a *stencil*: one tensor has a dim that two
variables index together, ``stride * position + dilation * tap - pad``, each of which indexes one of the other tensors
alone. A convolution and both of its gradients are the same three tensors in other roles (SPAA'21, section 1). What is
found here is found from descriptions, so that it holds of MatMul, Gemm, Einsum, Conv of any rank and grouped,
ConvTranspose, and of whatever a user describes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.algebra.region import index_space
from planner.tdl.bind import BoundOp
from planner.tdl.expr import At, FloorDiv, Index, Mod, Number, Plus, Times, Var, Whole

TENSORS = 3
"""The two inputs, then the result."""
RESULT = 2
_MOST_PAIRS = 1 << 22
"""Pairs of a position and a tap that are looked at one by one; a stencil of more has no bound."""

_Part: TypeAlias = tuple[str, str]
"""A variable, or of one that is divided by a constant somewhere the quotient (``//``) or the remainder (``%``)."""
_Form: TypeAlias = dict[_Part, Fraction]
"""An index as a sum of parts times numbers; what is constant has the key ``_ONE``."""
_ONE: _Part = ("", "1")


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor of the three."""

    position: int
    """Among the op's inputs, or its outputs."""
    item_bytes: int


@dataclass(frozen=True, slots=True)
class Plain:
    """A variable, or a part of one, that indexes dims alone."""

    extent: int
    tensors: frozenset[int]
    """Those that it indexes: two, or all three (a batch)."""


@dataclass(frozen=True, eq=False)
class Stencil:
    """A dim that two variables index together, and what exists of it.

    Attributes:
        tensors: the one that has the dim, the one that has the first variable, the one that has the second variable.
        variables: the two, by number; None for one that has a single value.
        index: the element of the dim for each pair of values, shape [first, second]; -1 where there is none.
    """

    tensors: tuple[int, int, int]
    variables: tuple[int | None, int | None]
    index: NDArray[np.int64]

    @cached_property
    def exists(self) -> NDArray[np.bool_]:
        """The pairs that multiply anything, shape [first, second]: the others read what lies outside of the tensor."""
        return self.index >= 0

    @property
    def extents(self) -> tuple[int, int]:
        """The extents of the two variables."""
        return self.index.shape[0], self.index.shape[1]

    @cached_property
    def touched(self) -> tuple[int, int, int]:
        """The number of elements of the dim, of the first and of the second variable that are in some pair."""
        elements = np.unique(self.index[self.exists])
        return len(elements), int(self.exists.any(axis=1).sum()), int(self.exists.any(axis=0).sum())

    @cached_property
    def most_pairs(self) -> tuple[int, int, int]:
        """The most pairs that one element of the dim, of the first and of the second variable is in."""
        _, counts = np.unique(self.index[self.exists], return_counts=True)
        return int(counts.max(initial=0)), int(self.exists.sum(axis=1).max()), int(self.exists.sum(axis=0).max())

    @cached_property
    def most_alike(self) -> int:
        """The largest class of taps: of these, no two of different classes meet in an element of the dim.

        It is 3 for 3 taps that slide by 1, and 2 where they slide by 2, since an even and an odd tap never read the
        same element. Classes of either variable serve, and those that never meet in the other one.
        """
        return min(_largest_class(self.index), _largest_class(self.index.T))

    def least_share(self, over: int) -> Fraction | None:
        """The least number of elements of the dim that go with one value of a variable, if all of the other is read.

        It is the least over runs of values, which is the least over all sets of them where windows are intervals that
        move on. None where they are not (a dilation), or some value reads nothing.

        Args:
            over: 0: runs of the first variable; 1: of the second.
        """
        index = self.index if over == 0 else self.index.T
        count, taps = index.shape
        exists = index >= 0
        if not exists.any(axis=1).all() or count > _MOST_PAIRS // max(count, taps):
            return None
        high = index.max(axis=1)
        low = np.where(exists, index, np.iinfo(np.int64).max).min(axis=1)
        if (np.diff(low) < 0).any() or (np.diff(high) < 0).any() or ((high - low + 1) != exists.sum(axis=1)).any():
            return None
        gaps = np.concatenate([[0], np.cumsum(np.maximum(0, low[1:] - high[:-1] - 1))])
        rows = high[None, :] - low[:, None] + 1 - (gaps[None, :] - gaps[:, None])
        lengths = np.arange(count)[None, :] - np.arange(count)[:, None] + 1
        starts, ends = np.nonzero(lengths > 0)
        best = int(np.argmin(rows[starts, ends] / lengths[starts, ends]))
        return Fraction(int(rows[starts[best], ends[best]]), int(lengths[starts[best], ends[best]]))

    def pairs(self, first: tuple[int, int], second: tuple[int, int]) -> int:
        """Pairs that exist of two half-open ranges."""
        return int(self.exists[first[0] : first[1], second[0] : second[1]].sum())


@dataclass(frozen=True, eq=False)
class Contraction:
    """An op that sums products of two inputs.

    Attributes:
        operands: the two inputs, then the result.
        plain: variables and parts of variables that index dims alone.
        counted: the numbers of the op's variables that are among ``plain``, whole or in parts.
        stencils: pairs of variables that index a dim together.
        extents: of all variables of the op, by number.
    """

    operands: tuple[Operand, Operand, Operand]
    plain: tuple[Plain, ...]
    counted: tuple[int, ...]
    stencils: tuple[Stencil, ...]
    extents: tuple[int, ...]

    @property
    def batches(self) -> int:
        """The number of products that share nothing."""
        return prod(variable.extent for variable in self.plain if len(variable.tensors) == TENSORS)

    def outside(self, tensor: int) -> int:
        """Points that one element of a tensor is in, but for stencils."""
        return prod(variable.extent for variable in self.plain if tensor not in variable.tensors)

    def inside(self, tensor: int) -> int:
        """Elements of a tensor, but for dims of stencils."""
        return prod(variable.extent for variable in self.plain if tensor in variable.tensors)


def contraction_of(op: BoundOp) -> Contraction | None:
    """An op as a contraction.

    Args:
        op: the op.

    Returns:
        None if it is none: see the head of this file. A product of a tensor with itself is none either, since what a
        worker has of the one operand it has of the other.
    """
    product = op.analysis.product
    if product is None or 0 in op.extents or any(op.analysis.steps):
        return None
    first, second = product
    inputs = (op.op.inputs[first.slot], op.op.inputs[second.slot])
    numbers = op.analysis.outputs[0]
    if inputs[0] == inputs[1] or numbers is None or len(op.analysis.outputs) != 1:
        return None
    extents = {variable.name: extent for variable, extent in zip(op.variables, op.extents, strict=True)}
    result_indices = tuple(Var(op.variables[number].name) for number in numbers)
    dims = [first.indices, second.indices, result_indices]
    shapes = (op.node.input_shapes[first.slot], op.node.input_shapes[second.slot], op.node.output_shapes[0])
    dtypes = (op.node.input_dtypes[first.slot], op.node.input_dtypes[second.slot], op.node.output_dtypes[0])
    operands = tuple(
        Operand(position, dtype.item_bytes)
        for position, dtype in zip((first.slot, second.slot, 0), dtypes, strict=True)
        if dtype is not None
    )
    if len(operands) != TENSORS or None in shapes:
        return None
    return _Reading(op, extents).contraction(dims, [index_space(shape or ()) for shape in shapes], operands)


class _Reading:
    """The reading of a contraction's indices: once for an op."""

    def __init__(self, op: BoundOp, extents: Mapping[str, int]) -> None:
        self._numbers = {variable.name: number for number, variable in enumerate(op.variables)}
        self._extents = extents
        self._all = op.extents
        self._divisors: dict[str, int] = {}

    def contraction(
        self, dims: Sequence[Sequence[Index]], shapes: Sequence[tuple[int, ...]], operands: tuple[Operand, ...]
    ) -> Contraction | None:
        """The contraction with these indices of each tensor's dims, or None."""
        try:
            self._divisors = self._divided(dims)
            forms = [[self._form(index) for index in indices] for indices in dims]
        except _NoneError:
            return None
        alone: dict[_Part, set[int]] = {}
        together: list[tuple[int, int, _Form]] = []  # tensor, size of the dim, its index
        for tensor, (tensor_forms, shape) in enumerate(zip(forms, shapes, strict=True)):
            for form, size in zip(tensor_forms, shape, strict=False):  # a scalar has one dim in its space
                parts = [part for part in form if part != _ONE]
                if self._is_mixed(form, parts, size):
                    for part in parts:
                        alone.setdefault(part, set()).add(tensor)
                else:
                    together.append((tensor, size, form))
        stencils = self._stencils(together, alone)
        if stencils is None:
            return None
        index_parts = set(alone).union(*({part for part in form if part != _ONE} for _, _, form in together))
        missing = any(
            extent > 1 and not any(part[0] == name for part in index_parts) for name, extent in self._extents.items()
        )
        plain = {part: Plain(self._extent(part), frozenset(tensors)) for part, tensors in alone.items()}
        if missing or any(len(variable.tensors) < 2 for variable in plain.values()):
            return None
        first, second, result = operands
        counted = sorted({self._numbers[name] for name, _ in plain})
        return Contraction((first, second, result), tuple(plain.values()), tuple(counted), tuple(stencils), self._all)

    def _stencils(
        self, together: Sequence[tuple[int, int, _Form]], alone: dict[_Part, set[int]]
    ) -> list[Stencil] | None:
        """The stencils of dims that are indexed by more than a variable; their variables are taken out of ``alone``."""
        stencils = []
        for tensor, size, form in together:
            parts = [part for part in form if part != _ONE]
            peers = {0, 1, RESULT} - {tensor}
            if not 1 <= len(parts) <= 2 or any(part[1] for part in parts):
                return None
            if any(len(alone.get(part, ())) != 1 for part in parts):
                return None
            places = [next(iter(alone.pop(part))) for part in parts]
            if not peers.issuperset(places) or len(set(places)) != len(places):
                return None
            places += sorted(peers.difference(places))
            index = self._index(size, form, parts)
            if index is None:
                return None
            numbers: list[int | None] = [self._numbers[name] for name, _ in parts]
            numbers += [None] * (2 - len(numbers))
            stencils.append(Stencil((tensor, places[0], places[1]), (numbers[0], numbers[1]), index))
        return stencils

    def _index(self, size: int, form: _Form, parts: Sequence[_Part]) -> NDArray[np.int64] | None:
        """The element for each pair of values of a stencil's variables; None if there are too many pairs, or none."""
        extents = [self._extent(part) for part in parts] + [1] * (2 - len(parts))
        if prod(extents) > _MOST_PAIRS:
            return None
        denominator = np.lcm.reduce([value.denominator for value in form.values()])
        factors = [int(form[part] * denominator) for part in parts] + [0] * (2 - len(parts))
        total = (
            factors[0] * np.arange(extents[0])[:, None]
            + factors[1] * np.arange(extents[1])[None, :]
            + int(form.get(_ONE, Fraction(0)) * denominator)
        )
        exists = (total % denominator == 0) & (total >= 0) & (total < size * denominator)
        return np.where(exists, total // denominator, -1) if exists.any() else None

    def _divided(self, dims: Sequence[Sequence[Index]]) -> dict[str, int]:
        """By variable that is divided somewhere, by what; one that is divided by several makes it no contraction."""
        divisors: dict[str, int] = {}
        stack = [index for indices in dims for index in indices]
        while stack:
            match stack.pop():
                case Plus(left, right):
                    stack += [left, right]
                case Times(inner, _):
                    stack.append(inner)
                case FloorDiv(Var(name), divisor) | Mod(Var(name), divisor):
                    if divisors.setdefault(name, divisor) != divisor or self._extents[name] % divisor:
                        raise _NoneError
                case FloorDiv() | Mod() | At() | Whole():
                    raise _NoneError
                case _:
                    pass
        return divisors

    def _form(self, index: Index) -> _Form:
        """An index as a sum; parts that have only the value 0 are left out."""
        match index:
            case Number(value):
                return {_ONE: Fraction(value)} if value else {}
            case Var(name):
                divisor = self._divisors.get(name)
                if divisor is None:
                    return self._sum((((name, ""), Fraction(1)),))
                return self._sum((((name, "//"), Fraction(divisor)), ((name, "%"), Fraction(1))))
            case FloorDiv(Var(name), _):
                return self._sum((((name, "//"), Fraction(1)),))
            case Mod(Var(name), _):
                return self._sum((((name, "%"), Fraction(1)),))
            case Times(inner, factor):
                return {part: value * factor for part, value in self._form(inner).items()}
            case Plus(left, right):
                total = self._form(left)
                for part, value in self._form(right).items():
                    total[part] = total.get(part, Fraction(0)) + value
                return total
        raise _NoneError

    def _sum(self, terms: Sequence[tuple[_Part, Fraction]]) -> _Form:
        return {part: value for part, value in terms if self._extent(part) > 1}

    def _extent(self, part: _Part) -> int:
        name, operator = part
        extent: int = self._extents[name]
        divisor = self._divisors.get(name, 1)
        return extent if not operator else divisor if operator == "%" else extent // divisor

    def _is_mixed(self, form: _Form, parts: Sequence[_Part], size: int) -> bool:
        """Whether each element of a dim is there for one value of each part: digits of a number of mixed base."""
        base = 1
        for part in sorted(parts, key=lambda part: form[part]):
            if form[part] != base:
                return False
            base *= self._extent(part)
        return _ONE not in form and (base == size or not parts)


class _NoneError(Exception):
    """An index is of no form that a contraction has."""


def _largest_class(index: NDArray[np.int64]) -> int:
    """Of the second variable's values the most that are linked by elements of the dim, or by the first variable."""
    count = int(index.shape[1])
    if count > 512:
        return count
    by_element = [set(column[column >= 0].tolist()) for column in index.T]
    by_first = [set(np.flatnonzero(column >= 0).tolist()) for column in index.T]
    return min(_largest_group(by_element), _largest_group(by_first))


def _largest_group(sets: Sequence[set[int]]) -> int:
    """How many of some sets the largest group has that are linked by common elements."""
    groups: list[tuple[set[int], int]] = []
    for subset in sets:
        if not subset:
            continue
        joined, size, apart = set(subset), 1, []
        for elements, members in groups:
            if joined.isdisjoint(elements):
                apart.append((elements, members))
            else:
                joined |= elements
                size += members
        groups = [*apart, (joined, size)]
    return max((members for _, members in groups), default=1)
