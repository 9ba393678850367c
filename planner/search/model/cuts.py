"""The sequence of cuts for a number of workers."""

from __future__ import annotations

from collections.abc import Sequence


def prime_factors(workers: int) -> tuple[int, ...]:
    """The ways of each cut, largest first, as in Tofu, section 5.2: 8 -> (2, 2, 2), 6 -> (3, 2), 1 -> ()."""
    factors, quotient, candidate = [], workers, 2
    while candidate * candidate <= quotient:
        while quotient % candidate == 0:
            factors.append(candidate)
            quotient //= candidate
        candidate += 1
    if quotient > 1:
        factors.append(quotient)
    return tuple(sorted(factors, reverse=True))


def cuts_of_levels(ways: Sequence[int]) -> tuple[int, ...]:
    """The ways of each cut of a machine, level by level: (4, 18) -> (2, 2, 3, 3, 2).

    The workers of one device group are then those that share their first cuts, so that outer cuts, which move the
    least, are the ones over slow links (SoyBean, section 5.1).

    Args:
        ways: of each level, outermost first.
    """
    return tuple(factor for level in ways for factor in prime_factors(level))
