"""How a number of workers becomes a sequence of cuts."""

from __future__ import annotations


def prime_factors(workers: int) -> tuple[int, ...]:
    """The ways of each cut, largest first, as in Tofu, section 5.2: 8 -> (2, 2, 2), 6 -> (3, 2), 1 -> ()."""
    factors, rest, candidate = [], workers, 2
    while candidate * candidate <= rest:
        while rest % candidate == 0:
            factors.append(candidate)
            rest //= candidate
        candidate += 1
    if rest > 1:
        factors.append(rest)
    return tuple(sorted(factors, reverse=True))
