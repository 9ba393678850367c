"""A bound raised where the best plan costs more than it: few variables, looked at by themselves, and branched on.

Passes end where no single pair of variables can raise the bound, though no plan is as cheap: along a loop, of a layer
forward and backward, each pair may be content with values of which no assignment is made. What a bound says of a pair's
parts holds of any of them alone: some variables, with what the pairs around have given to them, cost at least their own
share of the bound, and by how much more the bound rises. So

1. passes go on over the variables near those where the best plan costs more than the bound, which are few;
2. around each such place a region is taken, none over a variable of another one, and branched on: values with which
   the plan cannot be bettered are dropped, those of a variable of which few look good are taken one by one, the others
   together, and passes over the region bound each. The part whose bound is the least is the next.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from planner.search.bound.dual import Dual, Floats
from planner.search.effort import (
    ENTRIES_OF_A_CALL,
    NEAR_PASSES,
    NEAR_REACH,
    REGION_LOOK,
    REGION_PASSES,
    REGION_REACH,
    SHARE_ABOVE,
    SHARE_NEAR,
    SHARE_OF_REGION,
    BoundLimits,
)
from planner.stop import Stop

Neighbours = list[set[int]]
"""The variables with which each variable has a pair."""


def raise_in_regions(dual: Dual, values: Sequence[int], missing: float, limits: BoundLimits, stop: Stop) -> None:
    """Raises ``dual.lower``, if it can.

    Args:
        dual: passed over until that brought little.
        values: of the variables, in the best plan known.
        missing: by how much that plan costs more than the bound; no more than that is looked for.
        limits: how much work may be done.
        stop: asked between passes whether the search is to end.
    """
    near = neighbours(dual)
    heavy = np.flatnonzero(_above(dual, values) > missing * SHARE_ABOVE).tolist()
    _pass_over(dual, _grown(heavy, near, NEAR_REACH), limits.near_entries, stop)
    above = _above(dual, values)
    heavy = np.flatnonzero(above > missing * SHARE_OF_REGION).tolist()
    # A region adds to what is given now, which may bound a little less than an earlier pass has.
    dual.lower = dual.bound()
    gained = 0.0
    for region in regions(above, heavy, near):
        gained += narrowed_down(dual.within(region), missing - gained, limits.region_entries, stop)
    dual.lower += gained


def neighbours(dual: Dual) -> Neighbours:
    """The neighbours of each variable: those that share a pair with it."""
    near: Neighbours = [set() for _ in dual.own]
    for pair in dual.pairs:
        near[pair.first].add(pair.second)
        near[pair.second].add(pair.first)
    return near


def _above(dual: Dual, values: Sequence[int]) -> Floats:
    """The cost of each variable above the bound at these values; a pair counts half at each of its two."""
    above: Floats = np.array(
        [costs[value] - costs.min() for costs, value in zip(dual.with_given(), values, strict=True)]
    )
    for pair in dual.pairs:
        reduced = pair.rest()
        above[[pair.first, pair.second]] += (reduced[values[pair.first], values[pair.second]] - reduced.min()) / 2
    return above


def _pass_over(dual: Dual, members: Collection[int], entries: int, stop: Stop) -> None:
    """Passes over some variables only, until so many entries of tables are read."""
    part = dual.within(members)
    for _ in range(min(NEAR_PASSES, entries // _work(part))):
        if stop.is_due():
            break
        part.forward()
        part.backward()
    for pair, passed in zip(dual.pairs_within(members), part.pairs, strict=True):
        pair.to_first, pair.to_second = passed.to_first, passed.to_second


def _grown(members: Iterable[int], near: Neighbours, reach: int) -> list[int]:
    """Variables so many pairs away at most; ascending."""
    grown = set(members)
    for _ in range(reach):
        grown |= {neighbour for variable in grown for neighbour in near[variable]}
    return sorted(grown)


def regions(above: Floats, heavy: Sequence[int], near: Neighbours) -> list[list[int]]:
    """Regions, none over a variable of another one.

    Each is around the middle of some variables that are near each other, those of the dearest ones first. What hangs on
    a region by one pair is in no loop of it, and is left out.

    Args:
        above: by variable how much more than the bound the best plan costs there.
        heavy: the variables where that is much.
        near: by variable those that it has a pair with.
    """
    together: list[set[int]] = []
    for variable in heavy:
        if not any(variable in place for place in together):
            place, edge = {variable}, {variable}
            while edge:
                edge = set(_grown(edge, near, REGION_LOOK)).intersection(heavy) - place
                place |= edge
            together.append(place)
    disjoint_regions: list[list[int]] = []
    free = [set(peers) for peers in near]
    for place in sorted(together, key=lambda members: (-float(above[sorted(members)].sum()), min(members))):
        around = [_region(middle, free) for middle in _middles(place, near)]
        smallest = min(filter(None, around), key=len, default=[])
        if smallest:
            disjoint_regions.append(smallest)
            free = [set() if number in smallest else peers.difference(smallest) for number, peers in enumerate(free)]
    return disjoint_regions


def _middles(place: Collection[int], near: Neighbours) -> list[int]:
    """The variables from which the farthest of some others is the nearest; these hang together."""
    reached = [{variable} for variable in place]
    while not (middles := set.intersection(*reached)):
        reached = [set(_grown(variables, near, 1)) for variables in reached]
    return sorted(middles)


def _region(middle: int, near: Neighbours) -> list[int]:
    """The variables near a variable and in a loop there; empty if nothing is."""
    region = set(_grown([middle], near, REGION_REACH))
    while hanging := {variable for variable in region if len(near[variable] & region) < 2}:
        region -= hanging
    return sorted(region)


def narrowed_down(part: Dual, limit: float, entries: int, stop: Stop) -> float:
    """The least cost of a sum above its bound.

    Args:
        part: the sum.
        limit: what costs more by this much is not looked at.
        entries: of tables to be read, about.
        stop: asked between passes whether the search is to end.

    Returns:
        ``limit`` at most.
    """
    before = part.bound()
    number = 0
    open_parts: list[tuple[float, int, Dual]] = [(0.0, number, part)]
    while open_parts and entries > 0 and open_parts[0][0] < limit and not stop.is_due():
        least, own_number, part = heapq.heappop(open_parts)
        costs = part.at_least()
        value_lists = [np.flatnonzero(bounds < before + limit) for bounds in costs]
        if not all(map(len, value_lists)):
            continue
        part.keep(value_lists)
        costs = [bounds[value_list] for bounds, value_list in zip(costs, value_lists, strict=True)]
        if not part.pairs:
            heapq.heappush(open_parts, (least, own_number, part))
            break
        for variable, chosen in _branches(costs, part.bound() + limit * SHARE_NEAR):
            number += 1
            branch = part.where(variable, chosen)
            for _ in range(REGION_PASSES if entries > 0 and not stop.is_due() else 0):
                branch.forward()
                branch.backward()
                entries -= _work(branch)
            rise = max(least, branch.lower - before, float(costs[variable][chosen].min()) - before)
            heapq.heappush(open_parts, (rise, number, branch))
    return max(0.0, min(limit, open_parts[0][0] if open_parts else limit))


def _work(part: Dual) -> int:
    """Entries that a pass there and back reads, with what takes as long as reading them."""
    return 2 * (1 + sum(pair.table.size + ENTRIES_OF_A_CALL for pair in part.pairs))


def _branches(costs: Sequence[Floats], good: float) -> list[tuple[int, NDArray[np.int64]]]:
    """A variable of which few values look good, each of these by itself, and all others together."""
    numbers = [int((bounds <= good).sum()) for bounds in costs]
    undecided = [variable for variable, bounds in enumerate(costs) if len(bounds) > 1]
    variable = min(undecided, key=lambda number: (numbers[number] < 2, numbers[number], -len(costs[number])))
    looks_good = costs[variable] <= good
    bad_values = np.flatnonzero(~looks_good)
    singles = [(variable, np.array([value])) for value in np.flatnonzero(looks_good).tolist()]
    return [*singles, (variable, bad_values)] if len(bad_values) else singles
