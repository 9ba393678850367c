"""Gather and GatherND of constant places as Slices, where the places are few affine pieces.

So exporters write nearest upsampling (``i // 2``), windows (``2 i + j``: PyTorch's ``unfold``), shifts, swaps, every
second row. Of a lookup the whole dim is brought; of a Slice, a worker needs what its part reads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from planner.graph.core.attributes import integer
from planner.graph.core.emitter import Emitter, free_prefix
from planner.graph.core.model import Op
from planner.graph.core.wellformed import namer
from planner.graph.folding.known import KnownGraph
from planner.graph.folding.known_forms import KnownForm

_MOST_PIECES: Final = 8
_MOST_WINDOW: Final = 16
"""Places of a window, each of which is a Slice of its own."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Places ``start + step * i`` for i below ``length``, each of them ``repeats`` times."""

    start: int
    step: int
    length: int
    repeats: int = 1


def pieces_of(places: np.ndarray) -> tuple[Piece, ...] | None:
    """The pieces of a list of places, in order; None if they are more than are worth it."""
    changes = np.flatnonzero(np.diff(places))
    repeats = int(changes[0]) + 1 if changes.size else places.size
    if repeats > 1 and places.size % repeats == 0 and (places.reshape(-1, repeats) == places[::repeats, None]).all():
        inner = pieces_of(places[::repeats])
        if inner is not None and len(inner) == 1:
            return (replace(inner[0], repeats=repeats),)
    pieces: list[Piece] = []
    first = 0
    while first < places.size:
        if len(pieces) == _MOST_PIECES:
            return None
        steps = np.diff(places[first:])
        step = int(steps[0]) if steps.size else 0
        length = 1 if not step else 1 + int(np.append(np.flatnonzero(steps != step), steps.size)[0])
        if length == 2 < places.size - first and abs(step) > 1:
            length = 1  # the two belong to different runs
        pieces.append(Piece(int(places[first]), step if length > 1 else 1, length))
        first += length
    return tuple(pieces)


def _places(op: Op, graph: KnownGraph) -> np.ndarray | None:
    """The places that an op looks up, if they are known; None of a table that is known or stated."""
    is_table = op.inputs[0] in graph.initializers or graph.value_of(op.inputs[0]) is not None
    return None if is_table else graph.value_of(op.inputs[1])


def places_for(op: Op, graph: KnownGraph) -> KnownForm | None:
    """A Gather of known places in Slices; None where it is a lookup."""
    indices, x, tensors, opset = _places(op, graph), op.inputs[0], graph.tensors, graph.opset
    shape = tensors[x].shape
    axis = integer(op, "axis", 0)
    if indices is None or not -len(shape) <= axis < len(shape) or indices.size < 2:
        return None
    axis %= len(shape)
    places = np.where(indices < 0, indices + shape[axis], indices)
    if places.min() < 0 or places.max() >= shape[axis]:
        return None
    flat = pieces_of(places.ravel())
    windows = _windows(places) if places.ndim == 2 and (flat is None or len(flat) > 1) else None
    if windows is None and flat is None:
        return None
    emitter = Emitter(free_prefix(f"{op.name}/", sorted(tensors)), tensors, {}, opset)
    if windows is not None:
        beside = axis + windows[0]  # a window's places are side by side behind the axis, or before it
        elements = emitter.concat(
            [emitter.unsqueeze(_slab(emitter, x, axis, piece), [beside]) for piece in windows[1]], beside
        )
    else:
        elements = emitter.concat([_slab(emitter, x, axis, piece) for piece in flat or ()], axis)
        elements = emitter.reshape(elements, (*shape[:axis], *places.shape, *shape[axis + 1 :]))
    if elements == x:
        elements = emitter.one("Identity", (x,), shape, emitter.dtype(x))
    *before, last = emitter.standing_for(op, (elements,))
    return emitter.constants, (*before, replace(last, name=op.name))


def _slab(emitter: Emitter, x: str, axis: int, piece: Piece) -> str:
    """The elements of a piece along the axis."""
    shape, slab = emitter.shape(x), x
    before, after = shape[:axis], shape[axis + 1 :]
    if (piece.start, piece.step, piece.length) != (0, 1, shape[axis]):
        end = piece.start + piece.step * (piece.length - 1) + (1 if piece.step > 0 else -1)
        bounds = {"start": piece.start, "end": end if end >= 0 else -shape[axis] - 1, "axis": axis, "step": piece.step}
        inputs = (x, *(emitter.ints([value], part) for part, value in bounds.items()))
        slab = emitter.one("Slice", inputs, (*before, piece.length, *after), emitter.dtype(x), hint="piece")
    if piece.repeats > 1:
        slab = emitter.expand(emitter.unsqueeze(slab, [axis + 1]), (*before, piece.length, piece.repeats, *after))
        slab = emitter.reshape(slab, (*before, piece.length * piece.repeats, *after))
    return slab


def grid_for(op: Op, graph: KnownGraph) -> KnownForm | None:
    """A GatherND whose places along each dim depend on one dim of the result, as a Gather along each; else None."""
    indices = _places(op, graph)
    if indices is None or op.attribute("batch_dims", 0):
        return None
    *dims, depth = indices.shape
    if depth != len(dims) or not 0 < depth <= len(graph.tensors[op.inputs[0]].shape):
        return None
    lists = []
    for dim in range(depth):
        places = np.moveaxis(indices[..., dim], dim, 0)
        line = places.reshape(len(places), -1)
        if line.size == 0 or (line != line[:, :1]).any():
            return None
        lists.append(line[:, 0])
    parts = namer(op.name, graph.tensors)
    names = [parts(f"rows{dim}") for dim in range(depth)]
    results = [*(parts(f"by{dim}") for dim in range(depth - 1)), op.outputs[0]]
    ops, source = [], op.inputs[0]
    for dim, (name, result) in enumerate(zip(names, results, strict=True)):
        label = op.name if result == op.outputs[0] else result
        ops.append(Op(label, "Gather", (source, name), (result,), (("axis", dim),)))
        source = result
    return dict(zip(names, lists, strict=True)), tuple(ops)


def _windows(places: np.ndarray) -> tuple[int, tuple[Piece, ...]] | None:
    """Of rows that differ by a constant each: the dim that counts a window's places, and the piece of each place."""
    if (places != places[:, :1] + places[:1] - places[0, 0]).any():
        return None
    dim = 1 if places.shape[1] <= places.shape[0] else 0
    lines = [pieces_of(line) for line in (places.T if dim else places)]
    if len(lines) > _MOST_WINDOW or any(line is None or len(line) != 1 for line in lines):
        return None
    return dim, tuple(line[0] for line in lines if line)
