"""Tables 1 and 2 of SPAA'21 as printed, beside numeric optima of its equations; ``python bench/papers.py`` prints them.

``paper_tables.py`` has the tables as corrected; here the printed formulas are held against the least that equation 4
(tiles of real sides) and equation 3 (integers, with halos) allow, over drawn convolutions.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from math import inf, prod, sqrt
from random import Random
from typing import Any

import numpy as np
from paper_row import Paper, Row, holds
from paper_tables import Row as TableRow
from paper_tables import Sizes, paper_tables, usable_memory, width

PROBLEMS = 400
SMALL_PROBLEMS = 40


def equation_4(sizes: Sizes, processors: int, m_l: float) -> float:
    """The least words of equation 4 over a fine grid of W_k W_bhw, T_k and T_bhw, all of them real numbers.

    Tiles are bounded by 1 from below in the paper; its optima do without, and so does this.
    """
    work = sizes.k * sizes.c * sizes.positions / processors
    least = sizes.k * sizes.positions / processors
    held = np.append(np.geomspace(least, work, 400), min(max(m_l, least), work))
    ratios = np.geomspace(1e-5, 1e5, 501)[:, None]
    area = np.minimum(held, m_l)[None, :]
    t_k, t_bhw = np.sqrt(area * ratios), np.sqrt(area / ratios)
    words = held[None, :] + work * (sizes.taps / t_bhw + sizes.strides / t_k)
    return float(words.min())


def equation_3(sizes: Sizes, processors: int, memory: int) -> float:
    """The least words of equation 3 over all integer W and T, T_c = 1, with the halo's true width."""
    best = inf
    n = (sizes.b, sizes.k, sizes.c, sizes.h, sizes.w)
    divisors = [[d for d in range(1, one + 1) if one % d == 0] for one in n]
    for work in itertools.product(*divisors):
        if prod(work) * processors != prod(n):
            continue
        wb, wk, wc, wh, ww = work
        for tb, tk, th, tw in itertools.product(*(range(1, one + 1) for one in (wb, wk, wh, ww))):
            reads = width(tw, sizes.stride_w, sizes.s) * width(th, sizes.stride_h, sizes.r)
            if reads * tb + tw * th * tb * tk + sizes.taps * tk > memory:
                continue
            words = wb * wk * ww * wh + wk * wc * sizes.taps * ww * wh * wb / (tw * th * tb)
            best = min(best, words + wb * wc * reads * ww * wh * wk / (tw * th * tk))
    return best


def drawn(random: Random) -> tuple[Sizes, int, float]:
    """A convolution, processors and their memory in words."""
    stride = random.choice([1, 1, 2])
    taps = random.choice([1, 3, 5]) if stride == 1 else 3
    sizes = Sizes(
        b=random.choice([1, 8, 32]), k=random.randint(8, 512), c=random.randint(8, 512), h=random.randint(4, 28),
        w=random.randint(4, 28), r=taps, s=taps, stride_w=stride, stride_h=stride,
    )  # fmt: skip
    return sizes, random.choice([1, 2, 8, 64, 512, 4096]), 10 ** random.uniform(2, 8)


def drawn_small(random: Random) -> tuple[Sizes, int, int]:
    """One so small that all integer schedules can be looked at."""
    stride = random.choice([1, 2])
    taps = random.choice([1, 2, 3]) if stride == 1 else random.choice([2, 3])
    b, k, c, h, w = (random.randint(1, most) for most in (2, 4, 4, 3, 4))
    return Sizes(b, k, c, h, w, taps, taps, stride, stride), random.choice([1, 2, 4]), random.randint(10, 80)


def printed(sizes: Sizes, processors: int, m_l: float, row: TableRow) -> float:
    """The words that the paper prints for the case that holds."""
    work = sizes.k * sizes.c * sizes.positions / processors
    k = sqrt(sizes.taps * sizes.strides)
    held = sizes.k * sizes.positions / processors
    if row.case == "2a":
        return 3.0 * float((work * k) ** (2 / 3))
    if row.case == "2b":
        return m_l + 2 * work * k / sqrt(m_l)
    if row.table == 2:  # the printed minimum, without the factors of the kernel and of the input
        held = min(held, sizes.k * sizes.c / processors, sizes.c * sizes.positions / processors)
    return held + 2 * work * k / sqrt(m_l if row.case == "1a" else held)


def compared() -> dict[str, tuple[int, float]]:
    """By table and case, how many drawn problems have it, and the largest ratio of the printed words to the least, or
    of the least to the printed words.
    """
    random = Random(20)
    found: dict[str, tuple[int, float]] = {}
    for _ in range(PROBLEMS):
        sizes, processors, memory = drawn(random)
        first, second = paper_tables(sizes, processors, memory)
        if first.p_c > sizes.c:  # so many processors cannot share a sum
            continue
        for row, least in ((first, equation_4(sizes, processors, first.m_l)), (second, second.words)):
            words = printed(sizes, processors, row.m_l, row)
            name = f"{row.table} {row.case}"
            seen, most = found.get(name, (0, 1.0))
            found[name] = (seen + 1, max(most, words / least, least / words))
    return found


def bounded() -> tuple[int, int, float]:
    """Drawn problems, those in which no integer schedule is below the words of M_L = M, and the least ratio to them."""
    random, problems, above, nearest = Random(23), 0, 0, inf
    for _ in range(SMALL_PROBLEMS):
        sizes, processors, memory = drawn_small(random)
        least = equation_3(sizes, processors, memory)
        if least < inf:
            row, _ = paper_tables(sizes, processors, memory, as_bound=True)
            problems, above = problems + 1, above + (row.words <= least * (1 + 1e-9))
            nearest = min(nearest, least / row.words)
    return problems, above, nearest


def usable() -> float:
    """How far M_L + 3 K sqrt(M_L) is from M, of the M_L that the paper prints, over drawn problems, at most."""
    random, most = Random(24), 0.0
    for _ in range(PROBLEMS):
        sizes, _, memory = drawn(random)
        k = sqrt(sizes.taps * sizes.strides)
        m_l = memory - (3 * k * (sqrt(9 * k * k + 4 * memory) - 3 * k)) / 2
        most = max(most, abs(m_l / usable_memory(sizes, memory) - 1), abs((m_l + 3 * k * sqrt(m_l)) / memory - 1))
    return most


CASES = {
    "1 1a": ("Table 1, row 1", "N_k N_bhw / P + 2 V K / sqrt(M_L)"),
    "1 1b": ("Equation 7", "N_k N_bhw / P + 2 V K / sqrt(N_k N_bhw / P); Table 1 leaves it out"),
    "1 2a": ("Table 1, row 2", "3 (V K)^(2/3)"),
    "1 2b": ("Table 1, row 3", "M_L + 2 V K / sqrt(M_L)"),
    "2 1a": ("Table 2, row 1", "min(N_k N_bhw, N_k N_c, N_c N_bhw) / P + 2 V K / sqrt(M_L)"),
    "2 2a": ("Table 2, row 2", "3 (V K)^(2/3)"),
    "2 2b": ("Table 2, row 3", "M_L + 2 V K / sqrt(M_L)"),
}


def rows(found: Mapping[str, Any]) -> list[Row]:
    """The lines."""
    made: list[Row] = []
    for case, (where, formula) in CASES.items():
        seen, most = found["compared"][case]
        is_so = most < 1.001
        made.append(
            Row(
                where,
                f"words of a processor, {seen} drawn problems",
                formula,
                f"the least, times {most:.4f} at most",
                holds(is_so),
                "" if is_so else "with N_r N_s at N_k N_c and sigma_w sigma_h at N_c N_bhw it is the least",
            )
        )
    problems, above, nearest = found["bounded"]
    made.append(
        Row(
            "Section 2.1",
            "with M_L = M no schedule is below",
            f"{problems} of {problems}",
            f"{above} of {problems}, the nearest {nearest:.2f} times",
            holds(above == problems),
        )
    )
    most = found["usable"]
    made.append(
        Row(
            "Section 2.1",
            "M_L of M such that M_L + 3 K sqrt(M_L) = M",
            "M - 3 K (sqrt(9 K^2 + 4 M) - 3 K) / 2",
            f"off by {most:.0e} at most",
            holds(most < 1e-6),
        )
    )
    return made


PAPER = Paper("DistCNN", {"compared": (compared, ()), "bounded": (bounded, ()), "usable": (usable, ())}, rows)
