"""Runs of equal blocks: the layers of a deep network, each like the one before, forward and backward.

Two ops that are alike and lie as far apart as the next two like them are taken for the same op of two neighbouring
blocks. What they read and what reads them must be so as well, and from there the map from each block to the next is
found, op by op, as far as it goes. A chain is an op and its images, one for each block. Tofu coalesces the time steps
of a recurrent network (section 5.1), which share their weights; blocks here have weights of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from planner.graph.compare.repeats import numbered
from planner.graph.core.model import Graph
from planner.search.effort import BLOCKS_OF_A_RUN, OPS_OF_A_BLOCK, RUN_SEEDS
from planner.tdl.bind import BoundOp

_PLAIN = (bool, int, float, str, bytes, tuple)
"""Attributes that are what they look like."""


OfPlace: TypeAlias = Callable[[BoundOp], Hashable]
"""The key that tells apart ops that are equal but for their places."""


def nothing(op: BoundOp) -> Hashable:
    """The same key for every op, so that no place tells ops apart."""
    return None


@dataclass(frozen=True, slots=True)
class Run:
    """Equal blocks, one after the other. Ops and inputs are numbers (``Wiring``); the blocks have numbers, too."""

    chains: tuple[tuple[int, ...], ...]
    """The same op of one block after the other."""
    starts: tuple[int, ...]
    """The block of the first op of each chain."""
    first: int
    """From this block on every chain has an op in each block, and reads the same from blocks as far away."""
    last: int
    """The last one of these."""
    reach: int
    """Ops read from blocks that are at most so far away; at least 1."""

    @property
    def blocks(self) -> int:
        """The number of equal blocks."""
        return self.last - self.first + 1


class _Seed(NamedTuple):
    """A pair of ops that may be the same of two neighbouring blocks. What comes before them is not told by order."""

    steps: int
    """The number of pairs of alike ops in a row that lie equally far apart, negated so that the most come first."""
    depth: int
    """The distance between the two ops of such a pair, in levels."""
    level: int
    form: tuple[tuple[int, ...], str]
    op: int
    next_op: int


class Wiring:
    """The maker and the readers of each tensor, by number.

    The graph's inputs are nodes as well, numbered after the ops. An input counts as made by its own node, and the node
    of a state as a reader of the next state that replaces it after the step.

    Attributes:
        described: the ops.
        ops: how many nodes are ops.
        inputs: of each node, the tensors that it reads.
        outputs: of each node, those that it makes.
        kinds: of each node; equal for those that are alike.
        levels: of each op, the number of ops on the longest path to it.
        producer: by tensor the node that makes it; without constants.
        readers: by tensor the nodes that read it, and in which place.
    """

    def __init__(self, graph: Graph, ops: Sequence[BoundOp], of_place: OfPlace = nothing) -> None:
        self.graph = graph
        self.described = ops
        self.ops = len(ops)
        self.inputs = [op.op.inputs for op in ops]
        self.outputs = [op.op.outputs for op in ops]
        self.producer: dict[str, int] = {}
        self.readers: dict[str, list[tuple[int, int]]] = {}
        self.levels: list[int] = []
        kinds: list[Hashable] = [(id(op.content), of_place(op)) for op in ops]
        constants, level_of, readers = graph.constants, dict[str, int](), self.readers
        for number, (inputs, outputs) in enumerate(zip(self.inputs, self.outputs, strict=True)):
            level = 0
            for slot, name in enumerate(inputs):
                if name and name not in constants:
                    readers.setdefault(name, []).append((number, slot))
                    level = max(level, level_of.get(name, 0))
            self.levels.append(level)
            for name in outputs:
                self.producer[name] = number
                level_of[name] = level + 1
        # Absent outputs all have the empty name.
        self.producer.pop("", None)
        following = {pair.current: pair.following for pair in graph.state}
        for number, name in enumerate(graph.inputs, start=len(ops)):
            tensor = graph.tensors[name]
            kinds.append((tensor.shape, tensor.dtype, graph.roles[name]))
            self.outputs.append((name,))
            self.producer[name] = number
            self.inputs.append((following[name],) if name in following else ())
            if name in following:
                readers.setdefault(following[name], []).append((number, 0))
        self.kinds = numbered(kinds)


def find_runs(wiring: Wiring, *, is_in_order: bool = False) -> list[Run] | None:
    """Finds the runs of a graph.

    Which ops are in one depends neither on names nor on the order of ops.

    Args:
        wiring: of the training graph.
        is_in_order: its ops are in an order of their places (``planner.graph.compare.structure``): of pairs of ops that
            nothing else tells apart the first may be tried.

    Returns:
        The runs, none of whose ops are another's; None where only an order of places could tell which they are.
    """
    seeds = _seeds(wiring, is_in_order=is_in_order)
    if seeds is None:
        return None
    runs: list[Run] = []
    run_ops: set[int] = set()
    for op, next_op in seeds:
        if op in run_ops or next_op in run_ops:
            continue
        run = _run(wiring, op, next_op)
        if run is not None and run_ops.isdisjoint(number for chain in run.chains for number in chain):
            runs.append(run)
            run_ops.update(number for chain in run.chains for number in chain)
    return runs


def _seeds(wiring: Wiring, *, is_in_order: bool) -> list[tuple[int, int]] | None:
    """Pairs of ops that may be the same of two neighbouring blocks, those of the longest runs first.

    None if there are two of which nothing but their order says which is to be tried.
    """
    members: dict[int, list[int]] = {}
    for number, kind in enumerate(wiring.kinds[: wiring.ops]):
        members.setdefault(kind, []).append(number)
    levels = wiring.levels
    seeds: list[_Seed] = []
    for alike in members.values():
        if len(alike) < BLOCKS_OF_A_RUN:
            continue
        alike.sort(key=levels.__getitem__)
        start, longest = 0, (0, 0, 0)
        for depth, equal in itertools.groupby(levels[later] - levels[op] for op, later in itertools.pairwise(alike)):
            count = len(list(equal))
            if depth and count > longest[0]:
                longest = (count, start, depth)
            start += count
        count, start, depth = longest
        if count + 1 >= BLOCKS_OF_A_RUN:
            middle = start + count // 2  # within equal steps, so that no other op like it is at its level
            op, next_op = alike[middle : middle + 2]
            seeds.append(_Seed(-count, depth, levels[op], _form(wiring.described[op]), op, next_op))
    seeds.sort(key=lambda seed: seed[:4])
    first_of: list[_Seed] = []
    for _, equal_steps in itertools.islice(itertools.groupby(seeds, key=lambda seed: seed[:2]), RUN_SEEDS):
        first, *rivals = equal_steps
        if rivals and rivals[0][:4] == first[:4] and not is_in_order:
            return None
        first_of.append(first)
    return [(seed.op, seed.next_op) for seed in first_of]


def _form(op: BoundOp) -> tuple[tuple[int, ...], str]:
    """The key that tells apart ops that are not alike, nearly all of them, and says which comes first.

    Of an attribute that is a graph, whose names say nothing, no more is looked at than that it is one.
    """
    raw, node = op.op, op.node
    shapes = zip(raw.outputs, node.output_shapes, strict=True)
    first = next(shape for name, shape in shapes if name and shape is not None)
    stated = [(name, value if isinstance(value, _PLAIN) else type(value).__name__) for name, value in raw.attributes]
    return first, repr((raw.domain, raw.op_type, stated, node.input_shapes, node.output_shapes, node.input_dtypes))


def _run(wiring: Wiring, op: int, next_op: int) -> Run | None:
    """The run in which these are the same op of two neighbouring blocks; None if there is none to speak of."""
    following = _shifted(wiring, op, next_op)
    if following is None or len(following) < OPS_OF_A_BLOCK * (BLOCKS_OF_A_RUN - 1):
        return None
    images = set(following.values())
    chains: list[tuple[int, ...]] = []
    chain_of: dict[int, tuple[int, int]] = {}
    for start in following:
        if start in images:
            continue
        chain = [start]
        while chain[-1] in following:
            chain.append(following[chain[-1]])
        if len(chain) >= BLOCKS_OF_A_RUN:
            chain_of.update({number: (len(chains), place) for place, number in enumerate(chain)})
            chains.append(tuple(chain))
    # Blocks are counted from the seed's own chain.
    if op not in chain_of:
        return None
    starts = _starts(wiring, chains, chain_of, op)
    numbers = [number for number in range(len(chains)) if number in starts]
    place = {number: position for position, number in enumerate(numbers)}
    inside = {number: (place[chain], starts[chain] + at) for number, (chain, at) in chain_of.items() if chain in place}
    chains = [chains[number] for number in numbers]
    begin = [starts[number] for number in numbers]
    first = max(begin)
    last = min(start + len(chain) for start, chain in zip(begin, chains, strict=True)) - 1
    first, last, reach = _checked(wiring, chains, inside, first, last, inside[op][1])
    run = Run(tuple(chains), tuple(begin), first, last, reach)
    return run if run.blocks >= BLOCKS_OF_A_RUN else None


def _shifted(wiring: Wiring, op: int, next_op: int) -> dict[int, int] | None:
    """The image of each op in the next block; None if the map contradicts itself."""
    kinds, producer, readers = wiring.kinds, wiring.producer, wiring.readers
    following, waiting = {op: next_op}, [(op, next_op)]
    preceding = {next_op: op}
    while waiting:
        member, image = waiting.pop()
        near: list[tuple[int, int]] = []
        for name, next_name in zip(wiring.inputs[member], wiring.inputs[image], strict=False):
            if name != next_name and name in producer and next_name in producer:
                near.append((producer[name], producer[next_name]))
        for name, next_name in zip(wiring.outputs[member], wiring.outputs[image], strict=False):
            mine, theirs = readers.get(name, ()), readers.get(next_name, ())
            if len(mine) == len(theirs) == 1:
                near.append((mine[0][0], theirs[0][0]))
            elif mine and theirs:
                lone_readers = _alone([((kinds[number], slot), number) for number, slot in theirs])
                for how, number in _alone([((kinds[number], slot), number) for number, slot in mine]).items():
                    if how in lone_readers:
                        near.append((number, lone_readers[how]))
        for pair in near:
            first, second = pair
            if first == second or kinds[first] != kinds[second]:
                continue
            # The map is one to one: a second image of an op, or a second origin, contradicts it.
            partner = following.get(first)
            if partner is None and second not in preceding:
                following[first], preceding[second] = second, first
                waiting.append(pair)
            elif partner != second:
                return None
    return following


def _alone(pairs: Sequence[tuple[tuple[int, int], int]]) -> dict[tuple[int, int], int]:
    """The pairs whose key no other pair has."""
    number_of: dict[tuple[int, int], int] = {}
    several: set[tuple[int, int]] = set()
    for key, number in pairs:
        if key in number_of:
            several.add(key)
        number_of[key] = number
    return {key: number for key, number in number_of.items() if key not in several}


def _starts(
    wiring: Wiring, chains: Sequence[tuple[int, ...]], chain_of: dict[int, tuple[int, int]], op: int
) -> dict[int, int]:
    """The block of each joined chain's first op: what is read is in the same block as far as can be.

    Where chains that are equally far away say different blocks, it is the first of these.
    """
    starts = {chain_of[op][0]: -chain_of[op][1]}
    layer = list(starts)
    while layer:
        further: dict[int, int] = {}
        for chain in layer:
            middle = len(chains[chain]) // 2
            number = chains[chain][middle]
            near = [wiring.producer[name] for name in wiring.inputs[number] if name in wiring.producer]
            near += [reader for name in wiring.outputs[number] for reader, _ in wiring.readers.get(name, ())]
            for neighbour in near:
                if neighbour in chain_of and chain_of[neighbour][0] not in starts:
                    place, at = chain_of[neighbour]
                    block = starts[chain] + middle - at
                    further[place] = min(block, further.get(place, block))
        starts.update(further)
        layer = list(further)
    return starts


def _checked(
    wiring: Wiring,
    chains: Sequence[tuple[int, ...]],
    inside: dict[int, tuple[int, int]],
    first: int,
    last: int,
    block: int,
) -> tuple[int, int, int]:
    """The blocks around one that are equal: what they read is so, and nothing else reads from them.

    Returns:
        The first one, the last one, and how far away those are that they read from.
    """
    producer = wiring.producer
    results = set(wiring.graph.outputs).difference(pair.following for pair in wiring.graph.state)
    apart: dict[int, int] = {}
    wrong: set[int] = set()
    odd: set[int] = set()
    for chain in chains:
        for member, image in itertools.pairwise(chain):
            at = inside[member][1]
            for name, next_name in zip(wiring.inputs[member], wiring.inputs[image], strict=False):
                if name not in producer and next_name not in producer:
                    continue  # constants
                mine, theirs = inside.get(producer.get(name, -1)), inside.get(producer.get(next_name, -1))
                if mine is not None and theirs == (mine[0], mine[1] + 1):
                    apart[at] = max(apart.get(at, 0), abs(at - mine[1]))
                elif name != next_name or mine is not None:  # neither the next block's nor shared by all
                    wrong.add(at)
                    odd.update((member, image))
    alike = inside.keys() - odd
    for chain in chains:
        for member in chain:
            names = wiring.outputs[member]
            readers = {reader for name in names for reader, _ in wiring.readers.get(name, ())}
            if not readers <= alike or not results.isdisjoint(names):
                wrong.add(inside[member][1])
    # A block of which this is not so is none of them; nor is the one after it, since a pair is noted at the first.
    first = max([first, *(at + 1 for at in wrong if at < block)])
    last = min([last, *(at for at in wrong if at >= block)])
    return first, last, max([1, *(reach for at, reach in apart.items() if first <= at <= last)])
