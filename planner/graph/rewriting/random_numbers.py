"""Numbers that look random and are functions of a key and a counter, in standard integer arithmetic.

The generator, on unsigned 32-bit integers (all arithmetic modulo 2^32)::

    x0 = index + key0(step)                          the index in row-major order
    x1 = rot16(x0 * (2 * x0 + key1(step)))
    x2 = rot16(x1 * (2 * x1 + key2(step)))
    x3 =       x2 * (2 * x2 + key3)

``f(x) = x * (2 * x + odd)`` followed by a rotation is the mixing step of the block cipher RC6 (Rivest, Robshaw, Sidney
and Yin, 1998, section 2.2): a bijection that is quadratic, where sums and products with constants alone stay nearly
linear. That a number is a function of a key and a counter alone is the idea of Random123 (Salmon et al., SC'11).
Keys are the sha256 of the seed, the op's name and the number of the stream, the first three moved by a hash of the
step. Its arithmetic is Add, Mul and Div: bit operations have no kernels before opset 18.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from statistics import NormalDist
from typing import Final

import numpy as np

from planner.graph.core import attributes
from planner.graph.core.emitter import Emitter
from planner.graph.core.model import DType, Op

DEFAULT_SEED: Final = 0.0
"""Of an op that states none. Two ops of one seed still differ, by their names."""
MAX_INDEX: Final = 2**32
"""So many elements have counters of their own; of a larger tensor the leading dims move a key instead."""

_PARTS: Final = 64
"""Of every power of two, in the table of the inverse normal distribution."""
_OCTAVES: Final = 64
"""Powers of two below the largest weight of a class; what is smaller is 0."""
_TERMS: Final = 9
"""Degree of the Taylor polynomial of 2^f."""


def inner_and_outer(shape: Sequence[int]) -> tuple[int, int, int]:
    """(dim, elements of the dims from it on, of those before): the most dims whose elements have counters."""
    first = len(shape)
    while first > 0 and prod(shape[first - 1 :]) <= MAX_INDEX:
        first -= 1
    return first, prod(shape[first:]), prod(shape[:first])


@dataclass(frozen=True, slots=True)
class Clock:
    """Hashes of the step, once for a graph; all of rank 0."""

    moves: tuple[str, str, str]
    """What the step adds to the first three keys of every op; the second and third are even."""
    following: str
    """The next step."""
    zero: str
    """0.0 in float64, computed from the step."""


def _words(*keys: object) -> tuple[int, int, int, int]:
    """Four 32-bit words that depend on all of ``keys``; the last three odd."""
    digest = hashlib.sha256("\0".join(map(str, keys)).encode()).digest()
    first, *odd = (int.from_bytes(digest[4 * word : 4 * word + 4], "little") for word in range(4))
    return first, odd[0] | 1, odd[1] | 1, odd[2] | 1


def make_clock(emitter: Emitter, step: str) -> Clock:
    """Hashes the step, and counts it on.

    Args:
        emitter: of the graph's own scope.
        step: uint32, of rank 0.
    """
    number = Numbers(emitter, "step.")
    moves = []
    for stream in range(3):
        words = _words("step", stream)
        seeded = number.plus(step, words[0], f"seeded{stream}")
        keys = [number.word(word, f"key{stream}.{position}") for position, word in enumerate(words[1:], start=1)]
        moves.append(number.mixed(seeded, keys, f"hash{stream}"))
    doubles = [number.times(move, 2, f"even{position}") for position, move in enumerate(moves[1:], start=1)]
    zero = emitter.cast(number.times(step, 0, "zero"), DType.FLOAT64, "step.zero64")
    return Clock((moves[0], doubles[0], doubles[1]), number.plus(step, 1, "next"), zero)


class Numbers:
    """Arithmetic on unsigned 32-bit integers, modulo 2^32; constants are emitted once."""

    def __init__(self, emitter: Emitter, part: str) -> None:
        self._emitter = emitter
        self._part = part
        self._words: dict[int, str] = {}

    def word(self, value: int, part: str) -> str:
        """A constant."""
        if value not in self._words:
            self._words[value] = self._emitter.scalar(value, DType.UINT32, f"{self._part}{part}.word")
        return self._words[value]

    def plus(self, x: str, value: int, part: str) -> str:
        """The sum of x and a constant."""
        return self._emitter.each("Add", f"{self._part}{part}", x, self.word(value, part))

    def times(self, x: str, value: int, part: str) -> str:
        """The product of x and a constant."""
        return self._emitter.each("Mul", f"{self._part}{part}", x, self.word(value, part))

    def over(self, x: str, value: int, part: str) -> str:
        """The quotient of x and a constant, rounded down."""
        return self._emitter.each("Div", f"{self._part}{part}", x, self.word(value, part))

    def mixed(self, x: str, keys: Sequence[str], part: str) -> str:
        """The rounds of the generator, one for each key."""
        emit = self._emitter.each
        for number, key in enumerate(keys):
            name = f"{self._part}{part}.{number}"
            doubled = emit("Add", f"{name}.doubled", x, x)
            x = emit("Mul", f"{name}.square", x, emit("Add", f"{name}.keyed", doubled, key))
            if number < len(keys) - 1:
                high = self.times(x, 1 << 16, f"{part}.{number}.low_up")
                x = emit("Add", f"{name}.turned", high, self.over(x, 1 << 16, f"{part}.{number}.high_down"))
        return x


@cache
def _inverse_tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coefficients of 1, t and t² for the distance from 0 at which the upper tail is n / 2^33.

    Entry ``_PARTS * e + i`` is of ``n = 2^e * (i + t) / _PARTS``, t in [0, 1); i is at least ``_PARTS``.
    """
    normal = NormalDist()
    table = np.zeros((3, _PARTS * 33), np.float32)
    for octave in range(32):
        for part in range(_PARTS, 2 * _PARTS):
            low, middle, high = (-normal.inv_cdf(2.0 ** (octave - 33) * (part + t) / _PARTS) for t in (0.0, 0.5, 1.0))
            entry = _PARTS * octave + part
            table[:, entry] = low, 4 * middle - 3 * low - high, 2 * (low - 2 * middle + high)
    constant, linear, square = table
    return constant, linear, square


@dataclass(frozen=True, slots=True)
class Draw:
    """The seed and step of one op's numbers."""

    emitter: Emitter
    op: Op
    clock: Clock

    def bits(self, shape: Sequence[int], stream: int = 0) -> str:
        """32 random bits for each element of a shape.

        Args:
            shape: of the result.
            stream: numbers of other streams of the same op are independent.
        """
        part = f"bits{stream}."
        words = _words(attributes.number(self.op, "seed", DEFAULT_SEED), self.op.name, stream)
        arithmetic = Numbers(self.emitter, part)
        first, *moved = (
            self.emitter.each("Add", f"{part}key{position}", move, arithmetic.word(word, f"key{position}"))
            for position, (move, word) in enumerate(zip(self.clock.moves, words, strict=False))
        )
        inner, _, outer = inner_and_outer(shape)
        add = self.emitter.each
        index = first
        if len(shape) > inner:
            index = add("Add", f"{part}start", self._index(shape, range(inner, len(shape)), f"{part}index"), first)
        if outer > 1:
            row = add("Add", f"{part}row.start", self._index(shape, range(inner), f"{part}row"), moved[0])
            fixed = [arithmetic.word(word, f"row{position}") for position, word in enumerate(words[1:], start=1)]
            hashed = arithmetic.mixed(row, fixed, "row")
            moved[0] = arithmetic.plus(arithmetic.times(hashed, 2, "row.even"), words[1], "row.odd")
        return arithmetic.mixed(index, [*moved, arithmetic.word(words[3], "key3")], "mix")

    def _index(self, shape: Sequence[int], dims: Sequence[int], part: str) -> str:
        """The row-major index over some dims, of the shape's rank.

        Each dim's share is a constant of that dim's size, of which a worker has its own part. One op adds them all:
        a sum of some dims' shares would be a tensor that has not all dims, so that cuts along the others would move
        it. ONNX's only such op is of floats, which hold these integers exactly; a zero that is not known beforehand
        keeps the sum from being folded into a constant of the shape.
        """
        shares = []
        for dim in dims:
            below = prod(shape[axis] for axis in dims if axis > dim)
            terms = np.arange(shape[dim], dtype=np.float64) * below
            along = terms.reshape([shape[dim] if axis == dim else 1 for axis in range(len(shape))])
            shares.append(self.emitter.constant(along, f"{part}.{dim}"))
        total = self.emitter.each("Sum", f"{part}.sum", *shares, self.clock.zero)
        return self.emitter.cast(total, DType.UINT32, part)

    def uniform(self, shape: Sequence[int], stream: int = 0) -> str:
        """Multiples of 2^-24 in [0, 1), as float32: exact, in float64 too."""
        number = Numbers(self.emitter, f"uniform{stream}.")
        top = number.over(self.bits(shape, stream), 1 << 8, "top")
        real = self.emitter.cast(top, DType.FLOAT32, f"uniform{stream}.real")
        unit = self.emitter.scalar(2.0**-24, DType.FLOAT32, f"uniform{stream}.unit")
        return self.emitter.each("Mul", f"uniform{stream}", real, unit)

    def normal(self, shape: Sequence[int]) -> str:
        """Standard normal numbers, as float32, by inversion.

        One bit is the sign. The others are an odd number n below 2^32, and the distance from 0 is where the upper
        tail has the probability n / 2^33, out of a table: quadratic in each of 64 parts of every power of two, within
        2e-6 of the inverse (Hormann and Leydold, 2003, invert by pieces likewise). Box and Muller's method would be
        shorter, but the last bit of Log and Cos depends on where in a tile an element stands. Here the logarithm only
        finds the power of two, and 1/4 keeps it from the border.
        """
        emitter, emit = self.emitter, self.emitter.each
        number = Numbers(emitter, "normal.")
        bits = self.bits(shape)
        half = number.over(bits, 1 << 31, "half")
        magnitude = emit("Sub", "normal.rest", bits, number.times(half, 1 << 31, "sign_bit"))
        odd = emitter.cast(number.plus(number.times(magnitude, 2, "even"), 1, "odd"), DType.FLOAT64, "normal.number")
        safe = emit("Add", "normal.safe", odd, emitter.scalar(0.25, DType.FLOAT64, "normal.quarter"))
        per_octave = emitter.scalar(1 / math.log(2), DType.FLOAT64, "normal.per_octave")
        log2 = emit("Mul", "normal.log2", emit("Log", "normal.log", safe), per_octave)
        exponent = emit("Floor", "normal.floor", log2)
        octave = emitter.cast(exponent, DType.INT64, "normal.octave")
        shrunk = emit("Mul", "normal.shrunk", odd, self._looked_up(2.0 ** -np.arange(32), octave, "normal.shrink"))
        parts = emitter.scalar(_PARTS, DType.FLOAT64, "normal.parts")
        place = emit("Mul", "normal.place", shrunk, parts)
        part = emit("Floor", "normal.part", place)
        within = emitter.cast(emit("Sub", "normal.within64", place, part), DType.FLOAT32, "normal.within")
        width = emitter.scalar(_PARTS, DType.INT64, "normal.width")
        before = emit("Mul", "normal.before", octave, width)
        # Of the octave's parts the first is number _PARTS: what was shrunk lies in [1, 2).
        entry = emit("Add", "normal.entry", before, emitter.cast(part, DType.INT64, "normal.part_number"))
        constant, linear, square = (
            self._looked_up(table, entry, f"normal.table{number}") for number, table in enumerate(_inverse_tables())
        )
        bent = emit("Mul", "normal.bent", square, within)
        sloped = emit("Mul", "normal.sloped", emit("Add", "normal.slope", linear, bent), within)
        distance = emit("Add", "normal.distance", constant, sloped)
        is_above = emit("Equal", "normal.is_above", half, number.word(0, "zero"), dtype=DType.BOOL)
        return emit("Where", "normal", is_above, distance, emit("Neg", "normal.below", distance))

    def weights(self, x: str, bits: int) -> str:
        """The whole numbers 2^bits e^(x - max x), rounded down, with max over the last dim of a matrix; int64.

        Exp's last bit depends on where in a tile an element stands, so that it is written in Add and Mul: a table's
        power of two times the Taylor polynomial of 2^f, f in [0, 1), within 1e-8.
        """
        emitter, emit = self.emitter, self.emitter.each
        real = emitter.cast(x, DType.FLOAT64, "weight.x")
        below = emit("Sub", "weight.below", real, emitter.reduce("ReduceMax", real, (1,), "weight.max"))
        log2 = emit("Mul", "weight.log2", below, emitter.scalar(1 / math.log(2), DType.FLOAT64, "weight.per_octave"))
        exponent = emit("Max", "weight.kept", log2, emitter.scalar(float(-_OCTAVES), DType.FLOAT64, "weight.least"))
        floor = emit("Floor", "weight.whole", exponent)
        fraction = emit("Sub", "weight.fraction", exponent, floor)
        power = emitter.scalar(math.log(2) ** _TERMS / math.factorial(_TERMS), DType.FLOAT64, f"weight.term{_TERMS}")
        for term in reversed(range(_TERMS)):
            constant = emitter.scalar(math.log(2) ** term / math.factorial(term), DType.FLOAT64, f"weight.term{term}")
            power = emit("Add", f"weight.sum{term}", emit("Mul", f"weight.up{term}", power, fraction), constant)
        octave = emitter.cast(emit("Neg", "weight.down", floor), DType.INT64, "weight.octave")
        scale = self._looked_up(2.0 ** (bits - np.arange(_OCTAVES + 1)), octave, "weight.scale")
        return emitter.cast(emit("Floor", "weight.floor", emit("Mul", "weight", power, scale)), DType.INT64,
                            "weight.number")  # fmt: skip

    def _looked_up(self, table: np.ndarray, indices: str, part: str) -> str:
        emitter = self.emitter
        name = emitter.constant(table, part)
        return emitter.one("Gather", (name, indices), emitter.shape(indices), emitter.dtype(name), hint=f"{part}.entry")

    def affine(self, x: str, factor: float, offset: float) -> str:
        """The number x * factor + offset, in the dtype of the op's output."""
        emitter = self.emitter
        if factor != 1:
            x = emitter.each("Mul", "scaled", x, emitter.scalar(factor, DType.FLOAT32, "factor"))
        if offset:
            x = emitter.each("Add", "moved", x, emitter.scalar(offset, DType.FLOAT32, "offset"))
        return emitter.cast(x, emitter.dtype(self.op.outputs[0]), "result")
