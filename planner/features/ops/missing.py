"""Strategies that would have been right and that the analysis does not give, by brute force.

The op itself is run on pieces of its inputs: for every choice of one dim per input, all of one size (what one index
variable can index), each piece by itself. If what comes out, concatenated along a dim or reduced by one of the four
reducers, is what the whole op makes, for every output and for two draws of the inputs, then there is an index
variable along which the op can be cut. If no strategy of the analysis does the same, one is missing.

What needs another local op (pads at a border, a sum over a count) is not found in this way; the descriptions' own
strategies go beyond it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import numpy as np

from planner.algebra.tiling import Reducer, Shard, Tiling
from planner.features.ops.cases.case import Case, bind_case
from planner.features.ops.execute import ExecutionError
from planner.features.ops.strategies import JOIN, normwise_error, run_whole, tolerance
from planner.tdl.analyse import Variable
from planner.tdl.bind import BoundOp
from planner.tdl.descriptions import Descriptions
from planner.tdl.interval import Interval

WAYS = 2
MOST_CHOICES = 512
"""Choices of dims tried for one size; further ones are left out."""

Cut: TypeAlias = "int | Reducer | None"
"""What a cut does to a tensor: sharded along a dim, partial by a reducer, or the whole on every worker."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A strategy that is right and that the analysis does not give."""

    case: str
    inputs: str
    """How the inputs are cut: ``in0 S(1), in1 S(0)``."""
    outputs: str
    """How the results are joined: ``out0 concatenated along 0``."""

    def __str__(self) -> str:
        return f"{self.case}: {self.inputs} -> {self.outputs}"


def missing_strategies(case: Case, descriptions: Descriptions) -> tuple[Gap, ...]:
    """The gaps of one case.

    Raises:
        ExecutionError: the whole op cannot be executed.
    """
    op, arrays, expected = bind_case(case, descriptions, seed=0)
    _, second_arrays, second_expected = bind_case(case, descriptions, seed=1)
    admitted = [variable for number, variable in enumerate(op.variables) if _is_admitted(op, number, variable)]
    gaps = []
    for choice in _choices(op, arrays):
        outputs = _joins(op, choice, arrays, expected)
        if outputs is None:
            continue
        again = _joins(op, choice, second_arrays, second_expected)
        if again is None:
            continue
        labels = {position: outputs[position] & again[position] for position in outputs}
        if not all(labels.values()) or all(None in cuts for cuts in labels.values()):
            continue
        if not any(_explains(op, variable, choice, labels) for variable in admitted):
            gaps.append(Gap(str(case), _inputs_text(choice), _outputs_text(labels)))
    return tuple(gaps)


def _is_admitted(op: BoundOp, number: int, variable: Variable) -> bool:
    if variable.obstacle or op.extents[number] < WAYS:
        return False
    blocks = (1, *variable.blocks)
    return any(
        not op.veto(op.ranges(Tiling((Shard(number, block),), (WAYS,))))
        for block in blocks
        if op.extents[number] > block or block == 1
    )


def _choices(op: BoundOp, arrays: Mapping[str, np.ndarray]) -> Iterator[dict[int, int]]:
    """Choices of a dim for some of the inputs, all dims of one size."""
    shapes = {slot: arrays[name].shape for slot, name in enumerate(op.op.inputs) if name in arrays}
    for size in sorted({size for shape in shapes.values() for size in shape if size >= WAYS}):
        options = {
            slot: [None, *(d for d, extent in enumerate(shape) if extent == size)] for slot, shape in shapes.items()
        }
        slots = sorted(options)
        for number, dims in enumerate(product(*(options[slot] for slot in slots))):
            if number >= MOST_CHOICES:
                break
            choice = {slot: dim for slot, dim in zip(slots, dims, strict=True) if dim is not None}
            if choice:
                yield choice


def _joins(
    op: BoundOp, choice: Mapping[int, int], arrays: Mapping[str, np.ndarray], expected: Mapping[int, np.ndarray]
) -> dict[int, set[Cut]] | None:
    """For each output the ways to join its pieces that give the whole; None if a piece cannot be executed."""
    pieces: list[dict[int, np.ndarray]] = []
    for worker in range(WAYS):
        inputs = {
            name: array if slot not in choice else np.array_split(array, WAYS, axis=choice[slot])[worker]
            for slot, (name, array) in enumerate((name, arrays.get(name)) for name in op.op.inputs)
            if array is not None
        }
        try:
            pieces.append(run_whole(op, inputs))
        except ExecutionError:
            return None
    return {
        position: set(_ways_to_join([piece[position] for piece in pieces], expected[position])) for position in expected
    }


def _ways_to_join(pieces: list[np.ndarray], expected: np.ndarray) -> Iterator[Cut]:
    if all(_agree(piece, expected) for piece in pieces):
        yield None
    for dim in range(expected.ndim):
        if all(piece.ndim == expected.ndim and _section(piece, dim) == _section(expected, dim) for piece in pieces):
            joined = np.concatenate(pieces, axis=dim)
            if joined.shape == expected.shape and _agree(joined, expected):
                yield dim
    if all(piece.shape == expected.shape for piece in pieces) and expected.dtype != np.bool_:
        for reducer in Reducer:
            total = pieces[0]
            with np.errstate(all="ignore"):
                for piece in pieces[1:]:
                    total = JOIN[reducer](total, piece)
            if _agree(total, expected):
                yield reducer


def _section(array: np.ndarray, dim: int) -> tuple[int, ...]:
    return array.shape[:dim] + array.shape[dim + 1 :]


def _agree(result: np.ndarray, expected: np.ndarray) -> bool:
    return result.shape == expected.shape and normwise_error(result, expected) <= tolerance(expected.dtype)


def _explains(op: BoundOp, variable: Variable, choice: Mapping[int, int], labels: Mapping[int, set[Cut]]) -> bool:
    """True if a cut along the variable joins every output in one of the ways found."""
    number = op.variable_number(variable.name)
    does_something = False
    for position, cuts in labels.items():
        numbers = op.analysis.outputs[position] or ()
        cut: Cut = numbers.index(number) if number in numbers else variable.reducer
        if cut not in cuts:
            return False
        does_something = does_something or cut is not None
    if variable.reducer is None:
        return does_something
    alone = Interval.variable(variable.name)
    read = {(read.slot, dim) for read in op.analysis.reads for dim, span in enumerate(read.dims) if span == alone}
    return does_something and any(place in read for place in choice.items())


def _inputs_text(choice: Mapping[int, int]) -> str:
    return ", ".join(f"in{slot} S({dim})" for slot, dim in sorted(choice.items()))


def _outputs_text(labels: Mapping[int, set[Cut]]) -> str:
    texts = []
    for position, cuts in sorted(labels.items()):
        ways = [
            f"concatenated along {cut}" if isinstance(cut, int) else "whole" if cut is None else cut.value
            for cut in sorted(cuts, key=str)
        ]
        texts.append(f"out{position} {' or '.join(ways)}")
    return ", ".join(texts)
