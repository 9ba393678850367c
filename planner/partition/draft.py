"""A program that grows op by op: its epochs, its buffers, and where tensors lie so far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from planner.algebra.region import Region
from planner.algebra.tiling import Tiling
from planner.artifacts.plan import Partitioning
from planner.artifacts.program import Fetch
from planner.graph.core.model import DType, Graph, Shape, Tensor
from planner.partition.fetches import NOTHING, Layout, Layouts
from planner.partition.local_work import LocalWork
from planner.partition.lowered import Buffers, Epoch, Lowered


class Draft:
    """The program so far.

    Args:
        graph: that was planned.
        plan: what was decided.

    Attributes:
        layouts: in which tensors lie.
        owned: by tensor how it lies, and the names of its buffers.
        pending: by tensor, fetches that bring it to where it is owned, until somebody needs them.
        returning: tensors that are brought to where they are owned as soon as an epoch begins, since that frees memory.
    """

    def __init__(self, graph: Graph, plan: Partitioning) -> None:
        self.graph = graph
        self.plan = plan
        self.layouts = Layouts()
        self.owned: dict[str, tuple[Layout, tuple[str, ...]]] = {}
        self.pending: dict[str, list[tuple[int, Fetch]]] = {}
        self.returning: list[str] = []
        self._epochs: list[Epoch] = []
        every = range(plan.workers)
        self._regions: list[dict[str, Region]] = [{} for _ in every]
        """By worker, what each of its buffers holds."""
        self._tensors: dict[str, Tensor] = {}
        """By buffer, the tensor of which it holds a part."""
        self._fixed: list[dict[str, np.ndarray]] = [{} for _ in every]
        self._absent: list[dict[str, None]] = [{} for _ in every]
        self._tiles: dict[tuple[Tiling, Shape], Layout] = {}
        self.start_epoch()
        for name in graph.inputs:
            self.own(name)
            tiles = enumerate(self.tiles(name).regions)
            self.add_buffer(name, name, [held for held in tiles if not held[1].is_empty])

    def lowered(self) -> Lowered:
        """The program."""
        absent = tuple(tuple(names) for names in self._absent)
        outputs = [name for name in self.graph.outputs if self.graph.tensors[name].elements]
        collected = tuple(tuple(name for name in outputs if name in regions) for regions in self._regions)
        return Lowered(tuple(self._epochs), self.buffers, tuple(self._fixed), absent, collected)

    # Buffers

    @property
    def buffers(self) -> tuple[Buffers, ...]:
        """The buffers of each worker."""
        return tuple(Buffers(regions, self._tensors) for regions in self._regions)

    def add_buffer(self, name: str, tensor: str, parts: Iterable[tuple[int, Region]]) -> None:
        """Adds a buffer of this name on each of some workers.

        Args:
            name: of the buffers.
            tensor: of which they hold parts.
            parts: workers, and what the buffer of each holds.
        """
        for worker, region in parts:
            self._regions[worker][name] = region
        self._tensors[name] = self.graph.tensors[tensor]

    def fix(self, worker: int, label: str, value: np.ndarray, tensor: str = "", region: Region | None = None) -> None:
        """Notes an array of a worker's own, unless it has that.

        Args:
            worker: whose.
            label: the name of its buffer.
            value: what is in there.
            tensor: the constant of which it is a part; "" if the model has no such constant.
            region: of the part; None: all of it.
        """
        if label not in self._fixed[worker]:
            self._fixed[worker][label] = value
            self._regions[worker][label] = region or Region.whole(value.shape)
            self._tensors[label] = (
                self.graph.tensors[tensor] if tensor else Tensor(label, value.shape, DType(str(value.dtype)))
            )

    def await_value(self, worker: int, label: str, tensor: str, region: Region) -> None:
        """Notes a part of a constant whose value is not there: it is loaded before a run, as a state is."""
        self._absent[worker][label] = None
        self.add_buffer(label, tensor, [(worker, region)])

    def region(self, worker: int, name: str) -> Region:
        """The region that a worker's buffer holds."""
        return self._regions[worker][name]

    def tensor(self, name: str) -> str:
        """The tensor of which buffers of this name hold parts."""
        return self._tensors[name].name

    def derived(self, name: str) -> str:
        """A name for a buffer or value of our own: the one given, unless the model has a tensor of that name."""
        while name in self.graph.tensors:
            name += "'"
        return name

    # Tensors

    def own(self, name: str) -> None:
        """Notes that a tensor will lie as it is owned."""
        self.owned[name] = (self.tiles(name), (name,))

    def tiles(self, name: str) -> Layout:
        """The tiles of a tensor as it is owned."""
        key = self.plan.tilings[name], self.graph.tensors[name].shape
        if key not in self._tiles:
            regions = tuple(key[0].boxes(key[1]))
            self._tiles[key] = self.layouts.of(regions, [NOTHING if region.is_empty else 0 for region in regions])
        return self._tiles[key]

    def item_bytes(self, name: str) -> int:
        """Size of an element of a tensor."""
        return self.graph.tensors[name].dtype.item_bytes

    # Epochs

    def take_pending(self, names: Iterable[str]) -> list[tuple[int, Fetch]]:
        """The fetches that bring tensors to where they are owned, if they have not been placed."""
        return [fetch for name in dict.fromkeys(names) for fetch in self.pending.pop(name, [])]

    def place(self, fetches: Sequence[tuple[int, Fetch]]) -> None:
        """Puts fetches behind all work so far: at the front of the current epoch, or of a new one if it has some."""
        if not fetches:
            return
        self.end_work()
        for worker, fetch in fetches:
            self._epochs[-1].fetches[worker].append(fetch)

    def add_work(self, works: Iterable[tuple[int, LocalWork]]) -> None:
        """Adds work of workers to the current epoch."""
        epoch = self._epochs[-1].work
        for worker, work in works:
            epoch[worker].append(work)

    def end_work(self) -> None:
        """Begins a new epoch if there is work in the current one."""
        if any(self._epochs[-1].work):
            self.start_epoch()

    def start_epoch(self) -> None:
        """Begins a new epoch, with what is to return before it."""
        every = range(self.plan.workers)
        self._epochs.append(Epoch([[] for _ in every], [[] for _ in every]))
        for worker, fetch in self.take_pending(self.returning):
            self._epochs[-1].fetches[worker].append(fetch)
        self.returning.clear()
