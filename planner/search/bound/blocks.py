"""What is missing from a bound, made up block by block.

Message passing over a whole network stops below the least of the sum, and in a deep network nearly all that is missing
is missing inside of its blocks: some of it in each. What is left of the tables, when all is given, is nowhere negative,
so the leasts of any parts of it may be added to the bound. The parts are the network's blocks, small enough to be
looked into case by case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

import numpy as np

from planner.search.bound.cases import Dividers, Work, least_by_cases
from planner.search.bound.dual import Floats, Rest
from planner.search.bound.parts import in_parts

_VARIABLES = (50, 120)
"""Of a block, at least and at most."""
_ALLOWED = (0.25, 3.0)
"""A block may take so much of the work that is left, or so many times its share of it."""
_NOTHING = 1e-4
"""A block from which a smaller share is missing is left as it is."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """A bound by blocks."""

    lower: float
    """No assignment costs less."""
    at_least: list[Floats]
    """For every variable and value what an assignment with that value costs at least."""


def bound_by_blocks(
    rest: Rest, values: Sequence[int], kinds: Sequence[int], entries: float, dividers: Dividers
) -> Blocks:
    """Bounds what is left of a sum, and with it the sum.

    Args:
        rest: what is left of it.
        values: of the best assignment known, by variable.
        kinds: equal for variables of repeated layers.
        entries: of tables that may be read.
        dividers: known from blocks before; what is found out is added.
    """
    scopes = [(pair.first, pair.second) for pair, _ in rest.pairs]
    parts = in_parts([log2(len(costs)) for costs in rest.own], scopes, *_VARIABLES)
    part_of = {variable: number for number, part in enumerate(parts) for variable in part}
    inside: list[list[int]] = [[] for _ in parts]
    for number, (first, second) in enumerate(scopes):
        inside[max(part_of[first], part_of[second])].append(number)
    missing = [
        sum(float(rest.own[variable][values[variable]]) for variable in part)
        + sum(rest.at(number, *(values[variable] for variable in scopes[number])) for number in numbers)
        for part, numbers in zip(parts, inside, strict=True)
    ]
    total = sum(missing)
    gains = [0.0] * len(parts)
    stars = [costs.copy() for costs in rest.own]
    waiting, left = total, entries
    for place in sorted(range(len(parts)), key=lambda place: (-missing[place], place)):
        part, numbers = parts[place], inside[place]
        own_part = set(part)
        variables = sorted(own_part.union(*(scopes[number] for number in numbers)))
        local = {variable: position for position, variable in enumerate(variables)}
        own = [rest.own[one] if one in own_part else np.zeros_like(rest.own[one]) for one in variables]
        pairs = [(local[scopes[number][0]], local[scopes[number][1]], rest.table(number)) for number in numbers]
        for (first, second), (_, _, table) in zip((scopes[number] for number in numbers), pairs, strict=True):
            if first in own_part:
                stars[first] += table.min(axis=1)
            if second in own_part:
                stars[second] += table.min(axis=0)
        if missing[place] <= _NOTHING * total:
            continue
        # A block that gets too little gains nothing: so each may take much, and the first are those that miss the most.
        work = Work(left * max(_ALLOWED[0], min(1.0, _ALLOWED[1] * missing[place] / waiting)))
        waiting -= missing[place]
        allowed = work.entries
        dividers.work.entries = allowed
        gains[place] = least_by_cases(own, pairs, missing[place], work, [kinds[one] for one in variables], dividers)
        left = max(0.0, left - (allowed - work.entries) - (allowed - dividers.work.entries))
    lower = rest.constant + sum(gains)
    at_least = [lower + np.maximum(0.0, costs - gains[part_of[variable]]) for variable, costs in enumerate(stars)]
    return Blocks(lower, at_least)
