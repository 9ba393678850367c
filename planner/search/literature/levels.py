"""SoyBean's own algorithm (section 4): k cuts, each found by a dynamic programme over breadth-first levels.

The graph is taken as undirected; a breadth-first search puts what is joined in the same level or in adjacent ones
(section 4.2.2). The programme goes from level to level (equations 4 and 5); its state is the choices of a whole level
at once. The paper leaves element-wise functions out; here everything that touches at most two others is decided
beforehand, by them, which loses nothing. For one cut the programme is exact, as every order of elimination is. But a
wide level has very many states: that is what "original DP: n/a" says in Tofu's Table 1.

One cut takes O(N (d + 1)^c) for N ops, tensors of d dims and c choices in two adjacent levels. The cuts are made one
after the other (Algorithm 1). A cut's cost, ``2 c(k - 1) + delta`` there, is counted by boxes over all workers here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log10

from planner.algebra.tiling import UNCUT
from planner.errors import InfeasibleError
from planner.search.effort import LEVEL_STATES, LEVEL_STEPS
from planner.search.exact.eliminate import Factor, minimise
from planner.search.exact.order import find_order
from planner.search.model.found import Found
from planner.search.moves.move import Ground


def search_by_levels(ground: Ground) -> tuple[tuple[int, ...], Found]:
    """Finds a tiling for every tensor and op, cut by cut.

    Args:
        ground: the problem and its cuts.

    Raises:
        InfeasibleError: a level has too many states, or there are too many variables.
    """
    problem, cuts, restrict = ground.problem, ground.cuts, ground.free
    tilings = [UNCUT] * len(problem.variables)
    total, largest = 0, 1
    for number, ways in enumerate(cuts, start=1):
        options = [
            problem.intern(restrict(variable, problem.extensions(variable, tilings[variable.number], ways)))
            for variable in problem.variables
        ]
        sizes = [len(values) for values in options]
        factors = problem.factors(options)
        levels = levels_of(sizes, factors)
        # An elimination takes time in proportion to the variables that are left, so all of them to the square.
        if len(levels.sequence) ** 2 > LEVEL_STEPS:
            raise InfeasibleError(
                f"SoyBean's dynamic programme has {len(levels.sequence):,} tensors and ops to eliminate one by one, "
                "which would take minutes",
                hint="the strategy soybean finds the same cuts in another order of elimination",
            )
        ground.stop.check()
        ground.progress(f"deciding cut {number} of {len(cuts)}, by {len(levels.core)} breadth-first levels")
        try:
            solution = minimise(sizes, factors, LEVEL_STATES, levels.sequence)
        except InfeasibleError as error:
            raise _too_wide(levels.core, sizes) from error
        tilings = [values[value] for values, value in zip(options, solution.values.tolist(), strict=True)]
        total, largest = solution.total, max(largest, solution.largest_table)
    return cuts, Found(tuple(tilings), total, largest)


@dataclass(frozen=True, slots=True)
class Levels:
    """The order in which the programme decides."""

    before: tuple[int, ...]
    """Variables that touch at most two others, and are decided by them."""
    core: tuple[tuple[int, ...], ...]
    """Everything else, by level."""

    @property
    def sequence(self) -> list[int]:
        """All variables."""
        return [*self.before, *(variable for level in self.core for variable in level)]


def levels_of(sizes: Sequence[int], factors: Sequence[Factor]) -> Levels:
    """The levels of a sum of factors.

    Args:
        sizes: how many values each variable has.
        factors: pairwise tables.
    """
    scopes = [tuple(name for name in factor.variables if sizes[name] > 1) for factor in factors]
    order = find_order(sizes, scopes, [0] * len(sizes), most_neighbours=2)
    before = tuple(int(variable) for steps in order.rounds for variable in steps.variables)
    near: dict[int, dict[int, None]] = {variable: {} for variable in order.core}
    for _, scope in order.open:
        for variable in scope:
            near[variable].update(dict.fromkeys(peer for peer in scope if peer != variable))
    return Levels(before, tuple(_breadth_first(near)))


def _breadth_first(near: Mapping[int, Mapping[int, None]]) -> list[tuple[int, ...]]:
    """The variables by their distance from the first; a part that is not connected begins again."""
    levels: list[tuple[int, ...]] = []
    seen: set[int] = set()
    for start in near:
        level: tuple[int, ...] = () if start in seen else (start,)
        while level:
            seen.update(level)
            levels.append(level)
            level = tuple(dict.fromkeys(peer for variable in level for peer in near[variable] if peer not in seen))
    return levels


def _too_wide(levels: Sequence[Sequence[int]], sizes: Sequence[int]) -> InfeasibleError:
    widths = [sum(log10(sizes[variable]) for variable in level) for level in levels]
    widest = max(range(len(widths)), key=lambda level: widths[level])
    return InfeasibleError(
        f"SoyBean's dynamic programme has 10^{widths[widest]:.0f} states at level {widest + 1} of {len(levels)}, "
        f"where {len(levels[widest])} tensors and ops are to be decided together",
        hint="the strategy soybean finds the same cuts in another order of elimination",
    )
