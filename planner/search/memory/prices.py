"""Prices of a byte of memory at each moment, given the plans so far: a small linear programme.

Plans may be mixed in thought, a share of each. The cheapest mixture that lies within a limit at every moment has dual
values, one for each moment: what the objective would fall by if there were one byte more. At these prices no known plan
is cheaper than the mixture. So a plan that is cheaper, if the search finds one, is new and lies where it is needed; if
it finds none, no plan within the limit at these moments is cheaper than the mixture (Dantzig and Wolfe, "Decomposition
principle for linear programs", 1960).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def cheapest_mixture(
    objectives: Sequence[int], excesses: Sequence[Sequence[int]], highest_price: Fraction
) -> tuple[Fraction, tuple[Fraction, ...]]:
    """The cheapest mixture of plans that is within a limit at every moment, or pays the highest price for what is not.

    Args:
        objectives: of each plan; at least one.
        excesses: by plan and moment, the bytes above the limit; negative where there is room.
        highest_price: of a byte above the limit.

    Returns:
        The mixture's objective, with what it is charged where it exceeds the limit; and the price of a byte, by moment,
        at most the highest one.

    The simplex method on exact fractions, by Bland's rule: columns are plans, then for each moment what is above the
    limit and what is below it. The first plan alone, with what it has above or below, is where it starts.
    """
    plans, moments = len(objectives), len(excesses[0])
    columns = plans + 2 * moments
    over = [excess > 0 for excess in excesses[0]]
    basis = [0, *(plans + moment if over[moment] else plans + moments + moment for moment in range(moments))]
    share = [Fraction(int(column < plans)) for column in range(columns)] + [Fraction(1)]
    rows = [share]
    for moment in range(moments):
        row = [Fraction(excess[moment]) for excess in excesses] + [Fraction(0)] * (2 * moments + 1)
        row[plans + moment], row[plans + moments + moment] = Fraction(-1), Fraction(1)
        sign = -1 if over[moment] else 1
        first = row[0]
        rows.append([sign * (value - first * amount) for value, amount in zip(row, share, strict=True)])
    price = (
        [Fraction(objective) for objective in objectives] + [highest_price] * moments + [Fraction(0)] * (moments + 1)
    )
    for variable, row in zip(basis, rows, strict=True):
        price = _less(price, row, price[variable])
    while True:
        # Bland's rule, here and in the ratios: the first of several, so that no basis comes twice.
        entering = next((column for column in range(columns) if price[column] < 0), None)
        if entering is None:
            return -price[-1], tuple(price[plans + moments : columns])
        ratios = [
            (row[-1] / row[entering], basis[number], number) for number, row in enumerate(rows) if row[entering] > 0
        ]
        assert ratios, "shares add up to 1 and memory has a price: the programme is bounded"
        number = min(ratios)[2]
        pivot = [value / rows[number][entering] for value in rows[number]]
        rows = [pivot if place == number else _less(row, pivot, row[entering]) for place, row in enumerate(rows)]
        price = _less(price, pivot, price[entering])
        basis[number] = entering


def _less(row: list[Fraction], pivot: list[Fraction], times: Fraction) -> list[Fraction]:
    """A row less so many times another."""
    return row if not times else [value - times * amount for value, amount in zip(row, pivot, strict=True)]
