"""Rules: what the user has decided about tilings, whatever it costs.

A *pin* gives a tensor its tiling; a *prohibition* takes a placement from it, at every cut; ``replicate`` says which
tensors may be replicated at all. A rule is for one tensor, or for all that match a pattern.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from planner.algebra.delivery import can_split
from planner.algebra.tiling import Partial, Placement, Replicate, Shard, Tiling
from planner.errors import did_you_mean
from planner.graph.core.model import Shape

Replication: TypeAlias = Literal["all", "weights", "none"]
"""The tensors that may be replicated where they can be cut: any; state, and the data as it arrives; none (Tofu, section
5: every tensor is cut at every step).
"""


@dataclass(frozen=True)
class Rules:
    """The rules that a plan must keep to."""

    pins: Mapping[str, str] = field(default_factory=dict)
    """The text form of each tensor's or pattern's tiling; one placement without ways means it at every cut."""
    forbidden: tuple[tuple[str, str], ...] = ()
    """Tensor or pattern, and the text form of a placement that no cut may use."""
    replicate: Replication = "all"
    names: frozenset[str] | None = None
    """The tensors that a pattern may match; None: all of the graph."""

    def __bool__(self) -> bool:
        return bool(self.pins or self.forbidden or self.replicate != "all")

    def without_pin(self, name: str) -> Rules:
        """All rules but one pin."""
        return replace(self, pins={pattern: text for pattern, text in self.pins.items() if pattern != name})

    def without_prohibition(self, number: int) -> Rules:
        """All rules but one prohibition."""
        return replace(self, forbidden=(*self.forbidden[:number], *self.forbidden[number + 1 :]))


NO_RULES = Rules()


def matching(pattern: str, tensors: Iterable[str], names: Collection[str] | None) -> tuple[str, ...]:
    """The tensors that a rule is for: the one of this name, or all that match.

    Args:
        pattern: ``*`` stands for any text, ``?`` for a character, ``[ab]`` for one of these. A tensor's name stands for
            that tensor, whatever characters it has.
        tensors: of the graph.
        names: those that a pattern may match; None: all.
    """
    graph_names = list(tensors)
    if pattern in graph_names:
        return (pattern,)
    return tuple(name for name in graph_names if (names is None or name in names) and fnmatchcase(name, pattern))


def unmatched(pattern: str, tensors: Collection[str], constants: Collection[str]) -> str:
    """The fault of a rule that is for no tensor."""
    if pattern in constants:
        return f"tensor {pattern!r} is a constant, which every worker has"
    close = did_you_mean(pattern, tensors)
    if not is_pattern(pattern):
        return f"tensor {pattern!r} is not in the model" + (f"; {close}" if close else "")
    if any(fnmatchcase(name, pattern) for name in constants):
        return f"{pattern!r} matches constants only, which every worker has"
    return f"no tensor matches {pattern!r}" + (f"; {close}" if close else "")


def is_pattern(text: str) -> bool:
    """Whether a text can stand for several tensors."""
    return any(character in text for character in "*?[")


class Limits:
    """The tilings that the rules leave a tensor.

    Where replication is not wanted, a tensor is replicated or partial at a cut only if no dim that it may be cut along
    is large enough there. Where it is forbidden, or not offered while a dim is large enough, only tilings that lead
    to a plan are left: a cut now must not take the room that a later cut needs.
    """

    def __init__(
        self,
        shape: Shape,
        cuts: tuple[int, ...],
        forbidden: Collection[Placement],
        may_replicate: bool,
        is_charged: bool = False,
    ) -> None:
        """Takes note of the rules.

        Args:
            shape: of the tensor.
            cuts: the ways of each cut, outermost first.
            forbidden: placements that no cut may use.
            may_replicate: whether the tensor may be replicated where it can be cut.
            is_charged: whether the search offers replication only where no dim is large enough, forbidden ones
                included (``Problem.is_charged``).
        """
        self._shape = shape
        self._cuts = cuts
        self._forbidden = tuple(forbidden)
        self._may_replicate = may_replicate
        self._is_charged = is_charged
        self._dims = tuple(dim for dim in range(len(shape)) if not self._is_forbidden(Shard(dim)))
        self._never_whole = self._is_forbidden(Replicate())
        self._verdicts: dict[Tiling, bool] = {}
        self._finishes: dict[tuple[int, bytes], bool] = {}

    def forbids(self, tiling: Tiling) -> bool:
        """Whether a tiling has a placement that is forbidden."""
        return any(self._is_forbidden(placement) for placement in tiling.placements)

    def allows(self, tiling: Tiling) -> bool:
        """Whether a tiling keeps to the rules, and can be extended over all cuts by ones that do."""
        verdict = self._verdicts.get(tiling)
        if verdict is None:
            verdict = self._verdicts[tiling] = self._allows(tiling)
        return verdict

    def _allows(self, tiling: Tiling) -> bool:
        if self.forbids(tiling):
            return False
        for prefix, placement, ways in tiling.cut_by_cut():
            is_whole = isinstance(placement, Replicate | Partial)
            if is_whole and not self._may_replicate and self._cuttable(prefix, ways):
                return False
        return not (self._never_whole or self._is_charged) or self._can_finish(tiling)

    def _is_forbidden(self, placement: Placement) -> bool:
        return any(_covers(forbidden, placement) for forbidden in self._forbidden)

    def _cuttable(self, prefix: Tiling, ways: int) -> list[int]:
        """Dims that can be cut after a prefix, and may be."""
        boxes = prefix.boxes(self._shape)
        return [dim for dim in self._dims if can_split(boxes, dim, ways)]

    def _can_finish(self, prefix: Tiling) -> bool:
        """Whether all cuts that are left can be made: along dims, in single elements, which leave the most room.

        A tensor that may be whole is so where none of its dims is large enough.
        """
        depth = len(prefix.ways)
        if depth == len(self._cuts):
            return True
        sizes = sorted(map(tuple, (prefix.boxes(self._shape).hi - prefix.boxes(self._shape).lo).tolist()))
        key = (depth, repr(sizes).encode())
        verdict = self._finishes.get(key)
        if verdict is None:
            ways, boxes = self._cuts[depth], prefix.boxes(self._shape)
            options: list[Placement] = [Shard(dim) for dim in self._cuttable(prefix, ways)]
            if not self._never_whole and not any(can_split(boxes, dim, ways) for dim in range(len(self._shape))):
                options = [Replicate()]
            verdict = self._finishes[key] = any(self._can_finish(prefix.extend(option, ways)) for option in options)
        return verdict


def _covers(forbidden: Placement, placement: Placement) -> bool:
    """Whether a prohibition is of this placement; ``S(0)`` is of dim 0 in blocks of any size."""
    if isinstance(forbidden, Shard) and isinstance(placement, Shard):
        return forbidden.dim == placement.dim and forbidden.block in (1, placement.block)
    return forbidden == placement
