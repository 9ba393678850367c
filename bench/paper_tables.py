"""Tables 1 and 2 of SPAA'21, corrected: tile sizes and costs of a convolution on P processors with M words each.

The paper counts words per processor, what is held at first among them, in a virtual global memory; every other number
of tofu is in bytes over all workers (``planner.cost.bounds``, ``planner.cost.grids``). Corrected here, each checked
numerically (docs/papers.md):

- Table 1 leaves out case 1b (equation 7), the optimum where (V K)^(2/3) < N_k N_bhw / P < M_L;
- the first minimum of table 2 lacks N_r N_s at the kernel, and sigma_w sigma_h at the input;
- cases 2a and 2b ask for M_L > N_k N_bhw / P: "/P" is missing;
- a tile reads sigma (T - 1) + N_r elements along a dim, not sigma T + N_r - 1, and where the stride exceeds the window
  no cost is a lower bound;
- M_L, the root of M_L + 3 K sqrt(M_L) = M, is sure to fit only where the halo at most doubles a tile of the input.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.errors import UsageError


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a convolution, in the letters of the paper."""

    b: int
    k: int
    c: int
    h: int
    w: int
    """N_b samples, N_k output features, N_c input features, and N_h x N_w positions of the output."""
    r: int = 1
    s: int = 1
    """N_r x N_s taps."""
    stride_w: int = 1
    stride_h: int = 1
    """sigma_w and sigma_h."""

    @property
    def positions(self) -> int:
        """N_bhw."""
        return self.b * self.h * self.w

    @property
    def taps(self) -> int:
        """N_r N_s."""
        return self.r * self.s

    @property
    def strides(self) -> int:
        """sigma_w sigma_h."""
        return self.stride_w * self.stride_h


@dataclass(frozen=True, slots=True)
class Row:
    """The row of a table that holds."""

    table: int
    """1: the tile of the output stays while c runs; 2: the best of all three that may stay."""
    case: str
    """``1a``, ``1b``, ``2a`` or ``2b``."""
    condition: str
    """Why it is this one, with numbers."""
    stays: str
    """``Out``, ``Ker`` or ``In``: whose tile stays."""
    words: float
    """What a processor moves, what it holds at first among it."""
    tile: tuple[tuple[str, float], tuple[str, float]]
    """The two tile sizes of the tensor that stays, such as T_k and T_bhw."""
    p_c: float
    """How many processors share a sum; 1 in case 1. Of a tensor that stays other than Out, along its own third loop."""
    m_l: float
    """Words that the tile may take."""
    is_bound: bool
    """Whether the words are a lower bound of every schedule's with M_L = M: not where a stride exceeds its window."""
    tile_fits: bool
    """Whether a tile of integer sides and about this size fits into M with its halo."""


def usable_memory(sizes: Sizes, memory: float) -> float:
    """M_L, the words for the tile that stays, such that all three tiles fit into M: where M_L + 3 K sqrt(M_L) = M.

    Args:
        sizes: of the convolution.
        memory: M, in words.
    """
    k = math.sqrt(sizes.strides * sizes.taps)
    root = (-3 * k + math.sqrt(9 * k * k + 4 * memory)) / 2
    return root * root


def paper_tables(sizes: Sizes, processors: int, memory: float, *, as_bound: bool = False) -> tuple[Row, Row]:
    """The rows of tables 1 and 2 that hold of a convolution.

    Args:
        sizes: of the convolution.
        processors: P.
        memory: M, words of each processor.
        as_bound: with M_L = M, whose words no schedule goes below, in place of the M_L that fits.

    Raises:
        UsageError: a number is not positive.
    """
    if processors < 1 or memory <= 0:
        raise UsageError(f"{processors} processors with {memory} words each", hint="both are positive")
    m_l = memory if as_bound else usable_memory(sizes, memory)
    staying = {
        "Out": sizes.k * sizes.positions / processors,
        "Ker": sizes.taps * sizes.k * sizes.c / processors,
        "In": sizes.strides * sizes.c * sizes.positions / processors,
    }
    first = _row(1, sizes, processors, memory, m_l, "Out", staying["Out"])
    every = [_row(2, sizes, processors, memory, m_l, name, words) for name, words in staying.items()]
    return first, min(every, key=lambda row: row.words)


def _row(table: int, sizes: Sizes, processors: int, memory: float, m_l: float, stays: str, held: float) -> Row:
    """The row of the loops in which this tensor's tile stays."""
    work = sizes.k * sizes.c * sizes.positions / processors
    k = math.sqrt(sizes.taps * sizes.strides)
    ideal = (work * k) ** (2 / 3)
    if held >= m_l:
        case, area, words = "1a", m_l, held + 2 * work * k / math.sqrt(m_l)
        condition = f"the tile of {stays} that a processor has, {held:.6g} words, is no smaller than M_L = {m_l:.6g}"
    elif held > ideal:
        case, area, words = "1b", held, held + 2 * work * k / math.sqrt(held)
        condition = f"(V K)^(2/3) = {ideal:.6g} < {held:.6g} words of {stays} < M_L = {m_l:.6g}"
    elif m_l >= ideal:
        case, area, words = "2a", ideal, 3 * ideal
        condition = f"M_L = {m_l:.6g} >= (V K)^(2/3) = {ideal:.6g} >= {held:.6g} words of {stays}"
    else:
        case, area, words = "2b", m_l, m_l + 2 * work * k / math.sqrt(m_l)
        condition = f"{held:.6g} words of {stays} < M_L = {m_l:.6g} < (V K)^(2/3) = {ideal:.6g}"
    tile = _tile(sizes, stays, area)
    # A processor's part of the tensor that stays is its tile in case 2; how often it goes into that tensor's share.
    shared = 1.0 if case.startswith("1") else area / held
    is_bound = sizes.stride_w <= sizes.s and sizes.stride_h <= sizes.r
    fits = stays != "Out" or _fits(sizes, tile[0][1], tile[1][1], memory)
    return Row(table, case, condition, stays, words, tile, shared, m_l, is_bound, fits)


def _tile(sizes: Sizes, stays: str, area: float) -> tuple[tuple[str, float], tuple[str, float]]:
    """The sides of a tile of so many words at which the two other tensors move least."""
    taps, strides = sizes.taps, sizes.strides
    if stays == "Out":
        return ("T_k", math.sqrt(area * strides / taps)), ("T_bhw", math.sqrt(area * taps / strides))
    if stays == "Ker":
        return ("T_k", math.sqrt(area * strides / taps)), ("T_c", math.sqrt(area / (taps * strides)))
    return ("T_c", math.sqrt(area / (taps * strides))), ("T_bhw", math.sqrt(area * taps / strides))


def _fits(sizes: Sizes, t_k: float, t_bhw: float, memory: float) -> bool:
    """Whether some integer tile of four fifths at least, T_c = 1, fits with its halo (the left side of equation 3)."""
    k = max(1, min(sizes.k, math.floor(t_k)))
    best = math.inf
    for w in range(1, sizes.w + 1):
        for h in range(1, sizes.h + 1):
            b = max(1, min(sizes.b, math.floor(t_bhw / (w * h))))
            if 0.8 * t_bhw <= w * h * b <= max(1.0, t_bhw):
                read = b * width(w, sizes.stride_w, sizes.s) * width(h, sizes.stride_h, sizes.r)
                best = min(best, read + w * h * b * k + sizes.taps * k)
    return best <= memory


def width(outputs: int, stride: int, window: int) -> int:
    """Elements of the input that so many outputs in a row read: sigma (T - 1) + N_r."""
    return stride * (outputs - 1) + window
