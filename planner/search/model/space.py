"""Index spaces as a search divides them: what the next cut of a tensor or an op may be."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from planner.algebra.lane import Lane, has_owners, without_owners
from planner.algebra.tiling import Only, Piece, Replicate, Shard, Shares, Tiling, cuts_along, pieces
from planner.cost.tables import Candidates
from planner.search.model.nests import all_nests, nests_near
from planner.search.model.partial_sums import PARTIAL


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """The index space of a tensor or an op; one object for all that can be divided alike."""

    shape: tuple[int, ...]
    blocks: tuple[tuple[int, ...], ...]
    """The blocks of each dim worth trying beside single elements; () if there are none."""
    fixed: tuple[bool, ...]
    """The dims that cannot be cut; () if all can."""
    may_repeat: bool
    """Whether it may be replicated where it could be divided as well."""
    may_add_partial_sums: bool
    """Whether a tensor may be a sum of partial results, or an op may work on such sums as they are."""
    may_nest: bool = False
    """Whether its cuts may nest in another order than their own (``planner.search.model.nests``)."""
    shares: tuple[tuple[tuple[int, ...], ...], ...] = ()
    """The proportions at each cut worth trying beside equal parts; () if there are none at any cut."""
    lane: Lane | None = None
    """The lane among equal ones beside each other that workers may have whole; None where it is none."""
    _repeats: dict[tuple[Tiling, int], bool] = field(default_factory=dict, init=False, repr=False)
    """Whether the next cut may replicate, by prefix and ways."""

    @property
    def directions(self) -> int:
        """The number of directions along which it can be cut; 0: it has one value, whatever the cuts."""
        return sum(size > 1 and not self._is_fixed(dim) for dim, size in enumerate(self.shape)) + (
            self.may_add_partial_sums + (self.lane is not None)
        )

    def proposals(self, prefix: Tiling, ways: int) -> Candidates:
        """The further cuts of each worker's part: along a dim, in single elements and in blocks that differ, in equal
        parts and in those that devices of several kinds are worth.

        Replication comes after that, so that ties go to splitting; it is offered where nothing can be split, too.
        """
        along = {dim: how for dim, _, how in cuts_along(without_owners(prefix))}
        tilings = [
            prefix.extend(_shard(dim, how), ways)
            for dim, extent in enumerate(self.shape)
            if not self._is_fixed(dim)
            for how in _ways_to_cut(extent, along.get(dim, ()), ways, self._blocks_of(dim), self._shares_at(prefix))
        ]
        if not tilings or self.may_repeat:
            tilings.append(prefix.extend(Replicate(), ways))
        if self.may_add_partial_sums:
            tilings.append(prefix.extend(PARTIAL, ways))
        if self.lane is not None:
            owner = self.lane.owned(prefix.extend(Only(0), ways))
            if owner is not None:
                tilings.append(owner)
        return tuple(tilings)

    def settled(self, tiling: Tiling) -> Tiling:
        """The tiling, whoever has this lane in it being the one who has to."""
        return tiling if self.lane is None else self.lane.owned(tiling) or tiling

    def nests_near(self, tiling: Tiling) -> Candidates:
        """A tiling's placements with cuts that nest in other orders."""
        return nests_near(tiling, self.shape, self.fixed) if self.may_nest and len(tiling.ways) > 1 else ()

    def nests(self, ways: tuple[int, ...], most: int) -> Candidates:
        """Every tiling whose cuts nest in another order than their own, if there are not far too many."""
        return all_nests(self.shape, ways, self.fixed, most) if self.may_nest and len(ways) > 1 else ()

    def can_be(self, tiling: Tiling) -> bool:
        """True if proposals, one cut after the other, lead to this tiling."""
        if self.lane is None and has_owners(tiling):  # the literature's idle devices
            return False
        if self.lane is not None and self.lane.owned(tiling) != tiling:
            return False
        for dim, cuts, how in cuts_along(without_owners(tiling)):
            shares = tuple([self.shares[cut] for cut in cuts]) if self.shares else ()
            if self._is_fixed(dim) or not _is_proposed(self.shape[dim], how, self._blocks_of(dim), shares):
                return False
        if not self.may_add_partial_sums and tiling.has_partial:
            return False
        if self.may_repeat:
            return True
        pairs = enumerate(zip(tiling.placements, tiling.ways, strict=True))
        repeats = [(cut, ways) for cut, (placement, ways) in pairs if isinstance(placement, Replicate)]
        return all(self._may_repeat_at(tiling.outermost(cut), ways) for cut, ways in repeats)

    def _may_repeat_at(self, prefix: Tiling, ways: int) -> bool:
        may_repeat = self._repeats.get((prefix, ways))
        if may_repeat is None:
            options = [option.placements[-1] for option in self.proposals(prefix, ways)]
            may_repeat = self._repeats[prefix, ways] = any(isinstance(option, Replicate) for option in options)
        return may_repeat

    def _is_fixed(self, dim: int) -> bool:
        return bool(self.fixed) and self.fixed[dim]

    def _blocks_of(self, dim: int) -> tuple[int, ...]:
        return self.blocks[dim] if self.blocks else ()

    def _shares_at(self, prefix: Tiling) -> tuple[tuple[int, ...], ...]:
        """Proportions of the cut after these."""
        return self.shares[len(prefix.ways)] if self.shares else ()


def _shard(dim: int, how: int | Shares) -> Shard:
    return Shard(dim, how.block, shares=how.of) if isinstance(how, Shares) else Shard(dim, how)


@lru_cache(maxsize=65536)
def _ways_to_cut(
    extent: int, before: tuple[Piece, ...], ways: int, blocks: tuple[int, ...], shares: tuple[tuple[int, ...], ...]
) -> tuple[int | Shares, ...]:
    """The further cuts of a dim's pieces: in single elements, in blocks that lead to other pieces, and each in equal
    parts and in these shares.
    """
    lo, hi = pieces(extent, before)
    least = int((hi - lo).min())
    if least < ways:
        return ()
    by_pieces: dict[bytes, int | Shares] = {}
    for block in (1, *blocks):
        if -(-least // block) >= ways:
            in_shares: list[int | Shares] = [Shares(block, share) for share in shares]
            for how in (block, *in_shares):
                lo, hi = pieces(extent, (*before, (ways, how)))
                if (hi - lo).min() > 0:  # a small share of few elements may be none
                    by_pieces.setdefault(lo.tobytes() + hi.tobytes(), how)
    return tuple(by_pieces.values())


@lru_cache(maxsize=65536)
def _is_proposed(
    extent: int, cuts: tuple[Piece, ...], blocks: tuple[int, ...], shares: tuple[tuple[tuple[int, ...], ...], ...]
) -> bool:
    """True if each of a dim's cuts, after those before it, is in one of ``_ways_to_cut``.

    Args:
        extent: of the dim.
        cuts: that divide it.
        blocks: worth trying.
        shares: of each of the cuts; () if there are none at any.
    """
    return all(
        how in _ways_to_cut(extent, cuts[:at], ways, blocks, shares[at] if shares else ())
        for at, (ways, how) in enumerate(cuts)
    )
