"""Placements and tilings: how an index space is divided among workers, cut by cut.

The text form is ``S(0)/2 S(1)/3 R/2``: outermost cut first, the ways of each cut after the slash. As grammar::

    tiling    ::= (placement/ways)* | R/1       one for each cut; R/1: there is one worker
    ways      ::= count | (share:share...)      in equal parts, or in this proportion
    placement ::= S(dim) | S(dim,block) | S(dim)@nest | R | P | P(Max) | P(Min) | P(Prod) | O(group)

Four workers, a tensor of 12 elements:

    >>> for text in ("S(0)/2 S(0)/2", "S(0)@1/2 S(0)/2", "S(0,4)/2 R/2", "S(0)/(3:1) R/2", "P/2 O(1)/2"):
    ...     print(text, "=", *Tiling.parse(text, (2, 2)).boxes((12,)))
    S(0)/2 S(0)/2 = [0:3] [3:6] [6:9] [9:12]
    S(0)@1/2 S(0)/2 = [0:3] [6:9] [3:6] [9:12]
    S(0,4)/2 R/2 = [0:8] [0:8] [8:12] [8:12]
    S(0)/(3:1) R/2 = [0:9] [0:9] [9:12] [9:12]
    P/2 O(1)/2 = [0:0] [0:12] [0:0] [0:12]

Order matters: ``S(0)/2 S(1)/2 S(0)/2`` and ``S(0)/2 S(0)/2 S(1)/2`` have equal tile shapes and different owners. Cuts
along one dim *nest* in their own order, the outermost dividing it first, unless the tiling says otherwise: in
``S(0)@1/2 S(0)/2`` the second cut divides dim 0 first, and the first cut each of its pieces. So a tensor can be spread
within the groups of an inner cut (SPAA'21, section 2.2, "initial data distribution"). For even cuts this is SoyBean's
tiling (section 4); uneven cuts, blocks and partial values go beyond it. On devices of different speed or memory, parts
are in proportion: of ``S(0)/(3:1)`` the first group has three quarters (Tofu, section 9, leaves this to others).

The same class divides an op's iteration space: there a "dim" is an index variable, and ``R`` means that the
workers do the same work again.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import gcd, prod
from operator import itemgetter
from typing import ClassVar, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.algebra.region import Boxes
from planner.errors import UsageError


class Reducer(enum.Enum):
    """Commutative and associative functions that join partial results (Tofu, section 4.1)."""

    SUM = "Sum"
    MAX = "Max"
    MIN = "Min"
    PROD = "Prod"


class Shares(NamedTuple):
    """The proportions of a cut's parts."""

    block: int
    """Pieces are made of whole blocks."""
    of: tuple[int, ...]
    """The share of each group, in whole numbers without common factors, not all equal."""


class Shard(NamedTuple):
    """Divided along one dim; pieces differ by at most one block.

    A tuple, since tilings are compared and looked up all the time, which for tuples takes the least.
    """

    dim: int
    block: int = 1
    """Pieces are made of whole blocks: 64 in blocks of 16 falls 32/16/16 on three workers."""
    nest: int = 0
    """Cuts along one dim divide it in the order of these numbers, and of the cuts where they are equal."""
    shares: tuple[int, ...] = ()
    """The share of each group of a proportional cut, without common factors; () where all are equal."""

    @property
    def how(self) -> int | Shares:
        """The division of any dim."""
        return Shares(self.block, self.shares) if self.shares else self.block

    def __str__(self) -> str:
        where = f"S({self.dim})" if self.block == 1 else f"S({self.dim},{self.block})"
        return f"{where}@{self.nest}" if self.nest else where


@dataclass(frozen=True, slots=True, eq=False)
class Replicate:
    """Every group has all of it. It is always the same object, so that equal tilings are quickly seen to be so."""

    _instance: ClassVar[Replicate | None] = None

    def __new__(cls) -> Replicate:
        if cls._instance is None:
            cls._instance = object.__new__(cls)
        return cls._instance

    def __hash__(self) -> int:
        return 1

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True, slots=True)
class Partial:
    """Every group has a partial result of all of it, to be joined by the reducer."""

    reducer: Reducer = Reducer.SUM

    def __str__(self) -> str:
        return "P" if self.reducer is Reducer.SUM else f"P({self.reducer.value})"


@dataclass(frozen=True, slots=True)
class Only:
    """One group has all of it, the others have nothing."""

    group: int

    def __str__(self) -> str:
        return f"O({self.group})"


Placement: TypeAlias = Shard | Replicate | Partial | Only

MOST_SHARES: Final = 1000
"""The largest sum of the shares of a cut, without common factors."""

_PLACEMENT = re.compile(
    r"(?:S\((?P<dim>[0-9]{1,18})(?:,(?P<block>[0-9]{1,18}))?\)(?:@(?P<nest>[0-9]{1,9}))?"
    r"|(?P<r>R)|P(?:\((?P<reducer>\w+)\))?"
    r"|O\((?P<group>[0-9]{1,18})\))(?:/(?:(?P<ways>[0-9]{1,18})|\((?P<shares>[0-9]{1,4}(?::[0-9]{1,4})+)\)))?"
)


def parse_placement(text: str) -> tuple[Placement, int | None]:
    """Reads ``S(0)``, ``S(1,16)/3``, ``S(0)/(3:1)``, ``S(0)@1/2``, ``R/2``, ``P``, ``P(Max)``, ``O(1)``.

    Returns:
        The placement, and its ways; None where they are not said.

    Raises:
        UsageError: the text is none of these, its blocks are empty, or its shares no proportion.
    """
    match = _PLACEMENT.fullmatch(text)
    if match is None:
        # O(group) is read from plans, and is nothing that a user can ask for.
        raise UsageError(f"placement {text!r} cannot be read", hint="write S(dim), S(dim,block), R or P, e.g. S(0)/2")
    ways = int(match["ways"]) if match["ways"] else None
    shares = tuple(map(int, match["shares"].split(":"))) if match["shares"] else ()
    if shares:
        ways, shares = len(shares), _checked(shares, text, is_divided=match["dim"] is not None)
    if match["dim"]:
        block = int(match["block"] or 1)
        if block < 1:
            raise UsageError(f"placement {text!r} has blocks of {block}", hint="a block has at least 1 element")
        return Shard(int(match["dim"]), block, int(match["nest"] or 0), shares), ways
    if match["r"]:
        return Replicate(), ways
    if match["group"]:
        return Only(int(match["group"])), ways
    try:
        return Partial(Reducer(match["reducer"] or "Sum")), ways
    except ValueError as error:
        raise UsageError(f"placement {text!r} names no reducer", hint="Sum, Max, Min or Prod") from error


def _checked(shares: tuple[int, ...], text: str, *, is_divided: bool) -> tuple[int, ...]:
    """Shares without common factors; () where they are equal.

    Raises:
        UsageError: nothing is divided, a group has none, or they are finer than ``MOST_SHARES``.
    """
    if not is_divided:
        raise UsageError(f"placement {text!r} divides nothing in shares", hint="write S(dim)/(3:1), or R/2")
    if 0 in shares:
        raise UsageError(f"placement {text!r} leaves a group without a share", hint="each group has a share above 0")
    proportion = least_shares(shares)
    if sum(proportion) > MOST_SHARES:
        raise UsageError(
            f"placement {text!r} has shares of more than {MOST_SHARES:,} parts", hint="round them, e.g. to (3:1)"
        )
    return proportion


def least_shares(shares: Sequence[int]) -> tuple[int, ...]:
    """The proportion without common factors; () where all groups have the same."""
    proportion = tuple(share // gcd(*shares) for share in shares)
    return () if len(set(proportion)) == 1 else proportion


def split_bounds(
    lo: NDArray[np.int64], hi: NDArray[np.int64], ways: int, piece: NDArray[np.int64], how: int | Shares
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Piece number ``piece`` of each interval ``[lo, hi)`` cut ``ways`` ways in whole blocks.

    Of equal pieces the first ones are the longer ones; in shares, each ends at the block that is nearest to its share.
    The last block of an interval may be short.
    """
    block = how.block if isinstance(how, Shares) else how
    blocks = -(-(hi - lo) // block)
    if isinstance(how, Shares):
        ends = np.cumsum((0, *how.of))
        first, last = ((2 * blocks * ends[index] + ends[-1]) // (2 * ends[-1]) for index in (piece, piece + 1))
    else:
        quotient, remainder = blocks // ways, blocks % ways
        first, last = (index * quotient + np.minimum(index, remainder) for index in (piece, piece + 1))
    return np.minimum(lo + block * first, hi), np.minimum(lo + block * last, hi)


@dataclass(frozen=True, slots=True)
class Tiling:
    """The ordered placements of a tensor (or of an op's iteration space), outermost cut first."""

    told: ClassVar = "="

    placements: tuple[Placement, ...]
    ways: tuple[int, ...]
    """The number of groups that each cut makes; as long as ``placements``."""
    _hash: int = field(init=False, repr=False, compare=False)
    """Tilings are the keys of every table of the search, so the hash is computed once."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.placements, self.ways)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def workers(self) -> int:
        return prod(self.ways)

    @property
    def is_disjoint(self) -> bool:
        """True if no element has two owners and every owner has the final value."""
        return all(isinstance(placement, Shard | Only) for placement in self.placements)

    @property
    def has_partial(self) -> bool:
        return any(isinstance(placement, Partial) for placement in self.placements)

    def extend(self, placement: Placement, ways: int) -> Tiling:
        """This tiling with one more cut, inside all the others; the same object for the same arguments."""
        return _extended(self, placement, ways)

    def outermost(self, cuts: int) -> Tiling:
        """The tiling of the first few cuts alone."""
        return Tiling(self.placements[:cuts], self.ways[:cuts])

    def cut_by_cut(self) -> Iterator[tuple[Tiling, Placement, int]]:
        """The tiling of the outer cuts, the placement and the ways, of each cut."""
        prefix = UNCUT
        for placement, ways in zip(self.placements, self.ways, strict=True):
            yield prefix, placement, ways
            prefix = prefix.extend(placement, ways)

    def boxes(self, shape: tuple[int, ...]) -> Boxes:
        """The region of each worker: worker 0 first, the innermost cut varying fastest."""
        return _boxes(self, shape)

    @property
    def is_nested(self) -> bool:
        """True if cuts along some dim nest in another order than their own."""
        return any(isinstance(placement, Shard) and placement.nest for placement in self.placements)

    @property
    def plain(self) -> Tiling:
        """The same placements, nested in the order of the cuts."""
        if not self.is_nested:
            return self
        return Tiling(tuple(_plain(placement) for placement in self.placements), self.ways)

    @property
    def settled(self) -> Tiling:
        """The same division, with the least numbers that say how cuts nest: equal divisions are equal tilings then."""
        return _settled(self) if self.is_nested else self

    @property
    def dims(self) -> tuple[int, ...]:
        """The dims that are cut, by cut."""
        return tuple(placement.dim for placement in self.placements if isinstance(placement, Shard))

    @property
    def worth(self) -> NDArray[np.float64] | None:
        """The share that each worker's cuts state, beside an even share, shape [workers]; None if all are even."""
        stated = [
            np.array(placement.shares)[coordinates(self.ways)[:, cut]] * (len(placement.shares) / sum(placement.shares))
            for cut, placement in enumerate(self.placements)
            if isinstance(placement, Shard) and placement.shares
        ]
        return np.prod(stated, axis=0) if stated else None

    @property
    def busy(self) -> tuple[int, ...]:
        """The workers that have a part: all but those that an ``Only`` leaves idle."""
        groups = coordinates(self.ways).tolist()
        only = [(cut, placement.group) for cut, placement in enumerate(self.placements) if isinstance(placement, Only)]
        return tuple(worker for worker, group in enumerate(groups) if all(group[cut] == owner for cut, owner in only))

    def __str__(self) -> str:
        parts = zip(self.placements, self.ways, strict=True)
        return " ".join(f"{placement}/{ways_text(placement, ways)}" for placement, ways in parts) or "R/1"

    @classmethod
    def parse(cls, text: str, ways: tuple[int, ...]) -> Tiling:
        """Reads the text form; one placement without ways means it at every cut.

        Raises:
            UsageError: the text cannot be read or does not fit the cuts.
        """
        parts = [parse_placement(part) for part in text.split()]
        if len(parts) == 1 and parts[0][1] is None:
            return cls(tuple(parts[0][0] for _ in ways), ways)
        text_ways = tuple(cut if groups is None else groups for (_, groups), cut in zip(parts, ways, strict=False))
        if len(parts) == 1 and not ways and parts[0] == (Replicate(), 1):
            return cls((), ())
        if len(parts) != len(ways) or text_ways != ways:
            want = " ".join(f"?/{cut}" for cut in ways)
            raise UsageError(
                f"tiling {text!r} does not fit the cuts", hint=f"write a placement for each cut of this plan: {want}"
            )
        return cls(tuple(placement for placement, _ in parts), ways).settled


def ways_text(placement: Placement, ways: int) -> str:
    """The text after the slash: the ways of a cut, or the shares of its groups."""
    shares = placement.shares if isinstance(placement, Shard) else ()
    return f"({':'.join(map(str, shares))})" if shares else str(ways)


UNCUT = Tiling((), ())
"""The tiling before any cut: one worker has all of it."""


def _plain(placement: Placement) -> Placement:
    return placement._replace(nest=0) if isinstance(placement, Shard) and placement.nest else placement


@lru_cache(maxsize=65536)
def _settled(tiling: Tiling) -> Tiling:
    """Along each dim the numbers 0, 1, ...; a cut has the number of the one that divides the dim before it if it comes
    after that one in the order of the cuts too.
    """
    nests: dict[int, int] = {}
    for _, cuts, _ in cuts_along(tiling):
        number = 0
        for before, cut in zip((-1, *cuts), cuts, strict=False):
            number += cut < before
            nests[cut] = number
    placements = tuple(
        placement._replace(nest=nests[cut]) if isinstance(placement, Shard) else placement
        for cut, placement in enumerate(tiling.placements)
    )
    return Tiling(placements, tiling.ways)


@lru_cache(maxsize=1 << 20)
def _extended(tiling: Tiling, placement: Placement, ways: int) -> Tiling:
    return Tiling((*tiling.placements, placement), (*tiling.ways, ways))


def coordinates(ways: tuple[int, ...]) -> NDArray[np.int64]:
    """The group of each worker at each cut, shape [workers, cuts]."""
    if not ways:
        return np.zeros((1, 0), dtype=np.int64)
    return _coordinates(ways)


@lru_cache(maxsize=1024)
def _coordinates(ways: tuple[int, ...]) -> NDArray[np.int64]:
    grid = np.indices(ways, dtype=np.int64).reshape(len(ways), -1)
    groups = np.ascontiguousarray(grid.T)
    groups.flags.writeable = False
    return groups


Piece: TypeAlias = tuple[int, int | Shares | Only]
"""A cut of one dim: its ways, and the block of its pieces, with their shares if these differ, or which group alone has
all."""
Along: TypeAlias = tuple[tuple[int, tuple[int, ...], tuple[Piece, ...]], ...]
"""The cuts along each dim that is cut at all, in the order in which they divide it, with their ways."""


@lru_cache(maxsize=65536)
def shortest_piece(extent: int, cuts: tuple[Piece, ...]) -> int:
    """Elements of the shortest piece of a dim."""
    lo, hi = pieces(extent, cuts)
    return int((hi - lo).min())


@lru_cache(maxsize=65536)
def pieces(extent: int, cuts: tuple[Piece, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The beginnings and ends of the pieces of one dim, each of shape [pieces]; the last cut's vary fastest.

    Args:
        extent: of the dim.
        cuts: those along it, the one that divides the dim first before the others.
    """
    lo, hi = np.zeros(1, dtype=np.int64), np.array([extent], dtype=np.int64)
    if cuts:
        outer_lo, outer_hi = pieces(extent, cuts[:-1])
        ways, how = cuts[-1]
        group = np.tile(np.arange(ways), len(outer_lo))
        lo, hi = np.repeat(outer_lo, ways), np.repeat(outer_hi, ways)
        if isinstance(how, Only):
            hi = np.where(group == how.group, hi, lo)
        else:
            lo, hi = split_bounds(lo, hi, ways, group, how)
    lo.flags.writeable = hi.flags.writeable = False
    return lo, hi


@lru_cache(maxsize=65536)
def distinct_pieces(extent: int, cuts: tuple[Piece, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The beginnings and ends of pieces of one dim, one of all that are as long and lie at the same borders."""
    lo, hi = pieces(extent, cuts)
    _, first = np.unique(4 * (hi - lo) + 2 * (lo == 0) + (hi == extent), return_index=True)
    lo, hi = lo[first], hi[first]
    lo.flags.writeable = hi.flags.writeable = False
    return lo, hi


@lru_cache(maxsize=4096)
def piece_of(ways: tuple[int, ...], cuts: tuple[int, ...]) -> NDArray[np.int64]:
    """The piece of a dim that each worker has, when these of all cuts divide it in this order; shape [workers]."""
    groups = coordinates(ways)
    numbers = np.zeros(len(groups), dtype=np.int64)
    for cut in cuts:
        numbers = numbers * ways[cut] + groups[:, cut]
    numbers.flags.writeable = False
    return numbers


@lru_cache(maxsize=262144)
def cuts_along(tiling: Tiling) -> Along:
    """The cuts along each dim that is cut at all, in the order in which they divide it, with their ways."""
    along: dict[int, list[int]] = {}
    for cut, placement in enumerate(tiling.placements):
        if isinstance(placement, Shard):
            along.setdefault(placement.dim, []).append(cut)
        elif isinstance(placement, Only):  # a region is empty if it is empty along one dim
            along.setdefault(0, []).append(cut)
    if tiling.is_nested:
        for cuts in along.values():
            cuts.sort(key=lambda cut: (_nest_of(tiling.placements[cut]), cut))
    return tuple((dim, tuple(cuts), tuple(_piece(tiling, cut) for cut in cuts)) for dim, cuts in along.items())


def _nest_of(placement: Placement) -> int:
    return placement.nest if isinstance(placement, Shard) else 0


Parts: TypeAlias = tuple[tuple[int, tuple[Piece, ...]], ...]
"""The division of each dim that is cut at all, in order, by its cuts."""


@lru_cache(maxsize=262144)
def parts(tiling: Tiling) -> Parts:
    """The key of tilings with equal parts.

    Cuts are independent, so each piece of a dim is there with each of the others: which cut divides which dim only
    says which worker has which part. Cuts that divide nothing (``R``, ``P``) give several workers the same.
    """
    return tuple(sorted(((dim, how) for dim, _, how in cuts_along(tiling)), key=itemgetter(0)))


def _piece(tiling: Tiling, cut: int) -> Piece:
    placement = tiling.placements[cut]
    assert isinstance(placement, Shard | Only), "other placements divide nothing"
    return tiling.ways[cut], placement.how if isinstance(placement, Shard) else placement


@lru_cache(maxsize=65536)
def _boxes(tiling: Tiling, shape: tuple[int, ...]) -> Boxes:
    return boxes_along(cuts_along(tiling), tiling.ways, shape)


def boxes_along(along: Along, ways: tuple[int, ...], shape: tuple[int, ...]) -> Boxes:
    """The region of each worker, when the cuts, of these ways, are along the dims as ``cuts_along`` says."""
    boxes = Boxes.whole(shape, prod(ways))
    lo, hi = boxes.lo, boxes.hi
    for dim, cuts, how in along:
        piece = piece_of(ways, cuts)
        starts, ends = pieces(int(hi[0, dim]), how)
        lo[:, dim], hi[:, dim] = starts[piece], ends[piece]
    lo.flags.writeable = hi.flags.writeable = False
    return Boxes(lo, hi)
