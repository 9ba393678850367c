"""Block proposals: where to cut a dim so that floor-divisions and remainders keep boxes.

4 heads of 16 merged into a dim of 64 and cut on 3 workers should fall at 32/16/16, not at 22/21/21: the merge reads
``x[i // 16, i % 16]``, so i is cut at multiples of 16; the split that undoes it reads ``x[16*h + d]``, so the dim of 64
is. The analysis only proposes; the search decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import gcd

from planner.tdl.expr import FloorDiv, Index, Mod, Plus, Times, Var, index_variables


def divided_blocks(index: Index) -> Iterator[tuple[str, int]]:
    """(variable, block) for every floor-division and remainder in an index.

    Example:
        ``(i // 4) % 3`` proposes blocks of 4 and of 12 for i.
    """
    match index:
        case FloorDiv(inner, divisor) | Mod(inner, divisor):
            yield from divided_blocks(inner)
            for name, rate in rates(inner).items():
                block = _period(rate, divisor)
                if block > 1:
                    yield name, block
        case Plus(left, right):
            yield from divided_blocks(left)
            yield from divided_blocks(right)
        case Times(inner, _):
            yield from divided_blocks(inner)
        case _:
            return


def dim_blocks(index: Index) -> tuple[int, ...]:
    """The blocks that an index ``D*h + d`` proposes for the dim that it indexes: D, ascending.

    A lone ``D*h`` proposes none: its parts read no whole blocks.
    """
    terms = [term for term in _summands(index) if any(True for _ in index_variables(term))]
    if len(terms) < 2:
        return ()
    blocks = {
        int(term.factor)
        for term in terms
        if isinstance(term, Times) and term.factor.denominator == 1 and term.factor > 1
    }
    return tuple(sorted(blocks))


def rates(index: Index) -> dict[str, Fraction]:
    """The rate at which an index grows with each of its variables, rounding aside."""
    match index:
        case Var(name):
            return {name: Fraction(1)}
        case Plus(left, right):
            total = rates(left)
            for name, rate in rates(right).items():
                total[name] = total.get(name, Fraction(0)) + rate
            return total
        case Times(inner, factor):
            return {name: rate * factor for name, rate in rates(inner).items()}
        case FloorDiv(inner, divisor):
            return {name: rate / divisor for name, rate in rates(inner).items()}
        case Mod(inner, _):
            return rates(inner)
    return {}


def _period(rate: Fraction, divisor: int) -> int:
    """The least step of a variable that moves ``rate * variable`` by a multiple of the divisor."""
    if rate == 0:
        return 1
    modulus = rate.denominator * divisor
    return modulus // gcd(abs(rate.numerator), modulus)


def _summands(index: Index) -> Iterator[Index]:
    if isinstance(index, Plus):
        yield from _summands(index.left)
        yield from _summands(index.right)
    else:
        yield index
