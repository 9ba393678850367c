"""The first pass of an op: what it needs is brought to its workers."""

from __future__ import annotations

from collections.abc import Hashable

from planner.algebra.partial import partial_cuts
from planner.artifacts.program import Fetch
from planner.graph.core.model import Op
from planner.partition.draft import Draft
from planner.partition.fetches import BROUGHT, NOTHING, Need
from planner.partition.local_work import LocalWork, cut_out
from planner.partition.ways import Regions, Ways


class Arrivals:
    """Brings tensors: an op's after the other's, each time ``begin``, ``bring`` and ``place``, then ``cut``.

    Args:
        draft: the program.
        ways: who takes what from whom.
    """

    def __init__(self, draft: Draft, ways: Ways) -> None:
        self._draft = draft
        self._ways = ways
        self._needs: dict[object, Need] = {}
        self._fetches: list[tuple[int, Fetch]] = []
        """That are not placed."""
        self._cuts: list[tuple[int, LocalWork]] = []
        """What workers cut out of what they hold; it is not added."""

    def begin(self, op: Op) -> None:
        """What the op reads is first brought to where it is owned, if it is still to be."""
        self.add(self._draft.take_pending(op.inputs))

    def add(self, fetches: list[tuple[int, Fetch]]) -> None:
        """Takes fetches that go beside the next ones."""
        self._fetches += fetches

    def bring(self, op: Op, slot: int, division: Hashable, regions: Regions, chunk: str = "") -> list[str | None]:
        """Brings an input to where an op needs it.

        Args:
            op: which.
            slot: the position of the input.
            division: of the op's work; equal ops have the same one.
            regions: by worker, what it needs.
            chunk: a label of the op's chunk that needs it; "" if it stays for all chunks.

        Returns:
            By worker the buffer that has just that; None where it needs nothing.
        """
        name, plan = op.inputs[slot], self._draft.plan
        held, strategy = plan.tilings[name], plan.strategies[op.name].tiling
        assert partial_cuts(held) == partial_cuts(strategy), f"{op.name} cannot read {name}, which is {held}"
        target = self._draft.derived(f"{name}@{op.name}.{slot}{chunk}")
        need, names = self._brought(op.name, name, (division, slot, chunk), regions, target)
        return [None if number == NOTHING else names[number] for number in need.buffers]

    def deliver(self, op: Op) -> None:
        """Brings a tensor into the tiling of a shared delivery: by a fetch, and not at all where a worker has it so."""
        source, name = op.inputs[0], op.outputs[0]
        self.begin(op)
        tiles = self._draft.tiles(name)
        need, names = self._brought(op.name, source, tiles, tiles.regions, name)
        delivered = [len(names) - 1 if number == BROUGHT else number for number in need.buffers]
        self._draft.owned[name] = (self._draft.layouts.of(tiles.regions, delivered), names)
        self.place()
        self.cut()

    def place(self) -> None:
        """Places the fetches: this may begin a new epoch."""
        self._draft.place(self._fetches)
        self._fetches.clear()

    def cut(self) -> None:
        """Adds what is cut out for an op to the current epoch, which is to be that of the op."""
        self._draft.add_work(self._cuts)
        self._cuts.clear()

    def _brought(
        self, op: str, name: str, reader: Hashable, regions: Regions, target: str
    ) -> tuple[Need, tuple[str, ...]]:
        """How workers come by parts of a tensor, and names of buffers by number; the last one is the target's."""
        layout, held = self._draft.owned[name]
        tiling = self._draft.plan.tilings[name]
        key = (reader, layout, tiling if tiling.has_partial else None)
        if key not in self._needs:
            self._needs[key] = Need.of(self._ways.read(layout.regions, tiling, regions), layout)
        need, names = self._needs[key], (*held, target)
        self._draft.add_buffer(target, name, need.brought)
        slices: dict[object, LocalWork] = {}
        for worker, number, frame, region in need.sliced:
            cut = cut_out(op, names[number], frame, target, region)
            self._cuts.append((worker, slices.setdefault(cut.key, cut.work)))
        self._fetches += need.pattern.fetches(names, self._draft.item_bytes(name))
        return need, names
