"""The search as a sum of pairwise tables: one variable for each tensor and one for each op.

A tensor's values are tilings, an op's are strategies (tilings of its iteration space); both are composites, one
placement for each cut so far. A state and its next value share a variable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np

from planner.algebra.tiling import UNCUT, Replicate, Shard, Tiling
from planner.cost.compute import REPLICATED_SHARE_LIMIT, repeated_work, work
from planner.cost.tables import Candidates, CostTables, Table
from planner.errors import UnsupportedError
from planner.graph.model import Graph, Role, is_used
from planner.search.choices import Choices
from planner.search.dims import Directions, find_directions, graph_ties
from planner.search.effort import EffortName
from planner.search.eliminate import MAX_TABLE_ENTRIES, Factor, Solution
from planner.search.network import Link, Network, merged
from planner.search.order import Ints
from planner.search.unrolled import Copies, find_copies
from planner.tdl.bind import BoundOp, Content

Restriction: TypeAlias = "Callable[[SearchVariable, Candidates], Candidates]"
"""Narrows a variable's candidates: how pins, options and the literature's strategies are expressed."""


@dataclass(frozen=True, slots=True)
class SearchVariable:
    """A tensor (or tied tensors), or an op."""

    number: int
    tensors: tuple[str, ...]
    """The tensors that share the variable; () for an op."""
    op: BoundOp | None
    """The op, the first of its copies; None for a tensor."""


def no_restriction(variable: SearchVariable, candidates: Candidates) -> Candidates:
    """Every candidate: tofu's own search."""
    return candidates


Offer: TypeAlias = "Callable[[SearchVariable, Tiling], Candidates]"
"""What a variable may be, given what it is."""


@dataclass
class Problem:
    """A graph's variables and links."""

    graph: Graph
    ops: tuple[BoundOp, ...]
    workers: int
    partitioned_inputs: bool = False
    """Charge data inputs that are not a disjoint split: leave replication out of their tilings."""
    replication_budget: float = REPLICATED_SHARE_LIMIT
    """Work that may be repeated, as a share of the graph's."""
    divided: frozenset[str] = frozenset()
    """Ops that may not be repeated where they can be divided, however little work they are."""
    effort: EffortName = "normal"
    """How much work may be done to bound what a plan can be."""
    variables: list[SearchVariable] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    tables: CostTables = field(default_factory=CostTables)
    eliminated_entries: int = 0
    """Entries of all buckets that eliminations have computed so far."""

    def __post_init__(self) -> None:
        self.directions: Directions = find_directions(self.graph, self.ops)
        self.variable_of_tensor: dict[str, int] = {}
        self.variable_of_op: dict[str, int] = {}
        self._add_variables(find_copies(self.graph, self.ops))
        self._link_kinds: dict[object, int] = {}
        self._bound = {bound.op.name: bound for bound in self.ops}
        for bound in self.ops:
            self._link(bound)
        self.works = self._find_works()
        self.may_replicate = self._cheap_enough()
        total = sum(self.works.values())
        self._negligible = REPLICATED_SHARE_LIMIT * total / max(1, len(self.works)) / max(1, self.workers - 1)
        self._local = self.tables.local
        self._proposals: dict[tuple[int, Tiling, int], Candidates] = {}
        self._with_vetoes: set[int] = set()
        self._lists = self.tables.lists
        self._numbered: dict[object, int] = {}
        copies = Counter(self.variable_of_op.values())
        self._times_there = [copies[variable.number] for variable in self.variables]
        self.content = [self._content_of(variable) for variable in self.variables]
        self._contents = np.array(self.content, dtype=np.int64)
        directions = [self._directions_free(variable) for variable in self.variables]
        self._network = Network(directions, merged(self.links), self.content)

    def _add_variables(self, copies: Copies) -> None:
        """One variable for each tensor and op, its copies and its next state included."""
        following = dict(graph_ties(self.graph))
        paired = set(following.values())
        members: dict[str, list[str]] = {}
        for name in self.graph.tensors:
            if name not in self.graph.constants and name not in paired:
                also = (following[name],) if name in following else ()
                members.setdefault(copies.tensors.get(name, name), []).extend((name, *also))
        for tied in members.values():
            self.variable_of_tensor.update(dict.fromkeys(tied, len(self.variables)))
            self.variables.append(SearchVariable(len(self.variables), tuple(tied), None))
        for bound in self.ops:
            first = copies.ops.get(bound.op.name, bound.op.name)
            if first == bound.op.name:
                self.variable_of_op[first] = len(self.variables)
                self.variables.append(SearchVariable(len(self.variables), (), bound))
            self.variable_of_op[bound.op.name] = self.variable_of_op[first]

    def _find_works(self) -> dict[str, int]:
        """By op, how much work it is."""
        known: dict[Content, int] = {}
        for bound in self.ops:
            if bound.content not in known:
                known[bound.content] = work(bound, self.graph)
        return {bound.op.name: known[bound.content] for bound in self.ops}

    def _cheap_enough(self) -> dict[str, bool]:
        """Which ops may be repeated for the plan's own benefit: the smallest ones, as many as the budget holds.

        Of ops of equal work all may be, or none, so that neither names nor order decide. What a repetition adds depends
        on how many workers repeat; two is assumed here, and the plan's true share is checked afterwards.
        """
        counts = Counter(self.works.values())
        left = self.replication_budget * sum(self.works.values())
        largest = -1
        for amount in sorted(counts):
            left -= amount * counts[amount]
            if left < 0:
                break
            largest = amount
        return {name: amount <= largest and name not in self.divided for name, amount in self.works.items()}

    def _content_of(self, variable: SearchVariable) -> int:
        """What a variable's candidates depend on: equal for repeated layers, so that they are found once."""
        bound = variable.op
        if bound is not None:
            name = bound.op.name
            what: object = (bound.content, self.may_replicate[name], self.directions.blocks_of("op", name))
        else:
            name = variable.tensors[0]
            what = (self.graph.tensors[name].shape, self.is_charged(name), self.directions.blocks_of("tensor", name))
        return self._numbered.setdefault(what, len(self._numbered))

    def _link(self, bound: BoundOp) -> None:
        number = self.variable_of_op[bound.op.name]
        delivered = bound.delivered_slots
        for slot, name in enumerate(bound.op.inputs):
            if not name or name in self.graph.constants or slot in bound.description.shape_only:
                continue
            if slot not in delivered:
                raise UnsupportedError(
                    f"op {bound.op.name} ({bound.op.op_type}): input {slot} ({name}) must be a constant",
                    hint="a shape, axes or bounds that the graph computes cannot be planned; fold them before",
                )
            if delivered[slot] == slot:
                self._add_link(bound, name, number, True, slot)
        for position, name in enumerate(bound.op.outputs):
            if name and is_used(self.graph, name):
                self._add_link(bound, name, number, False, position)

    def _add_link(self, bound: BoundOp, name: str, op: int, is_input: bool, position: int) -> None:
        what = (bound.content, is_input, position, self.tables.apart(bound.op.name, is_input, position))
        kind = self._link_kinds.setdefault(what, len(self._link_kinds))
        self.links.append(Link(self.variable_of_tensor[name], op, is_input, position, kind, name, bound.op.name))

    def is_charged(self, name: str) -> bool:
        """True for data that arrive in disjoint tiles: such a tensor is replicated only where it cannot be cut."""
        return self.partitioned_inputs and self.graph.roles[name] is Role.DATA

    def unsplit(self, composites: Sequence[Tiling]) -> frozenset[int]:
        """Ops that repeat work at a cut where they cannot be split, and are too much work for that to be free."""
        firsts, group = self.alike(composites)
        stuck = np.array([self._forced(self.variables[first], composites[first]) > 1 for first in firsts])
        return frozenset(np.flatnonzero(stuck[group]).tolist())

    def overdraws(self, composites: Sequence[Tiling]) -> bool:
        """True if more work is repeated than may be, because that is cheaper and not because an op could not be cut."""
        return sum(self.repeated_by_choice(composites)) > REPLICATED_SHARE_LIMIT * sum(self.works.values())

    def repeated_by_choice(self, composites: Sequence[Tiling]) -> list[int]:
        """By variable the work that is done again though it could be divided, that of copies added; 0 for tensors."""
        firsts, group = self.alike(composites)
        each = [self._chosen(self.variables[first], composites[first]) for first in firsts]
        return [each[number] * times for number, times in zip(group.tolist(), self._times_there, strict=True)]

    def repeated_by(self, op: str, strategy: Tiling) -> int:
        """The work of an op that is done again though it could be divided, if this is its strategy."""
        return self._chosen(self.variables[self.variable_of_op[op]], strategy)

    def _chosen(self, variable: SearchVariable, composite: Tiling) -> int:
        if variable.op is None:
            return 0
        amount = self.works[variable.op.op.name]
        return repeated_work([(amount, composite)]) - amount * (self._forced(variable, composite) - 1)

    def _forced(self, variable: SearchVariable, composite: Tiling) -> int:
        """How often an op is executed since it cannot be split: the ways of such cuts; 1 for negligible work."""
        if variable.op is None or self.works[variable.op.op.name] <= self._negligible:
            return 1
        forced, prefix = 1, UNCUT
        for placement, ways in zip(composite.placements, composite.ways, strict=True):
            if isinstance(placement, Replicate):
                options = self.extensions(variable, prefix, ways)
                if all(isinstance(option.placements[-1], Replicate) for option in options):
                    forced *= ways
            prefix = prefix.extend(placement, ways)
        return forced

    def extensions(self, variable: SearchVariable, prefix: Tiling, ways: int) -> Candidates:
        """The composites that add one cut to ``prefix``; replication last, so that ties go to splitting."""
        return self._local_only(variable, self.proposals(variable, prefix, ways))

    def proposals(self, variable: SearchVariable, prefix: Tiling, ways: int) -> Candidates:
        """The extensions, some of which may turn out to be no local ops (see ``solve``)."""
        key = (self.content[variable.number], prefix, ways)
        known = self._proposals.get(key)
        if known is None:
            known = self._proposals[key] = self.intern(self._propose(variable, prefix, ways))
        return known

    def intern(self, candidates: Candidates) -> Candidates:
        """The one list with these candidates, so that tables know it by identity."""
        return self._lists.setdefault(candidates, candidates)

    def _propose(self, variable: SearchVariable, prefix: Tiling, ways: int) -> Candidates:
        bound = variable.op
        if bound is None:
            return self._propose_tensor(variable, prefix, ways)
        obstacles = [bool(index_variable.obstacle) for index_variable in bound.variables]
        found = _splits(prefix, bound.extents, ways, self.directions.blocks_of("op", bound.op.name), obstacles)
        if not found or self.may_replicate[bound.op.name]:
            found.append(prefix.extend(Replicate(), ways))
        return tuple(found)

    def _propose_tensor(self, variable: SearchVariable, prefix: Tiling, ways: int) -> Candidates:
        name = variable.tensors[0]
        found = _splits(prefix, self.graph.tensors[name].shape, ways, self.directions.blocks_of("tensor", name))
        if not found or not self.is_charged(name):
            found.append(prefix.extend(Replicate(), ways))
        return tuple(found)

    def is_local(self, bound: BoundOp, strategy: Tiling) -> bool:
        """True if every worker's part can be computed by a local op."""
        key = (bound.content, strategy)
        known = self._local.get(key)
        if known is None:
            known = self._local[key] = not bound.veto(bound.ranges(strategy))
        return known

    def factors(self, candidates: Sequence[Candidates]) -> list[Factor]:
        """The tables of all links, for these candidates of each variable."""
        return [
            Factor((link.tensor, link.op), self.table(link, candidates[link.tensor], candidates[link.op]))
            for link in self.links
        ]

    def choices(self, composites: Sequence[Tiling], offer: Offer, restrict: Restriction = no_restriction) -> Choices:
        """What every variable may be, given what it is.

        Args:
            composites: what each variable is now.
            offer: the candidates, equal for equal variables that are the same now.
            restrict: narrows them, variable by variable.
        """
        firsts, group = self.alike(composites)
        offered = [self.intern(offer(self.variables[first], composites[first])) for first in firsts]
        if restrict is no_restriction:
            return Choices.of_groups(offered, group)
        pairs = zip(self.variables, group.tolist(), strict=True)
        return Choices.of([self.intern(restrict(variable, offered[number])) for variable, number in pairs])

    def alike(self, composites: Sequence[Tiling]) -> tuple[list[int], Ints]:
        """Groups of equal variables that are the same now: the first of each group, and each variable's group."""
        number = np.unique(np.fromiter(map(id, composites), np.int64, len(composites)), return_inverse=True)[1]
        keys = self._contents * (1 + int(number.max(initial=0))) + number
        _, firsts, group = np.unique(keys, return_index=True, return_inverse=True)
        return firsts.tolist(), group

    def solve(
        self, choices: Choices, max_table_entries: int = MAX_TABLE_ENTRIES
    ) -> tuple[tuple[Tiling, ...], Solution]:
        """The least bytes over all choices of a candidate for every variable.

        Nearly every strategy can be computed by local ops, so only those of the solution are looked at. Where one
        cannot be, all such candidates of its op are taken out, and of every equal op, and the rest is solved again.

        Args:
            choices: each variable's candidates, interned.
            max_table_entries: see ``eliminate``.

        Returns:
            The chosen composites, and the solution that they stand for.

        Raises:
            InfeasibleError: a bucket would be larger.
        """
        allowed = self._without_vetoed(choices)
        while True:
            solution = self._network.solve(allowed, self.table, max_table_entries)
            self.eliminated_entries += solution.entries
            chosen = allowed.chosen(solution.values)
            vetoed = set(self._not_local(chosen))
            if not vetoed:
                return chosen, solution
            assert not vetoed <= self._with_vetoes, "what is no local op is not offered twice"
            self._with_vetoes |= vetoed
            allowed = self._without_vetoed(allowed)

    def table_entries(self, choices: Choices) -> int:
        """Entries of all different tables, for these candidates of each variable."""
        return self._network.table_entries(choices)

    @property
    def scopes(self) -> list[tuple[int, ...]]:
        """The variables of each factor, those that have a choice."""
        return self._network.scopes

    def joint_tables(self, choices: Choices) -> tuple[list[Table], Ints]:
        """The different tables over the variables that have a choice, and the number of each factor's."""
        return self._network.tables(choices, self.table)

    @cached_property
    def times(self) -> list[int]:
        """When each variable's op is executed, or its tensor made: an order in which neighbours are near."""
        times = [-1] * len(self.variables)
        for number, bound in enumerate(self.ops):
            op = self.variable_of_op[bound.op.name]
            if times[op] < 0:
                times[op] = 2 * number
            for name in bound.op.outputs:
                if name and times[self.variable_of_tensor[name]] < 0:
                    times[self.variable_of_tensor[name]] = 2 * number + 1
        for number, bound in enumerate(self.ops):
            for name in bound.op.inputs:
                if name in self.variable_of_tensor and times[self.variable_of_tensor[name]] < 0:
                    times[self.variable_of_tensor[name]] = 2 * number - 1
        return times

    def are_local(self, composites: Sequence[Tiling]) -> bool:
        """True if every op's strategy can be computed by local ops."""
        return not any(True for _ in self._not_local(composites))

    def _not_local(self, composites: Sequence[Tiling]) -> Iterator[int]:
        """The contents of ops whose strategies cannot be computed by local ops."""
        for first in self.alike(composites)[0]:
            variable = self.variables[first]
            if variable.op is not None and not self.is_local(variable.op, composites[first]):
                yield self.content[first]

    def _without_vetoed(self, choices: Choices) -> Choices:
        """The candidates without those that were found to be no local ops."""
        if not self._with_vetoes:
            return choices
        keys = self._contents * len(choices.lists) + choices.which
        _, firsts, group = np.unique(keys, return_index=True, return_inverse=True)
        kept = [
            self._local_only(self.variables[first], choices[first])
            if self.content[first] in self._with_vetoes
            else choices[first]
            for first in firsts.tolist()
        ]
        return Choices.of_groups(kept, group)

    def _local_only(self, variable: SearchVariable, candidates: Candidates) -> Candidates:
        """Those that are local ops; replication at the last cut, which always is, where none is."""
        bound = variable.op
        if bound is None:
            return candidates
        found = tuple(candidate for candidate in candidates if self.is_local(bound, candidate))
        if not found:
            first = candidates[0]
            found = (Tiling((*first.placements[:-1], Replicate()), first.ways),)
        return self.intern(found)

    def bytes_by_tensor(self, composites: Sequence[Tiling]) -> list[tuple[str, int]]:
        """What moves because of each link's tensor, when the variables have these values."""
        groups = self.alike(composites)[1].tolist()
        known: dict[tuple[int, int, int], int] = {}
        found = []
        for link in self.links:
            key = (link.kind, groups[link.tensor], groups[link.op])
            if key not in known:
                tiling, strategy = self.intern((composites[link.tensor],)), self.intern((composites[link.op],))
                known[key] = int(self.table(link, tiling, strategy)[0, 0])
            found.append((link.name, known[key]))
        return found

    def table(self, link: Link, tilings: Candidates, strategies: Candidates) -> Table:
        """A link's table, as often as it is there; the lists are interned. Shape [tilings, strategies]."""
        bound, tensor = self._bound[link.op_name], self.graph.tensors[link.name]
        make = self.tables.input_bytes if link.is_input else self.tables.output_bytes
        table = make(bound, link.position, tensor, tilings, strategies)
        return table if link.times == 1 else table * link.times

    def _directions_free(self, variable: SearchVariable) -> int:
        """Along how many directions a variable can be cut; 0: it has one value, whatever the cuts."""
        if variable.op is None:
            return sum(size > 1 for size in self.graph.tensors[variable.tensors[0]].shape)
        along = zip(variable.op.variables, variable.op.extents, strict=True)
        return sum(extent > 1 and not index.obstacle for index, extent in along)


def _splits(
    prefix: Tiling,
    shape: tuple[int, ...],
    ways: int,
    blocks: Sequence[tuple[int, ...]],
    obstacles: Sequence[bool] = (),
) -> list[Tiling]:
    """How what each worker has can be cut along one dim: in single elements, and in blocks that differ.

    Args:
        prefix: the cuts so far.
        shape: of what is cut.
        ways: of the cut.
        blocks: for each dim, or () if there are none.
        obstacles: dims that cannot be cut; () if all can.
    """
    boxes = prefix.boxes(shape)
    shortest = (boxes.hi - boxes.lo).min(axis=0).tolist()
    found: list[Tiling] = []
    for dim, least in enumerate(shortest[: len(shape)]):
        if least < ways or (obstacles and obstacles[dim]):
            continue
        found.append(prefix.extend(Shard(dim), ways))
        if not (blocks and blocks[dim]):
            continue
        seen = {_pieces(found[-1], shape)}
        for block in blocks[dim]:
            if -(-least // block) >= ways:
                tiling = prefix.extend(Shard(dim, block), ways)
                pieces = _pieces(tiling, shape)
                if pieces not in seen:
                    seen.add(pieces)
                    found.append(tiling)
    return found


def _pieces(tiling: Tiling, shape: tuple[int, ...]) -> bytes:
    """Equal for tilings that give each worker the same region."""
    boxes = tiling.boxes(shape)
    return boxes.lo.tobytes() + boxes.hi.tobytes()
