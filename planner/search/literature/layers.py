"""Layer-wise parallelism (ICML'18): a configuration for each layer of the forward pass, by the paper's cost model.

A layer is an op of the forward pass. Its configuration divides its output among some of the devices in equal degrees
(section 4): all of them, or fewer, the others being idle. A reduction is divided only where a layer has no parameters:
statistics of a batch and losses, which the paper has inside of its layers, are ops here. What a layer costs is time
(section 5.1, equation 1), on devices and links like those of the paper's testbed, or of as many more of its nodes:

- t_C, computing: the roofline of the busiest device, three times, for the forward pass and the two halves of the
  backward pass. The paper measures it.
- t_X, transfers: what a layer's inputs lack where they are needed takes to come over the links on its way, and their
  gradients on the way back.
- t_S, synchronisation: every copy of a parameter sends its gradient to those that keep it, each device that has a copy
  as large a part, and is sent the update.

The best configurations are then fixed: those of the ops, what they make, and the weights where they are needed. The
paper says nothing of how the backward pass and the optimizer are divided between these: here as takes the least time
by the same rates, cut by cut, on a layer's devices or on all. The plan's bytes are counted as all others'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from planner.algebra.delivery import made_tiling
from planner.algebra.tiling import UNCUT, Only, Partial, Placement, Replicate, Shard, Tiling
from planner.cost.seconds.tables import TimeTables
from planner.cost.seconds.timed import TimedTables
from planner.cost.tables import Candidates
from planner.graph.core.dependence import leading_to
from planner.graph.core.model import Role, is_used
from planner.machine.routes import Interconnect, Route, part
from planner.machine.topology_file import DeviceGraph, Level, Machine, Topology, load_topology
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
_A_NODE = 4
"""Its devices of one node."""
_IDLE = Only(0)


def search_layers(ground: Ground) -> tuple[tuple[int, ...], Found]:
    """Finds a plan by node and edge elimination over layers: O(E C^3) for E edges and C configurations.

    Args:
        ground: the problem and its cuts.

    Raises:
        InfeasibleError: the layers are too entangled for the two eliminations.
    """
    problem, cuts = ground.problem, ground.cuts
    times = TimeTables(machine_of_the_paper(prod(cuts)), cuts)
    forward = Forward(problem, cuts, times)
    ground.progress(f"deciding {len(forward.layers)} layers")
    fixed = forward.fixed(least(forward.layer_costs(), forward.edge_costs()).configurations)
    idle = _like_the_nearest(problem, {number: _idle_cuts(tiling) for number, tiling in fixed.items()}, cuts)

    timed = problem.with_tables(TimedTables(problem.tables, times))

    def restrict(variable: SearchVariable, candidates: Candidates) -> Candidates:
        depth = len(candidates[0].ways)
        tiling = fixed.get(variable.number)
        if tiling is not None:
            return (tiling.outermost(depth),)
        before = candidates[0].outermost(depth - 1)
        has_one_value = not problem.spaces[variable.number].directions
        if has_one_value or idle.get(variable.number, 0) < depth or _idle_cuts(before) < depth - 1:
            return candidates
        return timed.intern((*candidates, before.extend(_IDLE, cuts[depth - 1])))

    plan = search_recursively(timed, cuts, ground.narrow(restrict, cuts), ground.progress, ground.stop)
    return cuts, replace(plan, cost=problem.cost(plan.tilings))


def _idle_cuts(tiling: Tiling) -> int:
    """The number of outermost cuts that leave all but one group of devices idle."""
    placements = enumerate(tiling.placements)
    return next((cut for cut, placement in placements if not isinstance(placement, Only)), len(tiling.ways))


def _like_the_nearest(problem: Problem, idle: dict[int, int], cuts: tuple[int, ...]) -> dict[int, int]:
    """The number of cuts that leave devices idle, by variable; one without a layer follows the nearest layer.

    A layer's backward pass and its update read what its forward pass does, and run on its devices.
    """
    beside: dict[int, list[int]] = {}
    for op in problem.ops:
        variable = problem.variable_of_op[op.op.name]
        for name in (*op.op.inputs, *op.op.outputs):
            if name in problem.variable_of_tensor:
                tensor = problem.variable_of_tensor[name]
                beside.setdefault(variable, []).append(tensor)
                beside.setdefault(tensor, []).append(variable)
    idle_cuts, reached = dict(idle), list(idle)
    for number in reached:  # which grows
        for peer in beside.get(number, ()):
            if peer not in idle_cuts and _may_be_idle(problem, problem.variables[peer], cuts, idle_cuts[number]):
                idle_cuts[peer] = idle_cuts[number]
                reached.append(peer)
    return idle_cuts


def _may_be_idle(problem: Problem, variable: SearchVariable, cuts: tuple[int, ...], idle: int) -> bool:
    """False for an op that is no local op when some devices have nothing of it."""
    if variable.op is None or not idle:
        return True
    return problem.is_local(variable.op, Tiling((*[_IDLE] * idle, *[Replicate()] * (len(cuts) - idle)), cuts))


def machine_of_the_paper(workers: int) -> Machine:
    """The paper's machine with so many devices: the nearest of it, or more of its nodes."""
    machine = load_topology(TESTBED)
    assert isinstance(machine, DeviceGraph), "the testbed is given as the paper's device graph"
    if workers <= machine.device_count:
        return part(machine, workers)
    interconnect = Interconnect(machine)
    near, far = (interconnect.route(0, device) for device in (1, machine.device_count - 1))
    levels = (
        Level("nodes", -(-workers // _A_NODE), *_over(interconnect, far), shared_by=_A_NODE),
        Level("devices of a node", _A_NODE, *_over(interconnect, near)),
    )
    return part(Topology(machine.name, machine.devices[0], levels), workers)


def _over(interconnect: Interconnect, route: Route) -> tuple[float, float]:
    """The bytes a second of a route's narrowest port, and its latency in seconds."""
    return min(interconnect.port_bytes_per_s[port] for port in route.ports), route.latency_seconds


class Forward:
    """The layers, their configurations, and what these cost."""

    def __init__(self, problem: Problem, cuts: tuple[int, ...], times: TimeTables) -> None:
        self._problem = problem
        self._times = times
        self._ops = _forward_ops(problem)
        self.layers = list(dict.fromkeys(problem.variable_of_op[op.op.name] for op in self._ops))
        self._number = {variable: number for number, variable in enumerate(self.layers)}
        by_content: dict[int, Candidates] = {}
        self._configurations: list[Candidates] = []
        for variable in self.layers:
            content = problem.content[variable]
            if content not in by_content:
                by_content[content] = problem.intern(configurations(problem, problem.variables[variable], cuts))
            self._configurations.append(by_content[content])

    def layer_costs(self) -> list[Costs]:
        """t_C and t_S of each layer, in picoseconds, by configuration."""
        cost_of: dict[tuple[object, ...], Costs] = {}
        costs: list[Costs] = [np.zeros(len(values), dtype=np.int64) for values in self._configurations]
        for op in self._ops:
            number = self._of(op)
            states = tuple(slot for slot in op.delivered_slots if self._is_state(op.op.inputs[slot]))
            key = (op.content, states, id(self._configurations[number]))
            if key not in cost_of:
                cost_of[key] = self._layer(op, states, self._configurations[number])
            costs[number] = costs[number] + cost_of[key]
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
        transfers: dict[tuple[int, int], Costs] = {}
        table_of: dict[tuple[object, ...], Costs] = {}
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
                if key not in table_of:
                    output_tilings = [_joined_tiling(source, position, tiling) for tiling in lists[0]]
                    different = list(dict.fromkeys(output_tilings))
                    tilings = problem.intern(tuple(different))
                    coming = self._times.input_table(op, slot, graph.tensors[name], tilings, lists[1])
                    rows = [different.index(tiling) for tiling in output_tilings]
                    table_of[key] = 2 * coming[rows]
                pair, costs = (ends, table_of[key]) if ends[0] <= ends[1] else (ends[::-1], table_of[key].T)
                transfers[pair] = transfers[pair] + costs if pair in transfers else costs
        return transfers

    def _layer(self, op: BoundOp, states: Sequence[int], configurations: Candidates) -> Costs:
        """t_C and t_S of one op."""
        problem, times = self._problem, self._times
        costs: Costs = PASSES_OF_TRAINING * times.op_table(op, configurations)
        for number, tiling in enumerate(configurations):
            strategy = problem.intern((tiling,))
            costs[number] += self._joining(op, strategy)
            for slot in states:
                tensor = problem.graph.tensors[op.op.inputs[slot]]
                keepers = problem.intern((_divided(needed_tiling(op, slot, tiling), tensor.shape),))
                costs[number] += 2 * times.input_table(op, slot, tensor, keepers, strategy)[0, 0]
        return costs

    def _joining(self, op: BoundOp, strategy: Candidates) -> int:
        """The time until every device has the whole of results that are partial."""
        if not any(op.reducers(strategy[0])):
            return 0
        problem, joining = self._problem, 0
        for position, name in enumerate(op.op.outputs):
            if name and is_used(problem.graph, name):
                joined = problem.intern((_joined_tiling(op, position, strategy[0]),))
                joining += int(
                    self._times.output_table(op, position, problem.graph.tensors[name], joined, strategy)[0, 0]
                )
        return joining

    def fixed(self, chosen: Sequence[int]) -> dict[int, Tiling]:
        """The tilings that the configurations stand for, by variable: of ops, what they make, and what they read."""
        problem = self._problem
        tilings: dict[int, Tiling] = {}
        for op in self._ops:
            strategy = self._configurations[self._of(op)][chosen[self._of(op)]]
            tilings[problem.variable_of_op[op.op.name]] = strategy
            for position, name in enumerate(op.op.outputs):
                if name:
                    tilings.setdefault(problem.variable_of_tensor[name], _joined_tiling(op, position, strategy))
        for op in self._ops:
            strategy = tilings[problem.variable_of_op[op.op.name]]
            for slot in op.delivered_slots:
                name = op.op.inputs[slot]
                if name in problem.variable_of_tensor and problem.graph.roles[name] in (Role.STATE, Role.DATA):
                    needed = needed_tiling(op, slot, strategy)
                    if needed.is_disjoint or not problem.is_charged(name):
                        tilings.setdefault(problem.variable_of_tensor[name], needed)
        return tilings

    def _of(self, op: BoundOp) -> int:
        return self._number[self._problem.variable_of_op[op.op.name]]

    def _is_state(self, name: str) -> bool:
        return self._problem.graph.roles[name] is Role.STATE


def _forward_ops(problem: Problem) -> list[BoundOp]:
    """The ops that lead to a result."""
    graph = problem.graph
    needed = leading_to(graph, [name for name in graph.outputs if graph.roles[name] is Role.RESULT])
    return [op for op in problem.ops if not needed.isdisjoint(op.op.outputs)]


def configurations(problem: Problem, variable: SearchVariable, cuts: tuple[int, ...]) -> Candidates:
    """The ways to divide a layer's output in equal degrees: outer cuts left idle, then dims in their order.

    Args:
        problem: the graph's variables.
        variable: an op.
        cuts: the ways of each cut, outermost first.
    """
    tilings = []
    for idle in range(len(cuts) + 1):
        for working in _divisions(problem, variable, cuts[idle:]):
            tiling = Tiling((*[_IDLE] * idle, *working.placements), cuts)
            if problem.is_local(_op(variable), tiling):
                tilings.append(tiling)
    if not tilings:  # an op that is no local op when some are idle is repeated, as what has no dim is
        tilings.append(Tiling((Replicate(),) * len(cuts), cuts))
    return tuple(tilings)


def _op(variable: SearchVariable) -> BoundOp:
    assert variable.op is not None, "a layer is an op"
    return variable.op


def _divisions(problem: Problem, variable: SearchVariable, cuts: tuple[int, ...]) -> list[Tiling]:
    tilings = [UNCUT]
    for ways in cuts:
        tilings = [
            longer
            for prefix in tilings
            for longer in problem.proposals(variable, prefix, ways)
            if _continues(problem, _op(variable), prefix, longer.placements[-1])
        ]
    return tilings


def _continues(problem: Problem, op: BoundOp, prefix: Tiling, placement: Placement) -> bool:
    """Whether a cut divides what a configuration may, and no dim before the last one that is divided."""
    if not isinstance(placement, Shard):
        return False
    has_parameters = any(problem.graph.roles[name] is Role.STATE for name in op.op.inputs if name)
    if op.variables[placement.dim].reducer is not None and has_parameters:
        return False
    last = prefix.placements[-1] if prefix.placements else None
    return not isinstance(last, Shard) or last == placement or last.dim < placement.dim


def _joined_tiling(op: BoundOp, position: int, strategy: Tiling) -> Tiling:
    """The tiling in which an output is made; partial results are joined everywhere."""
    dims = op.analysis.outputs[position]
    assert dims is not None, "an absent output is never made"
    tiling = made_tiling(strategy, dims, op.reducers(strategy), op.analysis.steps_of(position))
    placements = tuple(Replicate() if isinstance(placement, Partial) else placement for placement in tiling.placements)
    return Tiling(placements, tiling.ways)


def _divided(copies: Tiling, shape: Sequence[int]) -> Tiling:
    """Devices with copies of a parameter as its keepers, each with a part along its longest dim."""
    if not shape:
        return copies
    longest = Shard(int(np.argmax(shape)))
    placements = tuple(longest if isinstance(placement, Replicate) else placement for placement in copies.placements)
    return Tiling(placements, copies.ways)


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
            placements.append(placement._replace(dim=dims.index(placement.dim), nest=0))
        else:
            placements.append(Replicate() if isinstance(placement, Shard) else placement)
    return Tiling(tuple(placements), strategy.ways)
