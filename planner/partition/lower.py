"""Lowering: a plan becomes each worker's local ops and fetches (Tofu, section 6).

Every op becomes a local op on each worker, in the original order, in three passes: what it needs arrives
(``planner.partition.arriving``), it is computed (``computing``), and what it makes returns to where it is owned
(``returning``). What an op needs and does not have is fetched, one fetch for what would be split, copied and
concatenated. Fetches are delayed until somebody needs them; a round of fetches and the run of ops behind it are an
*epoch*, the same on all workers. Fetches that free memory are not delayed that long: partial results are joined, and
next states brought over their states, when the next epoch begins.

Equal ops are divided once, and what is brought to them and from them is found once (``planner.partition.ways``); for
each op of a network only names are put in. Workers that do the same share one object that says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.algebra.tiling import Tiling
from planner.artifacts.plan import Partitioning, Steps
from planner.counted import counted
from planner.graph.core.model import Graph
from planner.graph.step.deliveries import is_delivery
from planner.partition.arriving import Arrivals
from planner.partition.computing import Computation
from planner.partition.draft import Draft
from planner.partition.lowered import Lowered
from planner.partition.returning import Returns
from planner.partition.ways import Regions, Ways
from planner.tdl.bind import BoundOp


class Lowering:
    """Builds the program op by op.

    Args:
        graph: that was planned.
        plan: what was decided.
        apart: see ``partition``.
    """

    def __init__(self, graph: Graph, plan: Partitioning, apart: Sequence[Sequence[float]] = ()) -> None:
        self._graph = graph
        self._plan = plan
        self._draft = Draft(graph, plan)
        ways = Ways(plan.cuts, apart)
        self._arrivals = Arrivals(self._draft, ways)
        self._computation = Computation(self._draft)
        self._returns = Returns(self._draft, ways)

    def run(self, ops: Sequence[BoundOp]) -> Lowered:
        """Lowers every op."""
        draft, replaced = self._draft, _replaced(self._graph)
        for described in counted(ops, "making programs: op", self._plan.workers):
            self._lower(described)
            draft.returning += [name for name in replaced.get(described.op.name, ()) if name in draft.pending]
        draft.place(draft.take_pending(self._graph.outputs))
        return draft.lowered()

    def _lower(self, described: BoundOp) -> None:
        op, strategy = described.op, self._plan.strategies[described.op.name]
        if is_delivery(op) and strategy.tiling == self._plan.tilings[op.outputs[0]]:
            self._arrivals.deliver(op)
        elif strategy.steps is not None:
            self._lower_in_steps(described, strategy.tiling, strategy.steps)
        else:
            self._lower_at_once(described, strategy.tiling)

    def _lower_at_once(self, described: BoundOp, strategy: Tiling) -> None:
        op, arrivals, returns = described.op, self._arrivals, self._returns
        division = self._computation.divided(described, strategy)
        busy = frozenset(division.busy)
        arrivals.begin(op)
        buffers: dict[str, list[str | None]] = {}
        for slot, shared in described.delivered_slots.items():
            if op.inputs[slot] not in self._graph.constants:
                shared_names = buffers.get(f"in{shared}")
                buffers[f"in{slot}"] = shared_names or arrivals.bring(op, slot, division, division.reads[slot])
        # Fetches may begin a new epoch, and what is cut out for an op belongs to the epoch of that op: in this order.
        arrivals.place()
        arrivals.cut()
        homes = {}
        for position, name in enumerate(op.outputs):
            if name:
                regions, made_as = division.made[position], division.made_as[position]
                assert made_as is not None, "an absent output is never made"
                homes[name] = returns.home(name, (division, position), (regions,), made_as, busy, ("@made",))
                buffers[f"out{position}"] = returns.result_buffers(name, homes[name], regions)
        self._computation.work(described, division, buffers)
        for name, home in homes.items():
            returns.expect(name, home, returns.fetches(name, home))

    def _lower_in_steps(self, described: BoundOp, strategy: Tiling, steps: Steps) -> None:
        """Lowers an op chunk by chunk: what circulates is fetched for each chunk, what stays once."""
        op, arrivals, returns, draft = described.op, self._arrivals, self._returns, self._draft
        division = self._computation.divided_in_steps(described, strategy, steps)
        result, busy, is_by_part = op.outputs[0], frozenset(division.busy), not division.is_summed
        arrivals.begin(op)
        inputs: dict[int, tuple[Regions, list[str | None]]] = {}
        for slot, regions in division.stays.items():
            inputs[slot] = regions, arrivals.bring(op, slot, division, regions)
        labels = [f"@part.{part}" for part in range(len(division.parts))]
        home = returns.home(result, division, division.parts, division.made_as, busy, labels, is_by_part=is_by_part)
        names, rounds = returns.names(result, home), returns.fetches(result, home)
        before: dict[tuple[int, int], tuple[str]] = {}
        """By part and worker, the buffer of the sum so far."""
        for number, chunk in enumerate(division.chunks):
            for slot, regions in chunk.reads.items():
                inputs[slot] = regions, arrivals.bring(op, slot, division, regions, f".{number}")
            arrivals.place()
            is_last = is_by_part or number + 1 == len(division.chunks)
            for part, work in chunk.work.items():
                draft.end_work()
                arrivals.cut()
                for worker, todo in work.items():
                    region = division.parts[part][worker]
                    if not region.is_empty:
                        target = names[home.sources[part][worker]]
                        target = target if is_last else draft.derived(f"{target}.{number}")
                        draft.add_buffer(target, result, [(worker, region)])
                        total = (*before.get((part, worker), ()), target)
                        self._computation.step(worker, op.name, f"{op.name}.{number}.{part}", todo, inputs, total)
                        before[part, worker] = (target,)
            # The chunk's contributions are joined beside the fetches for the next chunk: in no epoch of their own.
            if number < home.early:
                arrivals.add(rounds.pop(0))
        returns.expect(result, home, rounds, is_at_once=True)


def _replaced(graph: Graph) -> dict[str, list[str]]:
    """The next states, by op, that nothing keeps from being written over their states once the op is done."""
    last: dict[str, str] = {}
    for op in graph.ops:
        last.update(dict.fromkeys((*op.inputs, *op.outputs), op.name))
    number = {op.name: position for position, op in enumerate(graph.ops)}
    replaced: dict[str, list[str]] = {}
    for pair in graph.state:
        if pair.following in graph.producer and pair.current not in graph.outputs:
            ops = [last[name] for name in (pair.current, pair.following) if name in last]
            replaced.setdefault(max(ops, key=number.__getitem__), []).append(pair.following)
    return replaced
