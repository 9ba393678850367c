"""Tilings in which a tensor is spread within the groups that need it: cuts that nest in another order than their own.

An op that sums products reads a tensor whole along the cuts of variables that do not index it, or joins it along those
of sums (SPAA'21, section 2.2, "initial data distribution"). There the tensor is best spread *within* the part that the
group needs, so that each of its workers has of it what it needs anyway. Mostly a dim that no later cut divides serves
for that, and cuts nest in their own order; where all dims are divided by later cuts, such a cut must lie inside of one
of these. Of a matrix and three cuts, two tilings are of that kind. Element-wise ops are divided as their tensors are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TypeAlias

from planner.algebra.tiling import Placement, Replicate, Shard, Tiling
from planner.cost.contraction import contraction_of
from planner.graph.core.model import Graph
from planner.tdl.bind import BoundOp

_SPREAD: None = None
"""The stand-in for a placement: the tensor is spread there."""
_Pattern: TypeAlias = Sequence[Placement | None]
_INSIDE = 1
"""The nest of a cut that lies inside of later ones."""


@dataclass(frozen=True, slots=True)
class Nests:
    """The variables that may have such tilings, by name."""

    tensors: frozenset[str] = frozenset()
    ops: frozenset[str] = frozenset()


def find_nests(graph: Graph, ops: Sequence[BoundOp]) -> Nests:
    """Tensors of ops that sum products, and what element-wise ops make of them or from them; these ops too.

    Args:
        graph: the training graph.
        ops: its ops with their descriptions.
    """
    elementwise: dict[str, list[BoundOp]] = {}
    nesting: dict[str, None] = {}
    for op in ops:
        tensors = _tensors(graph, op)
        if op.analysis.is_elementwise:
            for name in tensors:
                elementwise.setdefault(name, []).append(op)
        elif contraction_of(op) is not None:
            nesting.update(dict.fromkeys(tensors))
    following = {pair.current: pair.following for pair in graph.state}
    tied = following | {after: before for before, after in following.items()}
    dividing: dict[str, None] = {}
    stack = list(nesting)
    while stack:
        name = stack.pop()
        names = [tied[name]] if name in tied else []
        for op in elementwise.get(name, ()):
            if op.op.name not in dividing and op.extents == graph.tensors[name].shape:
                dividing[op.op.name] = None
                names += [tensor for tensor in _tensors(graph, op) if graph.tensors[tensor].shape == op.extents]
        added = [tensor for tensor in names if tensor not in nesting]
        nesting.update(dict.fromkeys(added))
        stack += added
    return Nests(frozenset(nesting), frozenset(dividing))


def _tensors(graph: Graph, op: BoundOp) -> list[str]:
    return [name for name in (*op.op.inputs, *op.op.outputs) if name and name not in graph.constants]


@lru_cache(maxsize=65536)
def nests_near(tiling: Tiling, shape: tuple[int, ...], fixed: tuple[bool, ...]) -> tuple[Tiling, ...]:
    """The same placements with some of the cuts spread inside of others; the plain tiling of one that is so already.

    Args:
        tiling: of a tensor, or of an op's iteration space.
        shape: of the tensor, or the extents.
        fixed: which dims cannot be cut; () if all can.
    """
    if any(not isinstance(placement, Shard | Replicate) for placement in tiling.placements):
        return ()
    plain = tiling.plain
    options = [(placement, _SPREAD) if isinstance(placement, Shard) else (_SPREAD,) for placement in plain.placements]
    tilings = dict.fromkeys(
        filter(None, (_spread(pattern, tiling.ways, shape, fixed) for pattern in product(*options)))
    )
    if plain != tiling:
        tilings[plain] = None
    tilings.pop(tiling, None)
    return tuple(tilings)


@lru_cache(maxsize=4096)
def all_nests(shape: tuple[int, ...], ways: tuple[int, ...], fixed: tuple[bool, ...], limit: int) -> tuple[Tiling, ...]:
    """Every tiling of this kind that a strategy of some op asks for; of too many patterns, none.

    Args:
        shape: of the tensor, or the extents of an op.
        ways: of the cuts.
        fixed: see ``nests_near``.
        limit: patterns that are looked at.
    """
    free = [dim for dim in range(len(shape)) if not (fixed and fixed[dim])]
    even = [{dim for dim in free if shape[dim] % count == 0} for count in ways]
    dims = sorted(set().union(*even))
    if min(map(len, even)) >= len(ways) or (len(dims) + 1) ** len(ways) > limit:
        return ()  # a cut lies inside of others only where these divide each dim that it could divide evenly
    options: list[Placement | None] = [*(Shard(dim) for dim in dims), _SPREAD]
    return tuple(dict.fromkeys(_of_patterns(product(options, repeat=len(ways)), ways, shape, fixed)))


def _of_patterns(
    patterns: Iterator[tuple[Placement | None, ...]],
    ways: tuple[int, ...],
    shape: tuple[int, ...],
    fixed: tuple[bool, ...],
) -> Iterator[Tiling]:
    for pattern in patterns:
        spread = _spread(pattern, ways, shape, fixed)
        if spread is not None:
            yield spread


def _spread(pattern: _Pattern, ways: tuple[int, ...], shape: tuple[int, ...], fixed: tuple[bool, ...]) -> Tiling | None:
    """The tiling that spreads where the pattern says so; None if that is one of cuts that nest in their own order, or
    if parts would not be even.
    """
    sizes = list(shape)
    last = [-1] * len(shape)
    for cut, placement in enumerate(pattern):
        if placement is not None:
            assert isinstance(placement, Shard), "a pattern divides or spreads"
            if placement.block > 1 or placement.shares or sizes[placement.dim] % ways[cut]:
                return None
            sizes[placement.dim] //= ways[cut]
            last[placement.dim] = cut
    placements: list[Placement] = []
    for cut, placement in enumerate(pattern):
        if placement is not None:
            placements.append(placement)
            continue
        even = [dim for dim, size in enumerate(sizes) if size % ways[cut] == 0 and not (fixed and fixed[dim])]
        if not even:
            return None
        after = [dim for dim in even if last[dim] < cut]
        dim = max(after or even, key=sizes.__getitem__)
        placements.append(Shard(dim, 1, 0 if after else _INSIDE))
        sizes[dim] //= ways[cut]
    tiling = Tiling(tuple(placements), ways).settled
    return tiling if tiling.is_nested else None
