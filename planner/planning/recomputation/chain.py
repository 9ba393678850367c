"""Sets of activations that are computed again: a chain of them, each with more work than the one before, and less kept.

The forward pass is divided into blocks where little lies between what was and what comes: a residual stream, a pooled
image. What lies there is kept, and blocks are as long as makes that, and the largest block, the least together. Within
a block, what is kept and what is computed again is a cut: a tensor that the backward pass needs, or a copy, is kept,
which costs its bytes, or the op that makes it is copied, which costs its work, and then what that op reads is needed.
At each price of work the best choice is a least cut of that network, and as the price falls, more and more is computed
again, all of it before among it (Gallo, Grigoriadis and Tarjan, "A fast parametric maximum flow algorithm", 1989). What
saves most for its work comes first, whichever block it is of: cheap element-wise ops, norms and softmax, at last whole
blocks; equal blocks come one after the other, those first whose activations are kept longest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain, combinations, pairwise
from typing import NamedTuple, TypeAlias

from planner.graph.core.dependence import computed_from
from planner.graph.core.model import Graph, Op, Role
from planner.graph.rewriting.recomputation import Activations
from planner.planning.recomputation.min_cut import Arc, least_cut

_MOST_SETS = 12
"""Of a block. Doubled, finer steps from one to the next."""
_FEW_HELD = 4
"""Of no more activations that the backward pass reads every set is offered. Doubled, 256 sets."""
_FEW_SETS = 8
"""In a chain of no more, what a step adds is added one by one. Doubled, finer steps in small graphs."""
_LENGTHS = 24
"""How many lengths of blocks are tried, each half as much again as the one before. Doubled, longer blocks."""
_MOST_BORDERS = 400
"""Places between which blocks may begin and end, at most: those at which least lies. Doubled, four times the work."""


class _Block(NamedTuple):
    """Ops of the forward pass that stand one after the other, and what is kept at their end."""

    ops: tuple[Op, ...]
    kept_names: frozenset[str]


class _Network(NamedTuple):
    """The tensors of a block that may be kept, and the work to make them; tensors and ops are numbers.

    Equal blocks have equal networks.
    """

    sizes: tuple[int, ...]
    """Bytes of each tensor that the block makes."""
    made_by: tuple[int, ...]
    """By tensor, the op."""
    needed: tuple[bool, ...]
    """By tensor, whether it is to be there, kept or made again, whatever else is."""
    is_kept: tuple[bool, ...]
    """By tensor, whether it must be kept."""
    reads: tuple[tuple[int, ...], ...]
    """By op, tensors of the block."""
    work: tuple[int, ...]
    """By op, what it costs to do it again."""


class _Choice(NamedTuple):
    """The tensors of a block that are made again, the rest that is kept, and their price."""

    again: frozenset[int]
    kept_bytes: int
    work: int


_Frontiers: TypeAlias = dict[_Network, tuple[_Choice, ...]]


def chain_of_sets(graph: Graph, work: Mapping[str, int]) -> tuple[frozenset[str], ...]:
    """The chain; its first set is empty.

    Args:
        graph: a training step.
        work: by op, what it costs to do it again.

    Raises:
        UsageError: the graph has no backward pass.
    """
    activations = Activations(graph)
    if len(activations.held) <= _FEW_HELD:
        return _every_set(activations, work)
    steps = []
    frontiers: _Frontiers = {}
    for number, block in enumerate(_blocks(graph, activations)):
        names = [name for op in block.ops for name in op.outputs if name in activations.all]
        network = _network(graph, block, names, frozenset(activations.held), work)
        if network not in frontiers:
            frontiers[network] = tuple(_frontier(network))
        for before, after in pairwise(frontiers[network]):
            price = Fraction(after.work - before.work, before.kept_bytes - after.kept_bytes)
            steps.append((price, number, frozenset(names[tensor] for tensor in after.again)))
    chosen: dict[int, frozenset[str]] = {}
    sets = [frozenset[str]()]
    for _, number, tensors in sorted(steps, key=lambda step: step[:2]):
        chosen[number] = tensors
        sets.append(frozenset().union(*chosen.values()))
    return tuple(sets) if len(sets) > _FEW_SETS else tuple(_refined(sets, list(activations.all)))


def _every_set(activations: Activations, work: Mapping[str, int]) -> tuple[frozenset[str], ...]:
    """Every set of what the backward pass reads, with what lies on the way to it alone, by its work."""
    held = activations.held
    chosen = chain.from_iterable(combinations(held, count) for count in range(len(held) + 1))
    sets = dict.fromkeys(frozenset(activations.closed(tensors)) for tensors in chosen)
    return tuple(sorted(sets, key=lambda again: sum(work[op] for op in {activations.all[name].name for name in again})))


def _refined(sets: Sequence[frozenset[str]], order: Sequence[str]) -> Iterator[frozenset[str]]:
    """A short chain with further sets: what one step adds comes one by one, what is made first before all else."""
    yield sets[0]
    for before, after in pairwise(sets):
        added = [name for name in order if name in after and name not in before]
        yield from (before.union(added[:count]) for count in range(1, len(added)))
        yield after


def _blocks(graph: Graph, activations: Activations) -> list[_Block]:
    """The forward pass in blocks of the length with which least is kept and made again at once."""
    makers, held = activations.all, frozenset(activations.held)
    of_data = computed_from(graph, [name for name in graph.inputs if graph.roles[name] is Role.DATA])
    forward = [op for op in graph.ops if any(name in makers for name in op.outputs)]
    last: dict[str, int] = {}
    for place, op in enumerate(forward):
        last.update({name: place for name in op.inputs if name in makers and name in of_data})
    lying: list[frozenset[str]] = []
    """After each op, what was made and is still read."""
    live: set[str] = set()
    until = [0]
    """Bytes that are held for the backward pass of all that is made before each op."""
    for place, op in enumerate(forward):
        live.update([name for name in op.outputs if last.get(name, -1) > place])
        live.difference_update([name for name in op.inputs if last.get(name) == place])
        lying.append(frozenset(live))
        until.append(until[-1] + sum(graph.tensors[name].size_bytes for name in op.outputs if name in held))
    if not forward:
        return []
    size = {name: graph.tensors[name].size_bytes for name in makers}
    borders = [-1, *_low([sum(size[name] for name in names) for names in lying]), len(forward) - 1]
    lying.append(frozenset())  # before the first op: the place -1
    length = max(until[end + 1] - until[begin + 1] for begin, end in pairwise(borders))
    best: tuple[int, list[int]] | None = None
    for _ in range(_LENGTHS):
        kept_bytes, ends = _divided(borders, until, lying, size, length)
        if best is None or kept_bytes + length < best[0]:
            best = (kept_bytes + length, ends)
        if len(ends) == 1:
            break
        length += max(1, length // 2)
    assert best is not None, "a length was tried"
    begins = [0, *(end + 1 for end in best[1])]
    return [_Block(tuple(forward[begin : end + 1]), lying[end]) for begin, end in zip(begins, best[1], strict=False)]


def _low(lies: Sequence[int]) -> list[int]:
    """Places after which less lies than before and behind them, the last of equal ones; not the last of all."""
    places, place = [], 0
    while place < len(lies):
        stop = place
        while stop + 1 < len(lies) and lies[stop + 1] == lies[place]:
            stop += 1
        is_lower = place == 0 or lies[place - 1] > lies[place]
        if is_lower and stop + 1 < len(lies) and lies[stop + 1] > lies[place]:
            places.append(stop)
        place = stop + 1
    return sorted(sorted(places, key=lambda index: (lies[index], index))[:_MOST_BORDERS])


def _divided(
    borders: Sequence[int], until: Sequence[int], lying: Sequence[frozenset[str]], size: Mapping[str, int], length: int
) -> tuple[int, list[int]]:
    """Blocks of at most so many bytes between which least is kept: these bytes, and where the blocks end.

    Args:
        borders: places at which blocks may begin and end, the first and the last one among them.
        until: by place, bytes of all blocks before it.
        lying: by place, what is kept if a block ends there.
        size: of each tensor.
        length: of blocks, in bytes; no two borders next to each other are further apart.
    """
    best = [0] * len(borders)
    following = [0] * len(borders)
    for at in range(len(borders) - 2, -1, -1):
        options = []
        for to in range(at + 1, len(borders)):
            if until[borders[to] + 1] - until[borders[at] + 1] > length:
                break
            added_bytes = sum(size[name] for name in lying[borders[to]] - lying[borders[at]])
            options.append((added_bytes + best[to], -to))
        best[at], to = min(options)
        following[at] = -to
    ends, at = [], 0
    while at < len(borders) - 1:
        at = following[at]
        ends.append(borders[at])
    return best[0], ends


def _network(
    graph: Graph, block: _Block, names: Sequence[str], held: frozenset[str], work: Mapping[str, int]
) -> _Network:
    number = {name: at for at, name in enumerate(names)}
    maker = {name: at for at, op in enumerate(block.ops) for name in op.outputs}
    return _Network(
        tuple(graph.tensors[name].size_bytes for name in names),
        tuple(maker[name] for name in names),
        tuple(name in held or name in block.kept_names for name in names),
        tuple(name in block.kept_names for name in names),
        tuple(tuple(number[name] for name in dict.fromkeys(op.inputs) if name in number) for op in block.ops),
        tuple(work[op.name] for op in block.ops),
    )


def _frontier(network: _Network) -> Iterator[_Choice]:
    """What is best made again, as work becomes cheaper: at first nothing."""
    first, last = _choice(network, frozenset()), _best(network, 1, 1 + sum(network.work))
    yield first
    if last.kept_bytes < first.kept_bytes:
        between = list(_between(network, first, last))
        every = -(-len(between) // _MOST_SETS)
        yield from between[:: every or 1]
        yield last


def _between(network: _Network, first: _Choice, second: _Choice) -> Iterator[_Choice]:
    """The corners of the lower hull between two of them."""
    saved, extra = first.kept_bytes - second.kept_bytes, second.work - first.work
    if saved <= 0 or extra <= 0:
        return
    middle = _best(network, saved, extra)
    if saved * middle.work + extra * middle.kept_bytes < saved * first.work + extra * first.kept_bytes:
        yield from _between(network, first, middle)
        yield middle
        yield from _between(network, middle, second)


def _best(network: _Network, of_work: int, of_byte: int) -> _Choice:
    """The least that is kept and done at these prices; of several, with the least work."""
    source, sink, ops = 0, 1, 2
    tensors = ops + len(network.work)
    arcs: list[Arc] = [(ops + op, sink, of_work * work) for op, work in enumerate(network.work)]
    arcs += [(ops + op, tensors + name, None) for op, names in enumerate(network.reads) for name in names]
    for name, (size, op) in enumerate(zip(network.sizes, network.made_by, strict=True)):
        arcs.append((tensors + name, ops + op, of_byte * size))
        if network.needed[name]:
            arcs.append((source, tensors + name, None))
        if network.is_kept[name]:
            arcs.append((ops + op, sink, None))
    side = least_cut(tensors + len(network.sizes), source, sink, arcs)
    again = (name for name, op in enumerate(network.made_by) if {tensors + name, ops + op} <= side)
    return _choice(network, again)


def _choice(network: _Network, again: Iterable[int]) -> _Choice:
    again = frozenset(again)
    ops = {network.made_by[name] for name in again}
    needed = {name for name, is_needed in enumerate(network.needed) if is_needed}
    kept_names = needed.union(*(network.reads[op] for op in ops)) - again
    return _Choice(again, sum(network.sizes[name] for name in kept_names), sum(network.work[op] for op in ops))
