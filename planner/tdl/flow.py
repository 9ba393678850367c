"""The flow of dims through an op: which index of an input dim is which index of an output dim.

A description indexes each dim of an input by the op's variables, and each dim of an output is one variable. So both
are *digits* of variables, as of numbers with mixed bases: a Reshape that merges [2, 3] into 6 reads
``x[i // 3, i % 3]``, that is the upper digit of i, of 2 values, and the lower one, of 3. Shardy calls a digit a
compound factor. Where elements along a dim belong to samples, a digit of one variable is the sample's number: each
sample is computed by itself if all inputs that have samples are indexed by that digit, and each output has it.

    >>> import onnx.parser
    >>> from planner import opdefs
    >>> from planner.graph.reading.from_onnx import graph_from_proto
    >>> model = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
    ... merge (float[2,6,4] x) => (float[12,4] y) { y = Flatten <axis = 2> (x) }''')
    >>> descriptions = opdefs.standard()
    >>> (merge,) = descriptions.bind_all(graph_from_proto(model, operators=descriptions))
    >>> passage(merge, {0: Track(0)}, 2).outputs
    (Track(dim=0, outer=1, inner=6),)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Final

import numpy as np

from planner.algebra.region import Boxes
from planner.errors import DescriptionError, UnsupportedError
from planner.graph.core.attributes import refuse
from planner.graph.core.model import Graph, Op, Shape
from planner.tdl.analyse import Analysis, Read
from planner.tdl.bind import BoundOp
from planner.tdl.descriptions import Descriptions
from planner.tdl.expr import VarKind
from planner.tdl.interval import Affine, End, Floor, Interval, Remainder, Symbol
from planner.tdl.local import LocalOp, NotLocalError


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of variables along the dims of inputs and outputs, for all ops with one analysis."""

    output_dims: tuple[tuple[int, int, int], ...]
    """Output, dim and variable, of dims that go by one."""
    stepped: tuple[tuple[int, int, int, int], ...]
    """Output, dim, variable and step, of dims that go in steps."""
    read: tuple[tuple[int, int, int], ...]
    """Input, dim and the variable that is its index and nothing else."""
    aligned: tuple[tuple[int, int, int], ...]
    """Input, dim and the variable with the largest step in its index, where there is more in it."""

    @classmethod
    def of(cls, analysis: Analysis) -> Layout:
        """The layout of an analysis."""
        numbers = {variable.name: number for number, variable in enumerate(analysis.variables)}
        output_dims = [
            (position, dim, number, (analysis.steps_of(position) or (1,) * len(dims))[dim])
            for position, dims in enumerate(analysis.outputs)
            if dims is not None
            for dim, number in enumerate(dims)
        ]
        indices = [
            (read.slot, dim, numbers[major], interval.alone is not None)
            for read in analysis.reads
            for dim, interval in enumerate(read.dims)
            if interval is not None and (major := _major_variable(interval)) is not None
        ]
        return cls(
            tuple((position, dim, number) for position, dim, number, step in output_dims if step == 1),
            tuple(output for output in output_dims if output[3] > 1),
            tuple((slot, dim, number) for slot, dim, number, is_alone in indices if is_alone),
            tuple((slot, dim, number) for slot, dim, number, is_alone in indices if not is_alone),
        )


def _major_variable(interval: Interval) -> str | None:
    """The variable with the largest positive coefficient, alone or under a floor-division."""
    best: tuple[Fraction, str] | None = None
    for term, factor in interval.first.terms:
        name = None
        if isinstance(term, Symbol):
            name = term.variable
        elif isinstance(term, Floor) and len(term.of.terms) == 1 and isinstance(term.of.terms[0][0], Symbol):
            name = term.of.terms[0][0].variable
        if name is not None and factor > 0 and (best is None or factor > best[0]):
            best = (factor, name)
    return None if best is None else best[1]


@dataclass(frozen=True, slots=True)
class Track:
    """The samples' place in a tensor: index ``(i*samples + sample)*inner + j`` of a dim, i below outer, j below inner.

    Samples merged with the dims behind them, [samples*16, ...], have inner 16; merged with those before, outer 16.
    """

    dim: int
    outer: int = 1
    inner: int = 1

    def size(self, samples: int) -> int:
        """Of the dim, with so many samples."""
        return self.outer * samples * self.inner

    def resized(self, shape: Shape, samples: int) -> Shape:
        """A shape with another number of samples."""
        return (*shape[: self.dim], self.size(samples), *shape[self.dim + 1 :])


@dataclass(frozen=True, slots=True)
class Digit:
    """A term of an index: ``stride * (variable // inner % size)``."""

    stride: int
    variable: str
    inner: int
    size: int

    @property
    def end(self) -> int:
        """The number that it and the digits below it stay below."""
        return self.stride * self.size

    @property
    def above(self) -> int:
        """The step of the variable with which the digit has gone through all of its values."""
        return self.inner * self.size


def digits(index: Affine, extents: Mapping[str, int]) -> tuple[Digit, ...] | None:
    """An index as a number with mixed bases, the least digit first.

    Args:
        index: the first place of an interval (``Interval.first``).
        extents: of the variables.

    Returns:
        None where it is no such number: of a window, an offset, a dim in reverse.
    """
    terms: list[Digit] = []
    for term, factor in index.terms:
        if factor.denominator != 1 or factor < 0:
            return None
        match term:
            case Symbol(variable, End.FIRST):
                inner: tuple[Digit, ...] | None = (Digit(1, variable, 1, extents[variable]),)
            case Floor(of, divisor):
                _, inner = _halves(digits(of, extents), divisor)
            case Remainder(first, _, divisor, End.FIRST):
                inner, _ = _halves(digits(first, extents), divisor)
            case _:
                inner = None
        if inner is None:
            return None
        terms += [Digit(digit.stride * int(factor), digit.variable, digit.inner, digit.size) for digit in inner]
    terms = sorted((digit for digit in terms if digit.size > 1), key=lambda digit: digit.stride)
    apart = all(above.stride % below.end == 0 for below, above in pairwise(terms))
    return tuple(terms) if apart and not index.constant else None


def _halves(
    number: tuple[Digit, ...] | None, divisor: int
) -> tuple[tuple[Digit, ...], tuple[Digit, ...]] | tuple[None, None]:
    """The digits of ``number % divisor`` and of ``number // divisor``; None where it divides a digit unevenly."""
    if number is None:
        return None, None
    below, above = list[Digit](), list[Digit]()
    for digit in number:
        if digit.end <= divisor:
            below.append(digit)
        elif digit.stride % divisor == 0:
            above.append(Digit(digit.stride // divisor, digit.variable, digit.inner, digit.size))
        elif divisor % digit.stride == 0 and digit.end % divisor == 0:
            lower = divisor // digit.stride
            below.append(Digit(digit.stride, digit.variable, digit.inner, lower))
            above.append(Digit(1, digit.variable, digit.inner * lower, digit.size // lower))
        else:
            return None, None
    return tuple(below), tuple(above)


_BESIDE: Final = "it takes some of the samples, or puts other elements beside them or repeats them, along the batch"


@dataclass(frozen=True, slots=True)
class Passage:
    """The way of samples through an op."""

    outputs: tuple[Track | None, ...]
    """By position; None where the output is absent."""
    own: Mapping[int, Track]
    """By input that has no samples, and yet elements for each of them: where."""
    digit: Digit | None = None
    """The sample's number, as a digit of an index variable."""

    def after(self, op: Op) -> dict[str, Track]:
        """The places of the samples in the op's results, by name."""
        return {name: track for name, track in zip(op.outputs, self.outputs, strict=True) if track is not None}


def passage(op: BoundOp, tracks: Mapping[int, Track], samples: int) -> Passage:
    """The place of samples around an op, by what the op reads.

    Args:
        op: the op.
        tracks: of the inputs that have samples, by position.
        samples: how many.

    Raises:
        UnsupportedError: in words, how the op mixes samples.
    """
    places = set[Digit]()
    for slot in sorted(tracks.keys() - set(op.read_slots) - set(op.description.shape_only)):
        raise refuse(op.op, f"its operand {op.op.inputs[slot]!r} depends on the samples")
    reads = [(read, tracks[read.slot]) for read in op.analysis.reads if read.slot in tracks]
    if not reads:
        raise refuse(op.op, "its result depends on how many samples there are")
    indices = [interval.along for read, track in reads if (interval := read.dims[track.dim]) is not None]
    if not indices or not all(indices) or frozenset.intersection(*indices):
        places = {_digit_of(op, read, track, samples) for read, track in reads}
    if len(places) != 1:
        raise refuse(op.op, "its operands have the samples at different places")
    (digit,) = places
    own: dict[int, Track] = {}
    for read in op.analysis.reads:
        for track in _tracks_of(op, read, digit, tracks.get(read.slot)):
            if own.setdefault(read.slot, track) != track:
                raise refuse(op.op, f"it reads {op.op.inputs[read.slot]!r} at several places for each sample")
    outputs = tuple(_made(op, position, digit) for position in range(len(op.analysis.outputs)))
    return Passage(outputs, {slot: track for slot, track in own.items() if slot not in tracks}, digit)


def _digit_of(op: BoundOp, read: Read, track: Track, samples: int) -> Digit:
    """The digit of a variable by which the op reads an input's samples."""
    interval = read.dims[track.dim]
    if interval is None:
        raise refuse(op.op, "it mixes samples: it computes with all of them together")
    if not interval.along:
        raise refuse(op.op, "it picks among the samples")
    digit, end = _digit_at(op, interval.first, track.inner, samples)
    if end != op.node.input_shape(read.slot)[track.dim]:
        raise refuse(op.op, _BESIDE)
    variable = op.variables[op.variable_number(digit.variable)]
    if variable.is_matched:
        raise refuse(op.op, "it picks among the samples")
    if variable.kind is VarKind.REDUCTION:
        raise refuse(op.op, "it reduces over the samples")
    if variable.obstacle:
        raise refuse(op.op, f"it mixes samples: {variable.obstacle}")
    return digit


def _digit_at(op: BoundOp, index: Affine, inner: int, samples: int) -> tuple[Digit, int]:
    """The digit of a variable that is ``index // inner % samples``, and the number that the index stays below.

    Raises:
        UnsupportedError: no digit is.
    """
    divisor, modulus, is_torn = 1, 0, False
    while len(index.terms) == 1 and not index.constant and index.terms[0][1] == 1:
        match index.terms[0][0]:
            case Floor(of, by):
                index, divisor, is_torn = of, divisor * by, True
            case Remainder(first, _, by, End.FIRST) if by % (inner * divisor * samples) == 0:
                index, modulus, is_torn = first, modulus or by // divisor, True
            case _:
                break
    number = digits(index, _extents(op))
    for digit in number or ():
        step, rest = divmod(inner * divisor, digit.stride)
        if step and not rest and digit.end % (inner * divisor * samples) == 0:
            end = (number or ())[-1].end // divisor
            below = modulus if modulus and end % modulus == 0 else end
            return Digit(1, digit.variable, digit.inner * step, samples), below
    raise refuse(op.op, "it tears the batch apart" if is_torn or len(number or ()) > 1 else _BESIDE)


def _tracks_of(op: BoundOp, read: Read, digit: Digit, expected: Track | None) -> Iterator[Track]:
    """The places at which a read goes with a digit of a variable; one of them is as expected."""
    for dim, interval in enumerate(read.dims):
        if interval is None or _shift(interval.first, digit) == 0:
            continue
        if expected is not None and dim == expected.dim:
            yield expected
            continue
        number = digits(interval.first, _extents(op))
        parts = [part for part in number or () if part.variable == digit.variable]
        parts = [part for part in parts if part.inner % digit.above and digit.inner % part.above]
        if number is not None and not parts:
            continue
        if number is None or len(parts) > 1 or digit.inner % parts[0].inner or parts[0].above % digit.above:
            raise refuse(op.op, f"it reads {op.op.inputs[read.slot]!r} across samples")
        inner = parts[0].stride * (digit.inner // parts[0].inner)
        yield Track(dim, number[-1].end // (inner * digit.size), inner)


def _shift(index: Affine, digit: Digit) -> Fraction | None:
    """The growth of an index with each step of a digit; None where steps differ."""
    total = Fraction(0)
    for term, factor in index.terms:
        match term:
            case Symbol(variable):
                shift: Fraction | None = Fraction(digit.inner if variable == digit.variable else 0)
            case Floor(of, divisor):
                inside = _shift(of, digit)
                shift = None if inside is None or inside % divisor else inside / divisor
            case Remainder(first, _, divisor):
                inside = _shift(first, digit)
                shift = None if inside is None or inside % divisor else Fraction(0)
        if shift is None:
            return None
        total += shift * factor
    return total


def _made(op: BoundOp, position: int, digit: Digit) -> Track | None:
    """The place of the samples in an output."""
    numbers, number = op.analysis.outputs[position], op.variable_number(digit.variable)
    if numbers is None:
        return None
    if number not in numbers:
        raise refuse(op.op, f"its result {op.op.outputs[position]!r} is of all samples together")
    outer, rest = divmod(op.extents[number], digit.above)
    if rest:
        raise refuse(op.op, "it tears the batch apart")
    dim = numbers.index(number)
    return Track(dim, outer, digit.inner * (op.analysis.steps_of(position) or (1,) * len(numbers))[dim])


def _extents(op: BoundOp) -> Mapping[str, int]:
    return {variable.name: extent for variable, extent in zip(op.variables, op.extents, strict=True)}


SAMPLES: Final = 65_537
"""A prime number of samples, for which ops are looked at in place of their own: no dim is as long by chance, and one
sample is not told from a dim that is broadcast.
"""


class Flow:
    """Samples on their way through a graph, however many of them it has."""

    def __init__(self, graph: Graph, descriptions: Descriptions, samples: int) -> None:
        """Looks at no op yet.

        Args:
            graph: at its own number of samples.
            descriptions: an operator without one is refused.
            samples: their number.
        """
        self.graph = graph
        self._descriptions = descriptions
        self.samples = samples

    def follow(self, starts: Mapping[str, Track]) -> tuple[dict[str, Track], frozenset[str]]:
        """The places of the samples in all tensors; and the tensors of which they are not known.

        Args:
            starts: the places in inputs.
        """
        tracks, lost = dict(starts), set[str]()
        for op in self.graph.ops:
            if lost.isdisjoint(op.inputs) and tracks.keys().isdisjoint(op.inputs):
                continue
            try:
                if not lost.isdisjoint(op.inputs):
                    raise refuse(op, "it reads what samples are not followed to")
                tracks.update(self.through(op, tracks).after(op))
            except UnsupportedError:
                lost.update(filter(None, op.outputs))
        return tracks, frozenset(lost)

    def through(self, op: Op, tracks: Mapping[str, Track]) -> Passage:
        """The way of the samples through one op.

        Args:
            op: some of whose operands have samples.
            tracks: by tensor that has samples: where.

        Raises:
            UnsupportedError: in words, how the op mixes them, or why they cannot be followed.
        """
        if not self._descriptions.takes(op.domain, op.op_type):
            raise refuse(op, "samples cannot be followed through this operator")
        by_slot = {slot: tracks[name] for slot, name in enumerate(op.inputs) if name in tracks}
        output = next(filter(None, op.outputs))
        shape = self.graph.tensors[output].shape
        ways: dict[tuple[int, int], Passage] = {}
        reasons: list[UnsupportedError] = []
        # A description is of shapes, and the output's is known when the samples' place in it is: so each is tried.
        for dim in (*(dim for dim, size in enumerate(shape) if size % self.samples == 0), None):
            grown = {} if dim is None else {output: Track(dim, shape[dim] // self.samples)}
            try:
                way = passage(self._described(op, {**tracks, **grown}), by_slot, SAMPLES)
            except DescriptionError:
                continue
            except UnsupportedError as error:
                reasons.append(error)
                continue
            track = way.after(op)[output]
            if track.dim == dim and track.size(self.samples) == shape[dim]:
                ways[track.size(1), dim] = way
            if ways and self.samples > 1:
                break
        if not ways:
            try:
                self._descriptions.bind(op, self.graph)
            except DescriptionError as error:
                raise UnsupportedError(error.what, hint=error.hint) from error
            raise reasons[0] if reasons else refuse(op, "it tears the batch apart")
        # A batch of 1 fits in several places; where it is a dim of its own nothing needs to be merged.
        way = ways[min(ways)]
        self._check_alike(op, tracks, way)
        return way

    def _described(self, op: Op, tracks: Mapping[str, Track]) -> BoundOp:
        """An op at ``SAMPLES``."""
        tensors = {name: self.graph.tensors[name] for name in (*op.inputs, *op.outputs) if name}
        resized = {
            name: replace(tensor, shape=tracks[name].resized(tensor.shape, SAMPLES)) if name in tracks else tensor
            for name, tensor in tensors.items()
        }
        return self._descriptions.bind(op, replace(self.graph, tensors=resized, ops=(op,), lanes={}))

    def _check_alike(self, op: Op, tracks: Mapping[str, Track], way: Passage) -> None:
        """Refuses an op that treats samples by their number, which the description may leave to the local rule.

        A triangle's diagonal, or an index that counts through all samples, moves with a part.
        """
        own = {op.inputs[slot]: track for slot, track in way.own.items()}
        bound = self._described(op, {**tracks, **own, **way.after(op)})
        if bound.description.local is None or way.digit is None:
            return
        ranges, name = Boxes.whole(bound.extents, 2), way.digit.variable
        indices = (interval.along for read in bound.analysis.reads for interval in read.dims if interval is not None)
        # Of variables that are merged with the samples' own into a dim, one value: so a part reads a box.
        for merged in frozenset().union(*(along for along in indices if name in along)):
            ranges.hi[:, bound.variable_number(merged)] = 1
        number = bound.variable_number(name)
        ranges.lo[:, number] = 0, way.digit.inner
        ranges.hi[:, number] = ranges.lo[:, number] + way.digit.inner
        reads = bound.reads(ranges)
        try:
            first, second = (bound.local_op(bound.part(ranges, reads, worker)) for worker in range(2))
        except NotLocalError as error:
            raise refuse(op, f"a sample is not computed alone: {error}") from error
        except UnsupportedError:
            return  # no part of it is ever run
        if not _is_same(first, second):
            raise refuse(op, "it treats samples by their number")


def _is_same(first: LocalOp, second: LocalOp) -> bool:
    if first.nodes != second.nodes or first.constants.keys() != second.constants.keys():
        return False
    return all(np.array_equal(value, second.constants[name]) for name, value in first.constants.items())
