"""Concats and Splits along one dim that undo each other: who reads a piece of it reads what it is a piece of.

Every result of a Concat, a Split or a Slice is a row of pieces of other tensors along a dim; pieces that lie beside
each other in one tensor are one. Where there are tensors of all pieces that an op makes, it is these, or their Concat.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from planner.graph.core.model import Graph, Op, of_types
from planner.graph.rewriting.dims import WholeError, parts_of, whole_of

Pieces: TypeAlias = Sequence[tuple[str, int, int]]
"""Tensors, and from where to where along the dim."""
Row: TypeAlias = tuple[int, Pieces]
"""A dim, and the pieces that a tensor is made of along it."""


def in_pieces(graph: Graph, ops: Iterable[Op], anchors: Collection[str]) -> Iterator[Op]:
    """The ops of a graph, in execution order, of which some read what their operands are made of.

    Args:
        graph: with the tensors.
        ops: in execution order.
        anchors: tensors that are read by who reads them.
    """
    rows: dict[str, Row] = {}
    holder_of: dict[tuple[int, str, int, int], str] = {}
    """By dim and piece the tensor that holds it."""
    for op in ops:
        op_rows, better = _rows(graph, op), list[Op]()
        for name, (dim, pieces) in op_rows.items():
            runs = _joined(rows, dim, pieces)
            holder_of.update(((dim, source, 0, graph.tensors[source].shape[dim]), source) for source, *_ in pieces)
            names = tuple(holder_of.get((dim, *piece), "") for piece in runs)
            if runs and all(names) and (whole_of(op) == op.inputs[0] or len(runs) < max(2, len(pieces))):
                called = f"{op.name}#{len(better)}" if len(op_rows) > 1 else op.name
                concat = Op(called, "Concat", names, (name,), (("axis", dim),))
                better.append(concat if len(names) > 1 else replace(concat, op_type="Identity", attributes=()))
            if name not in anchors:
                rows[name] = dim, runs
                if len(runs) == 1:
                    holder_of.setdefault((dim, *runs[0]), name)
        yield from better if op_rows and len(better) == len(op_rows) else [op]


def _rows(graph: Graph, op: Op) -> dict[str, Row]:
    """By output of an op the pieces of its operands that it is made of; {} of an op that does something else."""
    whole = whole_of(op)
    is_copy = of_types(op, ("Identity",)) is not None
    if not whole and not is_copy:
        return {}
    try:
        parts = [] if is_copy else parts_of(graph, op)
    except WholeError:
        return {}
    if len(graph.tensors[op.inputs[0]].shape) != len(graph.tensors[op.outputs[0]].shape):
        return {}
    if tuple(name for name, *_ in parts) == op.inputs:  # a Pad is more than its parts
        return {whole: (parts[0][1], [(name, 0, end - start) for name, _, start, end in parts if start < end])}
    if not parts and (shape := graph.tensors[op.inputs[0]].shape):
        return {op.outputs[0]: (0, [(op.inputs[0], 0, shape[0])])}
    is_row = whole == op.inputs[0] and len(parts) == len(op.outputs)
    return {name: (dim, [(op.inputs[0], start, end)]) for name, dim, start, end in parts} if is_row else {}


def _joined(rows: Mapping[str, Row], dim: int, pieces: Pieces) -> Pieces:
    """Of what pieces are pieces, and those beside each other as one."""
    runs: list[tuple[str, int, int]] = []
    for source, low, high in pieces:
        along, inner = rows.get(source, (-1, []))
        at = 0
        for name, start, end in inner if along == dim else [(source, 0, high)]:
            first, last = start + max(low - at, 0), min(start + high - at, end)
            at += end - start
            if first < last and runs and runs[-1][::2] == (name, first):
                runs[-1] = name, runs[-1][1], last
            elif first < last:
                runs.append((name, first, last))
    return runs
