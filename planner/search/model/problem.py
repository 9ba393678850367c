"""The search as a sum of pairwise tables: one variable for each tensor and one for each op.

A tensor's values are tilings, an op's are strategies: tilings of its iteration space. Each has a placement for every
cut so far. A state and its next value share a variable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from planner.algebra.lane import Lane
from planner.algebra.partial import IMPOSSIBLE
from planner.algebra.tiling import Replicate, Tiling, parts
from planner.artifacts.plan import Partitioning
from planner.cost.tables import Candidates, CostTables, Request, Table
from planner.graph.core.model import Graph, Role, lanes_of_tensors
from planner.search.effort import MAX_TABLE_ENTRIES, SETTLED_PROBLEMS
from planner.search.exact.choices import Choices
from planner.search.exact.eliminate import Factor, Solution
from planner.search.exact.network import Link, MetTables, Network, merged
from planner.search.exact.order import Order, find_order_settling
from planner.search.exact.rows import Ints, distinct
from planner.search.model.dims import Directions, find_directions, graph_ties
from planner.search.model.nests import Nests, find_nests
from planner.search.model.partial_sums import (
    PartialSums,
    find_partial_sums,
    impossible_entry,
    is_possible,
    obstacle,
    parted,
)
from planner.search.model.ports import ports_of
from planner.search.model.space import Space
from planner.search.repeats.unrolled import Copies, find_copies
from planner.stop import go_on
from planner.tdl.bind import BoundOp

Restriction: TypeAlias = "Callable[[SearchVariable, Candidates], Candidates]"
"""Narrows a variable's candidates: how pins, options and the literature's strategies are expressed."""


class SearchVariable(NamedTuple):
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
"""The candidates of a variable, given its tiling."""


@dataclass
class Problem:
    """A graph's variables and links."""

    graph: Graph
    ops: tuple[BoundOp, ...]
    workers: int
    partitioned_inputs: bool = False
    """Charge data inputs that are not a disjoint split: leave replication out of their tilings."""
    with_partial_sums: bool = False
    """Offer ``P`` to tensors that may be sums of partial results (``planner.search.model.partial_sums``)."""
    with_nests: bool = False
    """Offer cuts that nest in another order than their own (``planner.search.model.nests``)."""
    variables: list[SearchVariable] = field(default_factory=list, init=False)
    links: list[Link] = field(init=False)
    charges: list[Link] = field(init=False)
    """The cost of ops beside the bytes that move."""
    tables: CostTables = field(default_factory=CostTables)
    eliminated_entries: int = 0
    """Entries of all buckets that eliminations have computed so far."""
    decided_apart: int = 0
    """Variables that were decided apart from the others (``planner.search.moves.entangled``), at most."""

    def __post_init__(self) -> None:
        self.directions: Directions = find_directions(self.graph, self.ops)
        self.variable_of_tensor: dict[str, int] = {}
        self.variable_of_op: dict[str, int] = {}
        sums = find_partial_sums(self.graph, self.ops) if self.with_partial_sums else PartialSums()
        # The variables come first: names below become their numbers.
        self._add_variables(parted(find_copies(self.graph, self.ops), sums))
        self._partial = {self.variable_of_tensor[name] for name in sums.tensors}
        self._partial |= {self.variable_of_op[name] for name in sums.ops}
        nests = find_nests(self.graph, self.ops) if self.with_nests else Nests()
        self._nesting = {self.variable_of_tensor[name] for name in nests.tensors}
        self._nesting |= {self.variable_of_op[name] for name in nests.ops}
        self._by_name = {op.op.name: op for op in self.ops}
        self._lanes = lanes_of_tensors(self.graph)
        self.links, self.charges = ports_of(
            self.graph, self.ops, self.variable_of_tensor, self.variable_of_op, self.tables
        )
        self._local = self.tables.local
        self._proposals: dict[tuple[Space, Tiling, int], Candidates] = {}
        self._spaces: dict[tuple[object, ...], Space] = {}
        self._lists = self.tables.lists
        self._sums = [link for link in self.links if link.tensor in self._partial or link.op in self._partial]
        self._impossible = impossible_entry(
            self.graph, self.workers, self.links, self._most_charged(), len(self._sums), self.tables
        )
        self._settle_spaces()
        self._network = self._network_of(self._directions_of_spaces(), MetTables())
        self._settled: dict[tuple[bytes, bytes, int], tuple[frozenset[int], Problem]] = {}

    def begin(self) -> None:
        """Forgets the work of the search before, of a problem that searches by several strategies share."""
        self.eliminated_entries = self.decided_apart = 0
        self._with_vetoes.clear()  # the settled problems have the same set

    def with_tables(self, tables: CostTables) -> Problem:
        """The same variables and links, at other prices.

        Args:
            tables: with nothing yet of another graph.
        """
        return Problem(
            self.graph, self.ops, self.workers, self.partitioned_inputs, self.with_partial_sums, self.with_nests,
            tables=tables,
        )  # fmt: skip

    def with_settled(self, variables: Collection[int], order: Order | None = None) -> Problem:
        """This problem, but that these variables have one candidate each, whatever else is asked.

        Both have the same lists of variables and links, and the same tables.

        Args:
            variables: that are settled.
            order: in which the others are eliminated; None: it is found when it is needed.
        """
        problem = copy(self)
        problem.eliminated_entries = 0
        directions = [0 if number in variables else count for number, count in enumerate(self._directions_of_spaces())]
        problem._network = self._network_of(directions, self._network.met, order)
        return problem

    def settling(self, sizes: Ints, stayed: Ints, most_entries: int) -> tuple[frozenset[int], Problem]:
        """Variables that have to stay what they are, and the problem of all others.

        Args:
            sizes: how many candidates each variable has.
            stayed: how often each had to stay before.
            most_entries: how large a bucket of the others may be.
        """
        key = (sizes.tobytes(), stayed.tobytes(), most_entries)
        settled = self._settled.pop(key, None)
        if settled is None:
            scopes = [tuple([variable for variable in scope if sizes[variable] > 1]) for scope in self.scopes]
            staying, order = find_order_settling(sizes.tolist(), scopes, self.content, stayed.tolist(), most_entries)
            settled = staying, self.with_settled(staying.union(np.flatnonzero(sizes == 1).tolist()), order)
        self._settled[key] = settled
        while len(self._settled) > SETTLED_PROBLEMS:
            del self._settled[next(iter(self._settled))]
        return settled

    def _network_of(self, directions: Sequence[int], met: MetTables, order: Order | None = None) -> Network:
        return Network(directions, [*merged(self.links), *merged(self.charges)], self.content, met, order)

    def _settle_spaces(self) -> None:
        """Settles how each variable can be divided, and which variables are alike."""
        self.spaces = [self._space_of(variable) for variable in self.variables]
        self._numbered: dict[object, int] = {}
        contents = zip((None if op is None else op.content for _, _, op in self.variables), self.spaces, strict=True)
        self.content = [self._numbered.setdefault(content, len(self._numbered)) for content in contents]
        """Equal for the variables of repeated layers, so that what is found out about one of them serves all."""
        self._contents = np.array(self.content, dtype=np.int64)
        self._with_vetoes: set[int] = set()
        self._grouped: tuple[tuple[Tiling, ...], list[int], Ints] = ((), [], np.zeros(0, dtype=np.int64))

    def _directions_of_spaces(self) -> list[int]:
        """The number of directions along which each variable can be divided."""
        directions = {space: space.directions for space in dict.fromkeys(self.spaces)}
        return [directions[space] for space in self.spaces]

    def _add_variables(self, copies: Copies) -> None:
        """One variable for each tensor and op, its copies and its next state included."""
        following = dict(graph_ties(self.graph))
        apart = {*self.graph.constants, *following.values()}
        members: dict[str, list[str]] = {}
        for name in self.graph.tensors:
            if name not in apart:
                tied = members.setdefault(copies.tensors.get(name, name), [])
                tied.append(name)
                if name in following:
                    tied.append(following[name])
        for number, tied in enumerate(members.values()):
            self.variables.append(SearchVariable(number, tuple(tied), None))
            for name in tied:
                self.variable_of_tensor[name] = number
        for op in self.ops:
            first = copies.ops.get(op.op.name, op.op.name)
            if first == op.op.name:
                self.variable_of_op[first] = len(self.variables)
                self.variables.append(SearchVariable(len(self.variables), (), op))
            self.variable_of_op[op.op.name] = self.variable_of_op[first]

    def _space_of(self, variable: SearchVariable) -> Space:
        """The space of a variable's divisions; one object for all that are alike in that."""
        op, number, fixed = variable.op, variable.number, tuple[bool, ...]()
        if op is None:
            name = variable.tensors[0]
            shape, blocks = self.graph.tensors[name].shape, self.directions.blocks_of("tensor", name)
            may_repeat, lane = not self.is_charged(name), self._lane_of(variable)
        else:
            shape, blocks = op.extents, self.directions.blocks_of("op", op.op.name)
            may_repeat, lane = True, op.lane
            fixed = tuple([bool(index.obstacle) for index in op.variables])
        is_sum, may_nest = number in self._partial, number in self._nesting
        key = (shape, blocks, fixed, may_repeat, is_sum, may_nest, self.tables.shares, lane)
        if key not in self._spaces:
            self._spaces[key] = Space(*key)
        return self._spaces[key]

    def _lane_of(self, variable: SearchVariable) -> Lane | None:
        """The lane of a variable's tensors among equal ones beside each other; None where they are none, or several of
        them.
        """
        lanes = {self._lanes.get(name) for name in variable.tensors}
        return lanes.pop() if len(lanes) == 1 else None

    def _most_charged(self) -> int:
        """The largest sum of a plan's charges: where all workers execute whole ops."""
        counts = Counter(link.kind for link in self.charges)
        example = {link.kind: self._by_name[link.op_name] for link in self.charges}
        return sum(self.tables.most_charged(example[kind], self.workers) * times for kind, times in counts.items())

    def is_charged(self, name: str) -> bool:
        """True for data that arrive in disjoint tiles: such a tensor is replicated only where it cannot be cut."""
        return self.partitioned_inputs and self.graph.roles[name] is Role.DATA

    def may_be_partial(self, name: str) -> bool:
        """Whether a tensor may be a sum of partial results that is joined later."""
        return self.variable_of_tensor[name] in self._partial

    def why_not_partial(self, name: str) -> str:
        """The reason why a tensor may not be partial; "" if it may."""
        if self.may_be_partial(name):
            return ""
        if not self.with_partial_sums:
            return "this strategy joins partial sums at once"
        return obstacle(self.graph, self.ops, name)

    def is_possible(self, tilings: Sequence[Tiling]) -> bool:
        """Whether a solution is a plan: no op takes contributions for the whole, or the other way."""
        pairs = ((link, tilings[link.tensor], tilings[link.op]) for link in self._sums)
        return all(is_possible(self._by_name[link.op_name], link, tiling, strategy) for link, tiling, strategy in pairs)

    def values_of(self, plan: Partitioning) -> tuple[Tiling, ...]:
        """The value of each variable in a plan of the graph."""
        return tuple(
            [
                plan.tilings[variable.tensors[0]] if op is None else plan.strategies[op.op.name].tiling
                for variable in self.variables
                for op in [variable.op]
            ]
        )

    def extensions(self, variable: SearchVariable, prefix: Tiling, ways: int) -> Candidates:
        """The tilings that add one cut to ``prefix``; replication last, so that ties go to splitting."""
        return self._local_only(variable, self.proposals(variable, prefix, ways))

    def proposals(self, variable: SearchVariable, prefix: Tiling, ways: int) -> Candidates:
        """The extensions, some of which may turn out to be no local ops (see ``solve``)."""
        space = self.spaces[variable.number]
        key = (space, prefix, ways)
        candidates = self._proposals.get(key)
        if candidates is None:
            candidates = self._proposals[key] = self.intern(space.proposals(prefix, ways))
        return candidates

    def lets_through(self, restrict: Restriction, variable: SearchVariable, tiling: Tiling) -> bool:
        """Whether a restriction lets a tiling through at every cut.

        One whose cuts nest in another order is let through as the same placements are, but where these are all that is
        left: then the variable is settled.
        """
        is_settled = tiling.is_nested
        for prefix, placement, ways in tiling.plain.cut_by_cut():
            allowed = restrict(variable, self.proposals(variable, prefix, ways))
            if prefix.extend(placement, ways) not in allowed:
                return False
            is_settled = is_settled and len(allowed) == 1
        return not is_settled

    def affordable(self, variable: SearchVariable, candidates: Candidates, limit: int) -> Candidates:
        """The candidates, interned, without strategies of which the charge alone is more than this."""
        candidates = self.intern(candidates)
        if variable.op is None:
            return candidates
        cheap = self.tables.charges(variable.op, candidates) <= limit
        if cheap.all():
            return candidates
        return self.intern(tuple(tiling for tiling, is_kept in zip(candidates, cheap.tolist(), strict=True) if is_kept))

    def intern(self, candidates: Candidates) -> Candidates:
        """The one list with these candidates, so that tables know it by identity."""
        return self._lists.setdefault(candidates, candidates)

    def is_local(self, op: BoundOp, strategy: Tiling) -> bool:
        """True if every worker's part can be computed by a local op."""
        if op.is_always_local:
            return True
        key = (op.content, parts(strategy))
        verdict = self._local.get(key)
        if verdict is None:
            verdict = self._local[key] = op.is_local(strategy)
        return verdict

    def factors(self, candidates: Sequence[Candidates]) -> list[Factor]:
        """The tables of all links, for these candidates of each variable."""
        links = [*self.links, *self.charges]
        tables = self.link_tables([(link, candidates[link.tensor], candidates[link.op]) for link in links])
        scopes = [(link.op,) if link.is_charge else (link.tensor, link.op) for link in links]
        return [Factor(scope, table) for scope, table in zip(scopes, tables, strict=True)]

    def choices(self, tilings: Sequence[Tiling], offer: Offer, restrict: Restriction = no_restriction) -> Choices:
        """The candidates of every variable, given its tiling.

        Args:
            tilings: what each variable is now.
            offer: the candidates, interned, and equal for equal variables that are the same now.
            restrict: narrows them, variable by variable.
        """
        firsts, group = self.alike(tilings)
        offered = [offer(self.variables[first], tilings[first]) for first in firsts]
        if restrict is no_restriction:
            return Choices.of_groups(offered, group)
        pairs = zip(self.variables, group.tolist(), strict=True)
        return Choices.of([self.intern(restrict(variable, offered[number])) for variable, number in pairs])

    def alike(self, tilings: Sequence[Tiling]) -> tuple[list[int], Ints]:
        """Groups of equal variables that are the same now: the first of each group, and each variable's group."""
        if tilings is not self._grouped[0]:  # what was found last is mostly what is looked at next
            numbers: dict[Tiling, int] = {}
            number = [numbers.setdefault(tiling, len(numbers)) for tiling in tilings]
            self._group(tuple(tilings), np.array(number, dtype=np.int64))
        return self._grouped[1:]

    def _group(self, tilings: tuple[Tiling, ...], number: Ints) -> None:
        """Groups equal variables that are the same now, which the tilings' numbers say."""
        count = 1 + int(number.max(initial=0))
        firsts, group = distinct(self._contents * count + number, count * len(self._numbered))
        self._grouped = (tilings, firsts.tolist(), group)

    def solve(
        self, choices: Choices, max_table_entries: int = MAX_TABLE_ENTRIES, check: Callable[[], None] = go_on
    ) -> tuple[tuple[Tiling, ...], Solution]:
        """The least cost over all choices of a candidate for every variable.

        Nearly every strategy can be computed by local ops, so only those of the solution are looked at. Where one
        cannot be, all such candidates of its op are taken out, and of every equal op, and the rest is solved again.

        Args:
            choices: each variable's candidates, interned.
            max_table_entries: see ``eliminate``.
            check: called between parts of the work; what it raises ends it.

        Returns:
            The chosen tilings, and the solution that they stand for.

        Raises:
            InfeasibleError: a bucket would be larger.
        """
        allowed = self._without_vetoed(choices)
        while True:
            solution = self._network.solve(allowed, self.link_tables, max_table_entries, check)
            self.eliminated_entries += solution.entries
            chosen = allowed.chosen(solution.values)
            self._group(chosen, allowed.numbers(solution.values))
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

    def joint_tables(self, choices: Choices, check: Callable[[], None] = go_on) -> tuple[list[Table], Ints]:
        """The different tables over the variables that have a choice, and the number of each factor's.

        Args:
            choices: each variable's candidates.
            check: called between parts of the work; what it raises ends it.
        """
        tables = self._network.tables(choices, self.link_tables, check)
        self.tables.forget_pairs()
        return tables

    @cached_property
    def times(self) -> list[int]:
        """The time at which each variable's op is executed, or its tensor made: neighbours are near in this order."""
        times = [-1] * len(self.variables)
        for number, op in enumerate(self.ops):
            variable = self.variable_of_op[op.op.name]
            if times[variable] < 0:
                times[variable] = 2 * number
            for name in op.op.outputs:
                if name and times[self.variable_of_tensor[name]] < 0:
                    times[self.variable_of_tensor[name]] = 2 * number + 1
        for number, op in enumerate(self.ops):
            for name in op.op.inputs:
                if name in self.variable_of_tensor and times[self.variable_of_tensor[name]] < 0:
                    times[self.variable_of_tensor[name]] = 2 * number - 1
        return times

    def are_local(self, tilings: Sequence[Tiling]) -> bool:
        """True if every op's strategy can be computed by local ops."""
        return not any(True for _ in self._not_local(tilings))

    def _not_local(self, tilings: Sequence[Tiling]) -> Iterator[int]:
        """The contents of ops whose strategies cannot be computed by local ops."""
        for first in self.alike(tilings)[0]:
            variable = self.variables[first]
            if variable.op is not None and not self.is_local(variable.op, tilings[first]):
                yield self.content[first]

    def _without_vetoed(self, choices: Choices) -> Choices:
        """The candidates without those that were found to be no local ops."""
        if not self._with_vetoes:
            return choices
        keys = self._contents * len(choices.lists) + choices.list_of
        firsts, group = distinct(keys, len(self._numbered) * len(choices.lists))
        lists = [
            self._local_only(self.variables[first], choices[first])
            if self.content[first] in self._with_vetoes
            else choices[first]
            for first in firsts.tolist()
        ]
        return Choices.of_groups(lists, group)

    def _local_only(self, variable: SearchVariable, candidates: Candidates) -> Candidates:
        """The candidates that are local ops; replication at the last cut, which always is, where none is."""
        op = variable.op
        if op is None:
            return candidates
        strategies = tuple(candidate for candidate in candidates if self.is_local(op, candidate))
        if not strategies:
            first = candidates[0]
            strategies = (Tiling((*first.placements[:-1], Replicate()), first.ways),)
        return self.intern(strategies)

    def cost(self, tilings: Sequence[Tiling]) -> int:
        """The cost of a plan, by the tables, when the variables have these values: what moves, and all charges."""
        return sum(self.link_bytes(tilings)) + sum(self.op_charges(tilings))

    def link_bytes(self, tilings: Sequence[Tiling]) -> list[int]:
        """The bytes that move because of each link, when the variables have these values."""
        return self._entries(self.links, tilings)

    def op_charges(self, tilings: Sequence[Tiling]) -> list[int]:
        """The charge of each op, in the order of ``charges``, when the variables have these values."""
        return self._entries(self.charges, tilings)

    def _entries(self, links: Sequence[Link], tilings: Sequence[Tiling]) -> list[int]:
        groups = self.alike(tilings)[1].tolist()
        keys = [(link.kind, groups[link.tensor], groups[link.op]) for link in links]
        first = dict(zip(reversed(keys), reversed(links), strict=True))
        alone = {number: self.intern((tilings[number],)) for link in first.values() for number in link[:2]}
        tables = self.link_tables([(link, alone[link.tensor], alone[link.op]) for link in first.values()])
        entries = {key: int(table.flat[0]) for key, table in zip(first, tables, strict=True)}
        return [entries[key] for key in keys]

    def link_tables(self, links: Sequence[tuple[Link, Candidates, Candidates]]) -> list[Table]:
        """The tables of some links, for these candidates of their tensors and ops; the lists are interned."""
        requests = [
            Request(
                self._by_name[link.op_name], link.is_input, link.position, self.graph.tensors[link.name], first, second
            )
            for link, first, second in links
            if not link.is_charge
        ]
        moved = iter(self.tables.bytes_of(requests))
        return [
            self._of_all(
                link, self.tables.charges(self._by_name[link.op_name], second) if link.is_charge else next(moved)
            )
            for link, _, second in links
        ]

    def _of_all(self, link: Link, table: Table) -> Table:
        """A link's table, as often as it is there."""
        all_of_them = table if link.times == 1 else table * link.times
        if not link.is_charge and (link.tensor in self._partial or link.op in self._partial):
            return np.where(table < IMPOSSIBLE, all_of_them, self._impossible)
        return all_of_them
