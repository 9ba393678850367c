"""Layer-wise parallelism (ICML'18): a configuration for each layer of the forward pass, by the paper's cost model.

A layer is an op of the forward pass. Its configuration divides its output among some of the devices in equal degrees
(section 4): all of them, or fewer, the others being idle. A reduction is divided only where a layer has no parameters:
statistics of a batch and losses, which the paper has inside of its layers, are ops here. What a layer costs is time
(section 5.1, equation 1), on devices and links like those of the paper's testbed:

- t_C, computing: the roofline of the busiest device, three times, for the forward pass and the two halves of the
  backward pass. The paper measures it.
- t_X, transfers: the bytes that a layer's inputs lack where they are needed, and their gradients on the way back,
  received by all devices at the same time.
- t_S, synchronisation: every copy of a parameter sends its gradient to the one that keeps it, and is sent the update.

The best configurations are then fixed: those of the ops, what they make, and the weights where they are needed. The
paper says nothing of how the backward pass and the optimizer are divided between these: here as costs the least
in bytes, cut by cut. The plan's bytes are counted as all others'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.algebra.delivery import made_tiling
from planner.algebra.tiling import UNCUT, Only, Partial, Placement, Replicate, Shard, Tiling
from planner.cost.roofline import Roofline
from planner.cost.seconds.tables import PICOSECONDS
from planner.cost.tables import Candidates
from planner.graph.model import Role, is_used
from planner.machine.topology_file import DeviceGraph, load_topology
from planner.search.effort import PASSES_OF_TRAINING
from planner.search.literature.layer_elimination import Costs, least
from planner.search.model.found import Found
from planner.search.model.problem import Problem, SearchVariable
from planner.search.moves.move import Ground
from planner.search.moves.recursion import search_recursively
from planner.tdl.bind import BoundOp
from planner.tdl.interval import Interval

TESTBED = "icml18-p100"
"""The shipped topology whose devices and links costs are estimated for."""
_IDLE = Only(0)


def search_layers(ground: Ground) -> tuple[tuple[int, ...], Found]:
    """Finds a plan by node and edge elimination over layers: O(E C^3) for E edges and C configurations.

    Args:
        ground: the problem and its cuts.

    Raises:
        InfeasibleError: the layers are too entangled for the two eliminations.
    """
    problem, cuts = ground.problem, ground.cuts
    forward = Forward(problem, cuts)
    ground.progress(f"deciding {len(forward.layers)} layers")
    fixed = forward.fixed(least(forward.layer_costs(), forward.edge_costs()).configurations)

    def restrict(variable: SearchVariable, candidates: Candidates) -> Candidates:
        depth = len(candidates[0].ways)
        tiling = fixed.get(variable.number)
        if tiling is None:
            return candidates
        return (tiling.outermost(depth),)

    return cuts, search_recursively(problem, cuts, ground.narrow(restrict, cuts), ground.progress, ground.stop)


@dataclass(frozen=True, slots=True)
class _Rates:
    """Speeds of the testbed."""

    roofline: Roofline
    bytes_per_s: float
    """That all devices together receive."""


def _rates(workers: int) -> _Rates:
    machine = load_topology(TESTBED)
    assert isinstance(machine, DeviceGraph), "the testbed is given as the paper's device graph"
    fastest = max(link.bandwidth_bytes_per_s for link in machine.links)
    return _Rates(Roofline([machine.devices[0]] * workers), workers * fastest)


class Forward:
    """The layers, their configurations, and what these cost."""

    def __init__(self, problem: Problem, cuts: tuple[int, ...]) -> None:
        self._problem = problem
        self._cuts = cuts
        self._rates = _rates(int(np.prod(cuts, dtype=np.int64)))
        self._ops = _forward_ops(problem)
        self.layers = list(dict.fromkeys(problem.variable_of_op[op.op.name] for op in self._ops))
        self._number = {variable: number for number, variable in enumerate(self.layers)}
        known: dict[int, Candidates] = {}
        self._configurations: list[Candidates] = []
        for variable in self.layers:
            content = problem.content[variable]
            if content not in known:
                known[content] = problem.intern(configurations(problem, problem.variables[variable], cuts))
            self._configurations.append(known[content])

    def layer_costs(self) -> list[Costs]:
        """t_C and t_S of each layer, in picoseconds, by configuration."""
        known: dict[tuple[object, ...], Costs] = {}
        costs: list[Costs] = [np.zeros(len(values), dtype=np.int64) for values in self._configurations]
        for op in self._ops:
            number = self._of(op)
            states = tuple(slot for slot in op.delivered_slots if self._is_state(op.op.inputs[slot]))
            key = (op.content, states, id(self._configurations[number]))
            if key not in known:
                known[key] = _picoseconds(
                    np.array([self._layer_seconds(op, states, tiling) for tiling in self._configurations[number]])
                )
            costs[number] = costs[number] + known[key]
        for (first, second), transfers in self._transfers().items():
            if first == second:
                costs[first] = costs[first] + np.diagonal(transfers)
        return costs

    def edge_costs(self) -> dict[tuple[int, int], Costs]:
        """t_X of each pair of layers, in picoseconds, by configurations."""
        return {pair: costs for pair, costs in self._transfers().items() if pair[0] != pair[1]}

    def _transfers(self) -> dict[tuple[int, int], Costs]:
        problem, graph = self._problem, self._problem.graph
        maker = {name: op for op in self._ops for name in op.op.outputs if name}
        found: dict[tuple[int, int], Costs] = {}
        known: dict[tuple[object, ...], Costs] = {}
        for op in self._ops:
            for slot, first in op.delivered_slots.items():
                name = op.op.inputs[slot]
                source = maker.get(name)
                if slot != first or source is None:
                    continue
                position = source.op.outputs.index(name)
                ends = self._of(source), self._of(op)
                lists = self._configurations[ends[0]], self._configurations[ends[1]]
                key = (source.content, position, op.content, slot, id(lists[0]), id(lists[1]))
                if key not in known:
                    made = [_kept(source, position, tiling) for tiling in lists[0]]
                    different = list(dict.fromkeys(made))
                    tilings = problem.intern(tuple(different))
                    moved = problem.tables.input_bytes(op, slot, graph.tensors[name], tilings, lists[1])
                    rows = [different.index(tiling) for tiling in made]
                    known[key] = _picoseconds(2 * moved[rows] / self._rates.bytes_per_s)
                pair, costs = (ends, known[key]) if ends[0] <= ends[1] else (ends[::-1], known[key].T)
                found[pair] = found[pair] + costs if pair in found else costs
        return found

    def _layer_seconds(self, op: BoundOp, states: Sequence[int], tiling: Tiling) -> float:
        computing = PASSES_OF_TRAINING * float(self._rates.roofline.seconds(op, tiling).max())
        reads = op.reads(op.ranges(tiling))
        synchronised = self._joined_bytes(op, tiling)
        for slot in states:
            tensor = self._problem.graph.tensors[op.op.inputs[slot]]
            copies = int(reads[slot].boxes.elements.sum()) - tensor.elements
            synchronised += 2 * max(0, copies) * tensor.dtype.item_bytes
        return computing + synchronised / self._rates.bytes_per_s

    def _joined_bytes(self, op: BoundOp, tiling: Tiling) -> int:
        """What moves so that every device has the whole of results that are partial."""
        if not any(op.reducers(tiling)):
            return 0
        problem, moved = self._problem, 0
        for position, name in enumerate(op.op.outputs):
            if name and is_used(problem.graph, name):
                kept, strategy = problem.intern((_kept(op, position, tiling),)), problem.intern((tiling,))
                tensor = problem.graph.tensors[name]
                moved += int(problem.tables.output_bytes(op, position, tensor, kept, strategy)[0, 0])
        return moved

    def fixed(self, chosen: Sequence[int]) -> dict[int, Tiling]:
        """By variable the tilings that the configurations stand for: of ops, what they make, and what they read."""
        problem = self._problem
        found: dict[int, Tiling] = {}
        for op in self._ops:
            strategy = self._configurations[self._of(op)][chosen[self._of(op)]]
            found[problem.variable_of_op[op.op.name]] = strategy
            for position, name in enumerate(op.op.outputs):
                if name:
                    found.setdefault(problem.variable_of_tensor[name], _kept(op, position, strategy))
        for op in self._ops:
            strategy = found[problem.variable_of_op[op.op.name]]
            for slot in op.delivered_slots:
                name = op.op.inputs[slot]
                if name in problem.variable_of_tensor and problem.graph.roles[name] in (Role.STATE, Role.DATA):
                    needed = needed_tiling(op, slot, strategy)
                    if needed.is_disjoint or not problem.is_charged(name):
                        found.setdefault(problem.variable_of_tensor[name], needed)
        return found

    def _of(self, op: BoundOp) -> int:
        return self._number[self._problem.variable_of_op[op.op.name]]

    def _is_state(self, name: str) -> bool:
        return self._problem.graph.roles[name] is Role.STATE


def _forward_ops(problem: Problem) -> list[BoundOp]:
    """The ops that lead to a result."""
    graph = problem.graph
    wanted = {name for name in graph.outputs if graph.roles[name] is Role.RESULT}
    found = []
    for op in reversed(problem.ops):
        if any(name in wanted for name in op.op.outputs):
            wanted.update(op.op.inputs)
            found.append(op)
    return found[::-1]


def configurations(problem: Problem, variable: SearchVariable, cuts: tuple[int, ...]) -> Candidates:
    """The ways to divide a layer's output in equal degrees: outer cuts left idle, then dims in their order.

    Args:
        problem: the graph's variables.
        variable: an op.
        cuts: the ways of each cut, outermost first.
    """
    found = []
    for idle in range(len(cuts) + 1):
        for part in _divisions(problem, variable, cuts[idle:]):
            whole = Tiling((*[_IDLE] * idle, *part.placements), cuts)
            if problem.is_local(_op(variable), whole):
                found.append(whole)
    if not found:  # an op that is no local op when some are idle is repeated, as what has no dim is
        found.append(Tiling((Replicate(),) * len(cuts), cuts))
    return tuple(found)


def _op(variable: SearchVariable) -> BoundOp:
    assert variable.op is not None, "a layer is an op"
    return variable.op


def _divisions(problem: Problem, variable: SearchVariable, cuts: tuple[int, ...]) -> list[Tiling]:
    found = [UNCUT]
    for ways in cuts:
        found = [
            longer
            for prefix in found
            for longer in problem.proposals(variable, prefix, ways)
            if _continues(problem, _op(variable), prefix, longer.placements[-1])
        ]
    return found


def _continues(problem: Problem, op: BoundOp, prefix: Tiling, placement: Placement) -> bool:
    """Whether a cut divides what a configuration may, and no dim before the last one that is divided."""
    if not isinstance(placement, Shard):
        return False
    has_parameters = any(problem.graph.roles[name] is Role.STATE for name in op.op.inputs if name)
    if op.variables[placement.dim].reducer is not None and has_parameters:
        return False
    last = prefix.placements[-1] if prefix.placements else None
    return not isinstance(last, Shard) or last == placement or last.dim < placement.dim


def _kept(op: BoundOp, position: int, strategy: Tiling) -> Tiling:
    """The tiling in which an output is made; partial results are joined everywhere."""
    dims = op.analysis.outputs[position]
    assert dims is not None, "an absent output is never made"
    made = made_tiling(strategy, dims, op.reducers(strategy), op.analysis.steps_of(position))
    placements = tuple(Replicate() if isinstance(one, Partial) else one for one in made.placements)
    return Tiling(placements, made.ways)


def needed_tiling(op: BoundOp, slot: int, strategy: Tiling) -> Tiling:
    """The tiling of an input in which every worker has what it needs: cut where the op's dims are its own, else whole.

    Args:
        op: the op.
        slot: the input's position.
        strategy: how the op is divided.
    """
    alone = {Interval.variable(variable.name): number for number, variable in enumerate(op.variables)}
    dims: list[int | None] = []
    for read in op.analysis.reads:
        if read.slot == slot:
            dims = [None if interval is None else alone.get(interval) for interval in read.dims]
            break
    placements: list[Placement] = []
    for placement in strategy.placements:
        if isinstance(placement, Shard) and placement.dim in dims:
            placements.append(Shard(dims.index(placement.dim), placement.block))
        else:
            placements.append(Replicate() if isinstance(placement, Shard) else placement)
    return Tiling(tuple(placements), strategy.ways)


def _picoseconds(seconds: np.ndarray) -> Costs:
    costs: Costs = np.rint(seconds * PICOSECONDS).astype(np.int64)
    return costs
