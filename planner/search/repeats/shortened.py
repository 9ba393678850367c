"""A deep network planned by a short one: of a run of equal blocks a few stand for all.

Where blocks are equal (``planner.search.repeats.runs``), so are good plans for them, but for the first and the last
few. So the inner blocks are taken out, the short network is planned, and the plan of a block at which its neighbours
are planned alike is that of all that were taken out. What the whole plan costs is the sum over its
links and ops, each of which costs what the one costs that stands for it. Where no such block is found, the plan is none
of the whole network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.algebra.tiling import Tiling
from planner.graph.compare.structure import in_order_of_places
from planner.graph.core.model import Graph, StatePair
from planner.search.effort import LEAST_SHORTENED
from planner.search.repeats.runs import OfPlace, Run, Wiring, find_runs, nothing
from planner.search.repeats.unrolled import is_unrolled
from planner.tdl.bind import BoundOp


@dataclass(frozen=True, slots=True)
class _Cut:
    """The blocks removed from a run: blocks ``after + 1`` to ``after + count``."""

    run: Run
    after: int
    count: int

    def full_number(self, block: int) -> int:
        """The number in the whole network of a block of the short one, which has numbers without a gap."""
        return block + (self.count if block > self.after else 0)

    def op(self, chain: int, block: int) -> int:
        """A chain's op in a block of the short network."""
        return self.run.chains[chain][self.full_number(block) - self.run.starts[chain]]

    def stands_for(self, block: int) -> dict[int, list[int]]:
        """The blocks without a plan of their own, by the block of the whole network whose plan they take.

        All are equal blocks: every chain has an op in each.

        Args:
            block: of the short network, that stands for all that were taken out.
        """
        copies: dict[int, list[int]] = {}
        for at in range(self.run.first, self.run.last + 1):
            source = self.full_number(at if at <= block else max(block, at - self.count))
            if source != at:
                copies.setdefault(source, []).append(at)
        return copies

    def copies(self, block: int) -> Iterator[tuple[int, list[int]]]:
        """Ops and inputs that others take their plans from, each with these; the block as of ``stands_for``."""
        stands_for = list(self.stands_for(block).items())
        for chain, start in zip(self.run.chains, self.run.starts, strict=True):
            for source, blocks in stands_for:
                yield chain[source - start], [chain[at - start] for at in blocks]

    def ends(self) -> tuple[int, int]:
        """The first and the last block of the short network that are equal."""
        return self.run.first, self.run.last - self.count


@dataclass(frozen=True, slots=True)
class Whole:
    """A plan of the whole graph, by that of a short one."""

    tilings: Mapping[str, Tiling]
    """The tiling of each tensor."""
    strategies: Mapping[str, Tiling]
    """The strategy of each op."""
    stands: Mapping[str, str]
    """The op of the short graph that stands for each op: its tables cost what the op's cost; an op that is not here
    stands for itself.
    """


class Shortened:
    """A graph without most of its equal blocks.

    Attributes:
        graph: the short one, in an order of its places; what is left has the names that it had.
        ops: its ops with their descriptions, in the same order.
    """

    def __init__(self, graph: Graph, ops: Sequence[BoundOp], wiring: Wiring, runs: Sequence[Run]) -> None:
        self._all_ops = tuple(ops)
        self._wiring = wiring
        self._cuts: list[_Cut] = []
        for run in runs:
            margin = run.reach + 1  # on either side of the gap
            if run.blocks > 2 * margin:
                self._cuts.append(_Cut(run, run.first + margin - 1, run.blocks - 2 * margin))
        removed: set[int] = set()
        inputs: dict[int, tuple[str, ...]] = {}
        for cut in self._cuts:
            for chain, start in zip(cut.run.chains, cut.run.starts, strict=True):
                removed.update(chain[cut.after + 1 - start : cut.after + 1 - start + cut.count])
            inputs.update(self._rewired(cut))
        changed = {number: names for number, names in inputs.items() if names != wiring.inputs[number]}
        self.ops = _executable(
            [
                _reading(op, changed[number]) if number in changed else op
                for number, op in enumerate(ops)
                if number not in removed
            ]
        )
        short_inputs = {
            name: changed.get(number, wiring.inputs[number])
            for number, name in enumerate(graph.inputs, start=len(ops))
            if number not in removed
        }
        self.graph, self.ops = in_order(_restricted(graph, self.ops, short_inputs), self.ops)

    def _rewired(self, cut: _Cut) -> dict[int, tuple[str, ...]]:
        """The inputs of the ops beside the gap, by op, once they read across it."""
        wiring, run = self._wiring, cut.run
        place = {
            number: (chain, run.starts[chain] + at)
            for chain, members in enumerate(run.chains)
            for at, number in enumerate(members)
        }
        rewired = {}
        for chain in range(len(run.chains)):
            for block in range(cut.after + 1 - run.reach, cut.after + 1 + run.reach):
                number = cut.op(chain, block)
                full_block = cut.full_number(block)
                names = list(wiring.inputs[number])
                for slot, name in enumerate(names):
                    origin = place.get(wiring.producer.get(name, -1))
                    if origin is not None:
                        maker = cut.op(origin[0], block - (full_block - origin[1]))
                        position = wiring.outputs[wiring.producer[name]].index(name)
                        names[slot] = wiring.outputs[maker][position]
                rewired[number] = tuple(names)
        return rewired

    def expanded(self, tilings: Mapping[str, Tiling], strategies: Mapping[str, Tiling]) -> Whole | None:
        """The plan of the whole graph; None if no block can stand for those taken out.

        Args:
            tilings: of the short graph, by tensor.
            strategies: the same, by op.
        """
        all_tilings, all_strategies, names = dict(tilings), dict(strategies), dict[str, str]()
        outputs, ops = self._wiring.outputs, self._all_ops
        for cut in self._cuts:
            block = self._steady(cut, tilings, strategies)
            if block is None:
                return None
            for source, members in cut.copies(block):
                planned = [(at, tilings[name]) for at, name in enumerate(outputs[source]) if name in tilings]
                for position, tiling in planned:
                    all_tilings.update([(outputs[number][position], tiling) for number in members])
                if source < len(ops):
                    source_name = ops[source].op.name
                    copy_names = [ops[number].op.name for number in members]
                    all_strategies.update(dict.fromkeys(copy_names, strategies[source_name]))
                    names.update(dict.fromkeys(copy_names, source_name))
        return Whole(all_tilings, all_strategies, names)

    def _steady(self, cut: _Cut, tilings: Mapping[str, Tiling], strategies: Mapping[str, Tiling]) -> int | None:
        """A block around which blocks are planned alike, as far as ops read: the nearest to the gap."""
        (first, last), reach = cut.ends(), cut.run.reach
        plans = {
            block: [self._plan(cut.op(chain, block), tilings, strategies) for chain in range(len(cut.run.chains))]
            for block in range(first, last + 1)
        }
        for block in sorted(range(first + reach, last - reach + 1), key=lambda at: (abs(at - cut.after), at)):
            # What stands for a copy reads from the blocks before and behind, and the copy from copies.
            around = range(block - reach, block + reach + 1)
            if all(plans[near] == plans[block] for near in around):
                return block
        return None

    def _plan(
        self, number: int, tilings: Mapping[str, Tiling], strategies: Mapping[str, Tiling]
    ) -> tuple[Tiling | None, ...]:
        """The tiling of an op and of its results, or of an input."""
        plan = [tilings.get(name) for name in self._wiring.outputs[number]]
        if number < len(self._all_ops):
            plan.append(strategies[self._all_ops[number].op.name])
        return tuple(plan)


def shortened(graph: Graph, ops: Sequence[BoundOp], of_place: OfPlace = nothing) -> Shortened | None:
    """A graph without most of its equal blocks; None if it has few.

    Args:
        graph: the training graph, its ops in any order in which they can be executed.
        ops: its ops with their descriptions.
        of_place: what tells ops apart that are equal but for where they are.
    """
    wiring, runs = runs_of(graph, ops, of_place)
    if not runs:
        return None
    short_graph = Shortened(wiring.graph, wiring.described, wiring, runs)
    return short_graph if len(short_graph.ops) <= (1 - LEAST_SHORTENED) * len(ops) else None


def runs_of(graph: Graph, ops: Sequence[BoundOp], of_place: OfPlace = nothing) -> tuple[Wiring, Sequence[Run]]:
    """The runs of equal blocks of a graph, and its ops as the runs number them; no runs where time steps repeat.

    Args:
        graph: see ``shortened``.
        ops: see ``shortened``.
        of_place: see ``shortened``.
    """
    wiring = Wiring(graph, ops, of_place)
    if is_unrolled(graph, ops):
        return wiring, ()
    runs = find_runs(wiring)
    if runs is None:
        wiring = Wiring(*in_order(graph, ops), of_place)
        runs = find_runs(wiring, is_in_order=True)
    return wiring, runs or ()


def in_order(graph: Graph, ops: Sequence[BoundOp]) -> tuple[Graph, tuple[BoundOp, ...]]:
    """A graph and its ops in an order of places, not of the file or of names, but for ops in the same place."""
    ordered = in_order_of_places(graph)
    by_name = {op.op.name: op for op in ops}
    return ordered, tuple(by_name[op.name] for op in ordered.ops)


def _reading(op: BoundOp, inputs: tuple[str, ...]) -> BoundOp:
    """The op with other inputs of the same shapes."""
    return replace(op, node=replace(op.node, op=replace(op.op, inputs=inputs)))


def _executable(ops: Sequence[BoundOp]) -> tuple[BoundOp, ...]:
    """The ops such that each comes after those that it reads from: where blocks meet it may not."""
    missing = {name for op in ops for name in op.op.outputs if name}
    waiting: dict[str, list[BoundOp]] = {}
    ordered: list[BoundOp] = []
    for op in ops:
        ready = [op]
        while ready:
            next_op = ready.pop()
            if missing.isdisjoint(next_op.op.inputs):
                ordered.append(next_op)
                missing.difference_update(next_op.op.outputs)
                if waiting:
                    ready += [reader for name in next_op.op.outputs for reader in waiting.pop(name, ())]
            else:
                waiting.setdefault(next(name for name in next_op.op.inputs if name in missing), []).append(next_op)
    assert not waiting, "blocks that are taken out leave no cycle"
    return tuple(ordered)


def _restricted(graph: Graph, ops: Sequence[BoundOp], inputs: Mapping[str, tuple[str, ...]]) -> Graph:
    """The graph of some of its ops and inputs, with what they read and make.

    Args:
        graph: the whole one.
        ops: those that are kept.
        inputs: those that are kept, and of a state what replaces it.
    """
    outputs = {name for op in ops for name in op.op.outputs if name}
    read = {name for op in ops for name in op.op.inputs if name}
    names = outputs | read | inputs.keys()
    return replace(
        graph,
        ops=tuple(op.op for op in ops),
        tensors={name: tensor for name, tensor in graph.tensors.items() if name in names},
        inputs=tuple(inputs),
        outputs=tuple(name for name in graph.outputs if name in names),
        constants={name: value for name, value in graph.constants.items() if name in names},
        folded=graph.folded & names,
        initial={name: value for name, value in graph.initial.items() if name in inputs},
        state=tuple(StatePair(name, following[0]) for name, following in inputs.items() if following),
    )
