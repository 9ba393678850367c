"""What is put together and taken apart again along one dim: who reads a piece of it reads what it is a piece of.

Every result of a Concat, a Split or a Slice is a row of pieces of other tensors along a dim; pieces that lie beside
each other in one tensor are one. Where all that an op makes is tensors that are whole, it is these, or their Concat.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from planner.graph.model import Graph, Op
from planner.graph.rewriting.packing import PUTTING, TAKING, WholeError, places

Pieces: TypeAlias = Sequence[tuple[str, int, int]]
"""Tensors, and from where to where along the dim."""
Row: TypeAlias = tuple[int, Pieces]
"""A dim, and the pieces that a tensor is made of along it."""


def in_pieces(graph: Graph, ops: Iterable[Op], kept: Collection[str]) -> Iterator[Op]:
    """The ops of a graph, in execution order, of which some read what their operands are made of.

    Args:
        graph: with the tensors.
        ops: in execution order.
        kept: tensors that are read by who reads them.
    """
    rows: dict[str, Row] = {}
    for op in ops:
        own, better = _rows(graph, op), dict[str, Row]()
        for name, (dim, pieces) in own.items():
            found, below = pieces, _joined(rows, dim, pieces)
            while not (is_better := _is_better(graph, op, dim, pieces, found)) and found != below:
                found, below = below, _joined(rows, dim, below)
            better |= {name: (dim, found)} if is_better else {}
        rows |= {name: better.get(name, row) for name, row in own.items() if name not in kept}
        if not own or len(better) < len(own):
            yield op
            continue
        for number, (name, (dim, found)) in enumerate(better.items()):
            called = f"{op.name}#{number}" if len(own) > 1 else op.name
            made = Op(called, "Identity", tuple(source for source, *_ in found), (name,))
            yield made if len(found) == 1 else replace(made, op_type="Concat", attributes=(("axis", dim),))


def _is_better(graph: Graph, op: Op, dim: int, before: Pieces, now: Pieces) -> bool:
    """Whether an op is better made of these pieces: a Concat of whole tensors is, unless it is no shorter."""
    is_whole = all((start, end) == (0, graph.tensors[name].shape[dim]) for name, start, end in now)
    return bool(now) and is_whole and (op.op_type in TAKING or len(now) < max(2, len(before)))


def _rows(graph: Graph, op: Op) -> dict[str, Row]:
    """By output of an op the pieces of its operands that it is made of; {} of an op that does something else."""
    try:
        found = places(graph, op) if op.op_type in TAKING | PUTTING and not op.domain else None
    except WholeError:
        found = None
    if found is None or len(graph.tensors[op.inputs[0]].shape) != len(graph.tensors[op.outputs[0]].shape):
        return {}
    if op.op_type == "Concat":
        return {op.outputs[0]: (found[0][1], [(name, 0, end - start) for name, _, start, end in found if start < end])}
    if not found and (shape := graph.tensors[op.inputs[0]].shape):
        return {op.outputs[0]: (0, [(op.inputs[0], 0, shape[0])])}
    is_row = op.op_type in TAKING and len(found) == len(op.outputs)
    return {name: (dim, [(op.inputs[0], start, end)]) for name, dim, start, end in found} if is_row else {}


def _joined(rows: Mapping[str, Row], dim: int, pieces: Pieces) -> Pieces:
    """Of what pieces are pieces, and those beside each other as one."""
    found: list[tuple[str, int, int]] = []
    for source, low, high in pieces:
        along, inner = rows.get(source, (-1, []))
        at = 0
        for name, start, end in inner if along == dim else [(source, 0, high)]:
            first, last = start + max(low - at, 0), min(start + high - at, end)
            at += end - start
            if first < last and found and found[-1][::2] == (name, first):
                found[-1] = name, found[-1][1], last
            elif first < last:
                found.append((name, first, last))
    return found
