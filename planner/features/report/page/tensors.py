"""The tensors of a plan, packed for a page: it looks names up, and draws tiles, without asking anybody.

Names of a deep network differ in numbers: ``group3.block7.in.conv.weight``. A *form* is a name without its numbers;
of each form the page has the numbers of all its tensors, which many forms share, and for each tensor a *record*: shape,
type, role, tiling, bytes. Neighbours mostly have the same record, so records are counted, not repeated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from planner.algebra.tiling import Tiling
from planner.artifacts.plan import Plan
from planner.graph.core.model import Graph, Shape
from planner.printable import printable

_NUMBER = re.compile(r"(0|[1-9][0-9]{0,8})")
"""Not 007, which is no number that a page could write again."""
_MOST_TENSORS = 20_000
_MOST_WORKERS = 64
"""Of plans for more, a page has no tiles worker by worker."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Tensors as a page has them."""

    content: dict[str, Any]
    """Plain values; see ``script.js``."""
    number_of: Mapping[str, int]
    """By tensor, its number on the page."""
    left_out: int
    """Tensors that are not there, those that move least."""


def packed(
    graph: Graph, plan: Plan, wanted: Sequence[str], readers: Mapping[str, tuple[str, tuple[str, ...]]]
) -> Packed:
    """The tensors of a plan.

    Args:
        graph: that the plan is of.
        plan: the plan.
        wanted: tensors that must be there.
        readers: by tensor the op that makes it and those that read it; of tensors that are to tell it.
    """
    names = [name for name in graph.tensors if name in plan.tilings]
    if len(names) > _MOST_TENSORS:
        first = dict.fromkeys([*wanted, *sorted(names, key=lambda name: (-plan.tensor_bytes[name], name))])
        chosen = {*list(first)[:_MOST_TENSORS], *wanted}
        left_out, names = len(names) - len(chosen), [name for name in names if name in chosen]
    else:
        left_out = 0
    # Names of equal layers differ in numbers alone: a form stands once, with the numbers and with runs of equal
    # records, so that a deep network makes a page that is hardly larger.
    forms: dict[tuple[str, ...], list[str]] = {}
    numbers_of: dict[str, tuple[int, ...]] = {}
    for name in names:
        parts = _NUMBER.split(name)
        forms.setdefault(tuple(parts[::2]), []).append(name)
        numbers_of[name] = tuple(map(int, parts[1::2]))
    records, tilings, shapes, tiles = _Table(), _Table(), _Table(), _Table()
    numbers = _Table()
    rows: list[list[Any]] = []
    number_of: dict[str, int] = {}
    roles = graph.roles
    for form, members in forms.items():
        record_numbers = []
        for name in members:
            number_of[name] = len(number_of)
            tensor, tiling = graph.tensors[name], plan.tilings[name]
            shape = shapes.number(tensor.shape)
            drawn = tiles.number((tiling, tensor.shape))
            record_numbers.append(
                records.number(
                    (
                        shape,
                        tensor.dtype.value,
                        roles[name].value,
                        tilings.number(str(tiling)),
                        plan.tensor_bytes[name],
                        drawn,
                        tensor.dtype.item_bytes,
                    )
                )
            )
        flat = tuple(number for name in members for number in numbers_of[name])
        counted = [part for record, group in groupby(record_numbers) for part in (record, len(list(group)))]
        rows.append([[printable(part) for part in form], len(members), numbers.number(flat), counted])
    readers_of = {
        number_of[name]: [printable(maker), [printable(op) for op in read]]
        for name, (maker, read) in readers.items()
        if name in number_of
    }
    content = {
        "workers": plan.workers,
        "forms": rows,
        "numbers": numbers.values(),
        "records": records.values(),
        "tilings": tilings.values(),
        "shapes": shapes.values(),
        "tiles": [_tiles(tiling, shape) for tiling, shape in tiles.values()] if plan.workers <= _MOST_WORKERS else [],
        "told": readers_of,
    }
    return Packed(content, number_of, left_out)


class _Table:
    """Different values, numbered."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def values(self) -> list[Any]:
        return list(self._numbers)


def _tiles(tiling: Tiling, shape: Shape) -> list[list[Any]]:
    """The pieces of each dim that is divided, and the piece that each worker has."""
    boxes = tiling.boxes(shape)
    divisions = []
    for dim in range(boxes.lo.shape[1]):
        of_worker = list(zip(boxes.lo[:, dim].tolist(), boxes.hi[:, dim].tolist(), strict=True))
        pieces = sorted(set(of_worker))
        if len(pieces) > 1 or pieces[0] != (0, shape[dim] if shape else 1):
            bounds = [bound for piece in pieces for bound in piece]
            divisions.append([dim, bounds, [pieces.index(piece) for piece in of_worker]])
    return divisions
