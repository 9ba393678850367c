"""The least that an op which sums products can move, whatever schedule spreads it (after Loomis and Whitney, 1949).

A worker that multiplies v pairs of elements touches y_A, y_B and y_C elements of the three tensors, and of a matrix
product y_A y_B y_C >= v^2: three shadows of a set say how large it can be. For convolutions there is a factor. A
*window* is one position with all its taps. Let a worker do v whole windows, N_r N_s taps each, and let f be the least
number of input rows that go with an output row, over runs of rows. Then y_A y_B y_C >= f N_r N_s v^2. Where windows are
divided among workers, v counts single products of elements that exist, and the factor is 1 / (taps that can meet in an
element of the input). Besides, no element is in more than so many products: y_A >= v / N_k, and so on. D(v) is the
least sum of the three.

Initially each element lies on some worker, and at last each element of C must lie on one. So what moves is at least

- however the tensors are spread, each element in one place: the sum over the workers of D(v_j), less A, B and C;
- in M bytes of memory: the sum of 2 v_j sqrt(factor / M), less the same (the phases of Irony, Toledo and Tiskin, 2004);
- as operands lie in a plan: what a worker owns of A and B is free, however many own it; every further worker that is to
  hold an element of C costs one more.

Products of different batches share nothing. Bytes weigh elements. Bounds of ops do not add up to a bound of a step:
what one op leaves where another one needs it moves once, or never.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product as every
from typing import TypeVar

from planner.algebra.region import Boxes
from planner.algebra.tiling import Only, Shard, Tiling
from planner.cost.contraction import RESULT, TENSORS, Contraction, Stencil, contraction_of
from planner.tdl.bind import BoundOp

_Number = TypeVar("_Number", int, Fraction)
_SLACK = 1e-9
"""Bounds are sums of floats: a share of this much is taken off, so that none is above what it bounds."""


@dataclass(frozen=True, slots=True)
class Least:
    """The least that an op moves, in bytes over all workers."""

    any_bytes: float
    """However its tensors are spread, each element in one place."""
    regime: str
    """``3D``, ``2D`` or ``1D``: how many of a product's directions it pays to divide (Demmel et al., 2013); ``0D``
    where nothing need move."""


@dataclass(frozen=True, slots=True)
class Holding:
    """The owners of an op's tensors, before it and after it."""

    own_elements: tuple[Sequence[int], Sequence[int]]
    """Elements of each input that each worker has."""
    results: int
    """Elements of the result that workers hold at last, all together."""
    partial: int = 1
    """How many contributions to each element of the result are left, to be joined later; 1 where it is whole."""


@dataclass(frozen=True, slots=True)
class _Form:
    """One way in which points are counted, and what follows from it."""

    points: tuple[int, ...]
    """Of each worker."""
    whole_points: int
    factor: Fraction
    """``y_A y_B y_C >= factor * points**2``."""
    shares: tuple[Fraction, ...]
    """By tensor, elements that go with each point at least."""
    touched: tuple[int, ...]
    """By tensor, elements of it that are multiplied with anything."""


class Bounds:
    """Lower bounds of one op."""

    def __init__(self, op: BoundOp, contraction: Contraction) -> None:
        """Keeps what is needed.

        Args:
            op: the op.
            contraction: what it is, ``contraction_of``.
        """
        self.contraction = contraction
        self._op = op
        self._bytes = [operand.item_bytes for operand in contraction.operands]

    @classmethod
    def of(cls, op: BoundOp) -> Bounds | None:
        """The bounds of an op; None if it sums no products of two inputs, and nothing is known of it."""
        contraction = contraction_of(op)
        return None if contraction is None else cls(op, contraction)

    def any(self, strategy: Tiling, memory_bytes: int | None = None) -> Least | None:
        """The least that moves however the tensors are spread, each element in one place.

        Args:
            strategy: which share of the work each worker has; no other division of the same shares moves less.
            memory_bytes: what the op's elements may take on a worker at any time; None: no matter.

        Returns:
            None if work is repeated: then there is no bound.
        """
        if not _is_once(strategy):
            return None
        best, regime = 0.0, "0D"
        for form in self._forms(self._op.ranges(strategy)):
            tensor_bytes = self._size(form)
            total = 0.0
            dims = 0
            for points, workers in Counter(form.points).items():
                least, free = self._least(form, points, (0, 0, 0))
                total, dims = total + workers * least, max(dims, free)
            if total * (1 - _SLACK) - tensor_bytes > best:
                best, regime = total * (1 - _SLACK) - tensor_bytes, f"{max(dims, 1)}D"
            if memory_bytes is not None:
                weight = float(form.factor) * math.prod(self._bytes)
                limited = sum(2 * math.sqrt(weight / memory_bytes) * points for points in form.points)
                if limited * (1 - _SLACK) - tensor_bytes > best:
                    best, regime = limited * (1 - _SLACK) - tensor_bytes, "2.5D"
        return Least(best, regime)

    def as_it_lies(self, strategy: Tiling, holding: Holding) -> float | None:
        """The least that moves in bytes where the tensors lie as they do; None if work is repeated.

        Args:
            strategy: which share of the work each worker has.
            holding: where they lie.
        """
        if not _is_once(strategy):
            return None
        best = 0.0
        for form in self._forms(self._op.ranges(strategy)):
            alike = Counter(zip(form.points, *holding.own_elements, strict=True))
            total = sum(
                workers * self._least(form, points, (*own_elements, 0))[0]
                for (points, *own_elements), workers in alike.items()
                if points
            )
            size = form.touched[RESULT] * self._bytes[RESULT]
            # Some result elements are no sum of anything: to bring these to the workers is not counted.
            held = max(0.0, holding.results * self._bytes[RESULT] - self._whole_result() * self._bytes[RESULT])
            again = held * form.touched[RESULT] / max(1, self._whole_result())
            deduction = holding.partial * size if holding.partial > 1 else size - again
            best = max(best, total * (1 - _SLACK) - deduction)
        return best

    def _whole_result(self) -> int:
        shape = self._op.node.output_shapes[self.contraction.operands[RESULT].position]
        return math.prod(shape or ())

    def _size(self, form: _Form) -> float:
        return float(sum(count * size for count, size in zip(form.touched, self._bytes, strict=True)))

    def _least(self, form: _Form, points: int, own_elements: Sequence[int]) -> tuple[float, int]:
        """The least sum in bytes of what a worker touches and does not own, and of how many tensors it has a choice.

        The three numbers are at least ``shares * points`` each, at most what there is, and their product is bounded:
        so they are as equal as these limits let them be.
        """
        if not points:
            return 0.0, 0
        batches = self.contraction.batches
        per_batch = Fraction(form.whole_points, batches)
        full, remainder = divmod(Fraction(points), per_batch)
        # Of several batches whole ones are the least: sum v_i^(2/3) is least where the v_i are as unequal as can be.
        spread = float(full) * float(per_batch) ** (2 / 3) + float(remainder) ** (2 / 3)
        goal = float(form.factor) * spread**3 * math.prod(self._bytes)
        low, high, had = [], [], []
        for tensor in range(TENSORS):
            touched_bytes = form.touched[tensor] * self._bytes[tensor]
            owned = min(own_elements[tensor] * self._bytes[tensor], touched_bytes)
            least = float(form.shares[tensor] * points) * self._bytes[tensor]
            had.append(owned)
            high.append(float(touched_bytes))
            low.append(min(max(least, owned), float(touched_bytes)))
        chosen = _levelled(goal, low, high)
        free = sum(amount > least * (1 + 1e-6) for amount, least in zip(chosen, low, strict=True))
        return sum(amount - owned for amount, owned in zip(chosen, had, strict=True)), free

    def _forms(self, ranges: Boxes) -> Iterator[_Form]:
        """The ways to count points that hold for these parts."""
        spans = [list(zip(ranges.lo[:, n].tolist(), ranges.hi[:, n].tolist(), strict=True)) for n in self._numbers()]
        idle = (ranges.elements == 0).tolist()
        contraction = self.contraction
        counted = set(contraction.counted)
        plain = [
            0 if idle[worker] else math.prod(spans[number][worker][1] - spans[number][worker][0] for number in counted)
            for worker in range(ranges.workers)
        ]
        choices = [list(_axes(stencil, spans, idle)) for stencil in contraction.stencils]
        for axes in every(*choices):
            points = tuple(
                count * math.prod(axis.counts[worker] for axis in axes) for worker, count in enumerate(plain)
            )
            total = math.prod(part.extent for part in contraction.plain) * math.prod(axis.points for axis in axes)
            factor = math.prod((axis.factor for axis in axes), start=Fraction(1))
            shares = tuple(
                math.prod((axis.shares[tensor] for axis in axes), start=Fraction(1, contraction.outside(tensor)))
                for tensor in range(TENSORS)
            )
            touched = tuple(
                contraction.inside(tensor) * math.prod(axis.touched[tensor] for axis in axes)
                for tensor in range(TENSORS)
            )
            yield _Form(points, total, factor, shares, touched)

    def _numbers(self) -> range:
        return range(len(self.contraction.extents))


@dataclass(frozen=True, slots=True)
class _Axis:
    """Counts of points along one stencil."""

    counts: tuple[int, ...]
    """Of each worker."""
    points: int
    """Of the op."""
    factor: Fraction
    shares: tuple[Fraction, Fraction, Fraction]
    """By tensor of the op."""
    touched: tuple[int, int, int]


_Spans = Sequence[Sequence[tuple[int, int]]]
"""By variable of the op and worker, its half-open range."""


def _axes(stencil: Stencil, spans: _Spans, idle: Sequence[bool]) -> Iterator[_Axis]:
    """The ways to count points along a stencil that hold for these parts."""
    ranges = [
        [(0, extent)] * len(idle) if number is None else list(spans[number])
        for number, extent in zip(stencil.variables, stencil.extents, strict=True)
    ]
    counts = tuple(
        0 if is_idle else stencil.pairs(first, second) for first, second, is_idle in zip(*ranges, idle, strict=True)
    )
    most_pairs, pairs = stencil.most_pairs, int(stencil.exists.sum())
    shares = tuple(Fraction(1, count) for count in most_pairs)
    factor = min(Fraction(1, stencil.most_alike), math.prod(shares, start=Fraction(pairs)))
    yield _Axis(counts, pairs, factor, _placed(stencil, shares), _placed(stencil, stencil.touched))
    for over, partner in ((0, 1), (1, 0)):
        # Runs of one variable, of which each value goes with all values of the other: whole windows.
        window = stencil.extents[partner]
        is_whole = all(is_idle or span == (0, window) for span, is_idle in zip(ranges[partner], idle, strict=True))
        share = stencil.least_share(over) if is_whole else None
        if share is not None:
            runs = stencil.extents[over]
            counts = tuple(0 if is_idle else hi - lo for (lo, hi), is_idle in zip(ranges[over], idle, strict=True))
            beside = [Fraction(1), Fraction(window, runs)]
            shares = (share, beside[over], beside[partner])
            reached = [stencil.touched[0], *stencil.extents]
            yield _Axis(counts, runs, share * window, _placed(stencil, shares), _placed(stencil, reached))


def _placed(stencil: Stencil, numbers: Iterable[_Number]) -> tuple[_Number, _Number, _Number]:
    """Numbers of a stencil's tensors in the order of the op's."""
    by_tensor = dict(zip(stencil.tensors, numbers, strict=True))
    return by_tensor[0], by_tensor[1], by_tensor[RESULT]


def _levelled(goal: float, low: Sequence[float], high: Sequence[float]) -> list[float]:
    """Numbers within limits whose product reaches a goal and whose sum is least: one level, cut off by the limits.

    If not even the upper limits reach the goal, these.
    """
    if math.prod(low) >= goal:
        return list(low)
    bounds = sorted({*low, *high})
    for lower, upper in zip([0.0, *bounds], [*bounds, math.inf], strict=True):
        level_high = [min(max(upper, lo), hi) for lo, hi in zip(low, high, strict=True)]
        if math.prod(level_high) >= goal:
            fixed = [lo if lo >= upper else hi if hi <= lower else None for lo, hi in zip(low, high, strict=True)]
            product = math.prod(value for value in fixed if value is not None)
            free = sum(value is None for value in fixed)
            level = (goal / product) ** (1 / free) if free and product else lower
            return [min(max(level, lo), hi) for lo, hi in zip(low, high, strict=True)]
    return list(high)


def _is_once(strategy: Tiling) -> bool:
    """Whether no work is done more than once."""
    pairs = zip(strategy.placements, strategy.ways, strict=True)
    return all(isinstance(placement, Shard | Only) or ways == 1 for placement, ways in pairs)
