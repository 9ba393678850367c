"""From a plan to each worker's local ops and fetches (Tofu, section 6).

Every op becomes a local op on each worker, in the original order. What an op needs and does not have is fetched,
one fetch for what would be split, copy and concatenate. Fetches are delayed until somebody needs them; a round of
fetches and the run of ops behind it are an *epoch*, the same on all workers. Fetches that free memory are not delayed
that long: partial results are joined, and next states brought over their states, when the next epoch begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.algebra.delivery import contributors, made_tiling, reduced_boxes, reducer_of
from planner.algebra.partial import holders, partial_cuts, settled
from planner.algebra.region import Region, index_space
from planner.algebra.tiling import Tiling
from planner.artifacts.plan import Decision
from planner.artifacts.program import Buffer, Fetch, Piece
from planner.graph.deliveries import is_delivery
from planner.graph.fills import is_fill
from planner.graph.model import DType, Graph, Shape, is_used
from planner.partition.fetches import copied, make_fetch, nearest_first, reduced
from planner.tdl.bind import BoundOp
from planner.tdl.local import LocalNode, Part

_MUCH = 32
"""A fetch gets an epoch of its own if it frees more than 1/32 of the bytes that a worker holds before the first op."""
SMALL_CONSTANT_BYTES = 1024
"""Constants up to this size stand in the code; larger ones are arrays of the worker."""


@dataclass(frozen=True, slots=True)
class LocalWork:
    """One op's local nodes on one worker, on buffers and on values of its own."""

    op: str
    nodes: tuple[LocalNode, ...]
    constants: Mapping[str, np.ndarray]
    """Small constants that the nodes read, by name."""


@dataclass
class Epoch:
    """By worker: a round of fetches, and the work that follows it."""

    fetches: list[list[Fetch]]
    work: list[list[LocalWork]]


@dataclass(frozen=True)
class Lowered:
    """The partitioned program before its work is gathered into segments."""

    epochs: tuple[Epoch, ...]
    buffers: tuple[Mapping[str, Buffer], ...]
    """By worker."""
    fixed: tuple[Mapping[str, np.ndarray], ...]
    """By worker: parts of constants."""
    absent: tuple[tuple[str, ...], ...]
    """By worker: buffers for parts of constants whose values are not there; they are loaded before a run."""
    collected: tuple[tuple[str, ...], ...]
    """By worker: buffers that hold tiles of results and next states at the end."""


@dataclass(frozen=True, slots=True)
class _Division:
    """An op's work divided by a strategy: equal for repeated layers."""

    parts: tuple[Part, ...]
    """By worker."""
    reads: Mapping[int, tuple[Region, ...]]
    """By input that is read: what each worker needs of it."""
    made: tuple[tuple[Region, ...], ...]
    """By output: what each worker makes of it; () for an absent one."""
    made_as: tuple[Tiling | None, ...]
    """By output: the tiling in which it is made."""

    @classmethod
    def of(cls, bound: BoundOp, strategy: Tiling) -> _Division:
        """Divides an op."""
        ranges = bound.ranges(strategy)
        reads, made, reducers = bound.reads(ranges), bound.all_made(ranges), bound.reducers(strategy)
        return cls(
            tuple(bound.part(ranges, reads, worker, made) for worker in range(ranges.workers)),
            {slot: tuple(read.boxes) for slot, read in reads.items()},
            tuple(() if boxes is None else tuple(boxes) for boxes in made),
            tuple(
                None if dims is None else made_tiling(strategy, dims, reducers, bound.analysis.steps_of(position))
                for position, dims in enumerate(bound.analysis.outputs)
            ),
        )


class Lowering:
    """Builds the program op by op.

    Args:
        graph: that was planned.
        plan: what was decided.
        apart: see ``partition``.
    """

    def __init__(self, graph: Graph, plan: Decision, apart: Sequence[Sequence[float]] = ()) -> None:
        self._graph = graph
        self._plan = plan
        self._workers = plan.workers
        every = range(self._workers)
        self._order = [nearest_first(worker, plan.cuts, apart[worker] if apart else ()) for worker in every]
        self._replaced = _replaced(graph)
        self._following = {pair.following for pair in graph.state}
        self._much = 0
        """A fetch that frees more bytes than this gets an epoch of its own (``_MUCH``)."""
        self._returning: list[str] = []
        """Tensors that are brought to where they are owned as soon as an epoch begins, since that frees memory."""
        self._epochs: list[Epoch] = []
        self._start_epoch()
        self._buffers: list[dict[str, Buffer]] = [{} for _ in every]
        self._fixed: list[dict[str, np.ndarray]] = [{} for _ in every]
        self._absent: list[dict[str, None]] = [{} for _ in every]
        self._computed: set[tuple[int, str]] = set()
        """Buffers that an op made, by worker; those that are loaded or fetched are not here."""
        self._owners: dict[str, dict[int, tuple[str, Region]]] = {}
        self._divisions: dict[object, _Division] = {}
        self._tiles: dict[tuple[Tiling, Shape], tuple[Region, ...]] = {}
        self._pending: dict[str, list[tuple[int, Fetch]]] = {}
        """Fetches that bring an op's results to where they are owned, until somebody needs them."""

    def run(self, ops: Sequence[BoundOp]) -> Lowered:
        """Lowers every op."""
        for name in self._graph.inputs:
            self._own(name)
        self._much = max(sum(one.size_bytes for one in buffers.values()) for buffers in self._buffers) // _MUCH
        for bound in ops:
            self._lower(bound)
            self._returning += [name for name in self._replaced.get(bound.op.name, ()) if name in self._pending]
        self._place([fetch for name in self._graph.outputs for fetch in self._pending.pop(name, [])])
        absent = tuple(tuple(names) for names in self._absent)
        made = [name for name in self._graph.outputs if self._graph.tensors[name].elements]
        collected = tuple(tuple(name for name in made if name in buffers) for buffers in self._buffers)
        return Lowered(tuple(self._epochs), tuple(self._buffers), tuple(self._fixed), absent, collected)

    def _lower(self, bound: BoundOp) -> None:
        strategy = self._plan.strategies[bound.op.name].tiling
        if is_delivery(bound.op) and strategy == self._plan.tilings[bound.op.outputs[0]]:
            self._deliver(bound)
            return
        key = (bound.content, strategy)
        if key not in self._divisions:
            self._divisions[key] = _Division.of(bound, strategy)
        division = self._divisions[key]
        arriving = [fetch for name in dict.fromkeys(bound.op.inputs) for fetch in self._pending.pop(name, [])]
        inputs: list[dict[int, str]] = [{} for _ in range(self._workers)]
        sliced: list[list[tuple[tuple[str, Region], str, Region]]] = [[] for _ in range(self._workers)]
        for slot, shared in bound.delivered_slots.items():
            name = bound.op.inputs[slot]
            if name in self._graph.constants:
                continue
            held = self._plan.tilings[name]
            assert partial_cuts(held) == partial_cuts(strategy), f"{bound.op.name} cannot read {name}, which is {held}"
            for worker, region in enumerate(division.reads[slot]):
                if region.is_empty:
                    continue
                if shared != slot:
                    inputs[worker][slot] = inputs[worker][shared]
                    continue
                own = self._owners[name].get(worker)
                if own is not None and own[1] == region:
                    inputs[worker][slot] = own[0]
                    continue
                inputs[worker][slot] = target = self._derived(f"{name}@{bound.op.name}.{slot}")
                self._add_buffer(worker, target, name, region)
                if own is not None and own[1].contains(region):
                    sliced[worker].append((own, target, region))
                    continue
                pieces = copied(region, self._owners[name], self._givers(name, worker))
                arriving.append((worker, self._fetch(worker, target, name, pieces)))
        self._place(arriving)
        for worker in strategy.busy:
            for (buffer, frame), target, region in sliced[worker]:
                self._epochs[-1].work[worker].append(_slice(bound.op.name, buffer, frame, target, region))
            outputs = self._output_buffers(bound, division, worker)
            part = division.parts[worker]
            local = bound.local_op(part)
            self._work_on(bound, worker, local.nodes, local.constants, inputs[worker], outputs, part.inputs)
        for position, name in enumerate(bound.op.outputs):
            if name:
                self._bring_home(bound, position, division)

    def _deliver(self, bound: BoundOp) -> None:
        """Brings a tensor into the tiling of a shared delivery: by a fetch, and not at all where a worker has it so."""
        source, name = bound.op.inputs[0], bound.op.outputs[0]
        arriving = self._pending.pop(source, [])
        sliced: list[tuple[int, str, Region, Region]] = []
        self._owners[name] = {}
        for worker in range(self._workers):
            region = self._own_region(name, worker)
            if region.is_empty:
                continue
            held = self._owners[source].get(worker)
            if held is not None and held[1] == region:
                self._owners[name][worker] = held
                continue
            self._owners[name][worker] = (name, region)
            self._add_buffer(worker, name, source, region)
            if held is not None and held[1].contains(region):
                sliced.append((worker, *held, region))
            else:
                pieces = copied(region, self._owners[source], self._order[worker])
                arriving.append((worker, self._fetch(worker, name, source, pieces)))
        self._place(arriving)
        for worker, buffer, frame, region in sliced:
            self._epochs[-1].work[worker].append(_slice(bound.op.name, buffer, frame, name, region))
            self._computed.add((worker, name))

    def _output_buffers(self, bound: BoundOp, division: _Division, worker: int) -> dict[int, str]:
        """The buffers that a worker's local op fills: the owned tile itself where it makes just that."""
        outputs: dict[int, str] = {}
        for position, (name, regions) in enumerate(zip(bound.op.outputs, division.made, strict=True)):
            if not name:
                continue
            region, made_as = regions[worker], self._made(name, division, position)
            in_place = not made_as.has_partial and self._own_region(name, worker) == region
            buffer = name if in_place else self._derived(f"{name}@made")
            self._add_buffer(worker, buffer, name, region)
            outputs[position] = buffer
        return outputs

    def _work_on(
        self,
        bound: BoundOp,
        worker: int,
        nodes: Sequence[LocalNode],
        constants: Mapping[str, np.ndarray],
        inputs: Mapping[int, str],
        outputs: Mapping[int, str],
        regions: Sequence[Region | None],
    ) -> None:
        """Adds a local op to the current epoch, its names replaced by buffers."""
        names = {f"in{slot}": buffer for slot, buffer in inputs.items()}
        names.update({f"out{position}": buffer for position, buffer in outputs.items()})
        small: dict[str, np.ndarray] = {}
        wanted = {name for node in nodes for name in node.inputs if name}
        for slot, name in enumerate(bound.op.inputs):
            if f"in{slot}" in wanted and name in self._graph.constants:
                region = regions[slot] if slot in bound.delivered_slots else None
                names[f"in{slot}"] = self._constant(worker, name, region, small)
        for key, value in constants.items():
            names[key] = self._local_constant(worker, self._derived(f"{bound.op.name}.{key}"), value, small)
        for node in nodes:
            for name in node.outputs:
                if name:
                    names.setdefault(name, self._derived(f"{bound.op.name}.{name}"))
        renamed = tuple(
            LocalNode(
                node.op_type,
                tuple(names[name] if name else "" for name in node.inputs),
                tuple(names[name] if name else "" for name in node.outputs),
                node.attributes,
                node.domain,
            )
            for node in nodes
        )
        self._epochs[-1].work[worker].append(LocalWork(bound.op.name, renamed, small))
        for buffer in outputs.values():
            self._computed.add((worker, buffer))

    def _constant(self, worker: int, name: str, region: Region | None, small: dict[str, np.ndarray]) -> str:
        """The part of a constant that a worker reads; all of it where the op's description does not read it.

        Where the model does not hold the value, that part is loaded before a run, as a state is.
        """
        value = self._graph.constants[name]
        whole = Region.whole(self._graph.tensors[name].shape)
        region = whole if region is None else region
        label = name if region == whole else self._derived(f"{name}{region}")
        if value is None:
            self._absent[worker][label] = None
            self._add_buffer(worker, label, name, region)
            return label
        part = value if region == whole else value[region.within(whole)]
        if not is_fill(part):
            part = np.ascontiguousarray(part)
        return self._local_constant(worker, label, part, small, name, region)

    def _local_constant(
        self,
        worker: int,
        label: str,
        value: np.ndarray,
        small: dict[str, np.ndarray],
        tensor: str = "",
        region: Region | None = None,
    ) -> str:
        if value.nbytes <= SMALL_CONSTANT_BYTES:
            small[label] = value
            return label
        if label not in self._fixed[worker]:
            self._fixed[worker][label] = value
            dtype = self._graph.tensors[tensor].dtype if tensor else DType(str(value.dtype))
            self._buffers[worker][label] = Buffer(
                label, tensor or label, region or Region.whole(value.shape), value.shape, dtype
            )
        return label

    def _made(self, name: str, division: _Division, position: int) -> Tiling:
        """How an output is made, as far as it is joined on its way to where it is owned."""
        made = division.made_as[position]
        assert made is not None, "an absent output is never made"
        inside = settled(made, self._plan.tilings[name]) if is_used(self._graph, name) else made
        assert inside is not None, f"{name} is made as {made}, and owned as {self._plan.tilings[name]}"
        return inside

    def _givers(self, name: str, worker: int) -> Sequence[int]:
        """Workers from which a worker may copy a tensor as it is owned, the nearest first: not other contributions."""
        tiling = self._plan.tilings[name]
        if not tiling.has_partial:
            return self._order[worker]
        same = holders(tiling)[worker]
        return [other for other in self._order[worker] if same[other]]

    def _bring_home(self, bound: BoundOp, position: int, division: _Division) -> None:
        """Prepares the fetches that bring an output from where it was made to where it is owned."""
        name = bound.op.outputs[position]
        if not is_used(self._graph, name):
            return
        made = self._made(name, division, position)
        makers = {
            worker: (name if (worker, name) in self._computed else self._derived(f"{name}@made"), region)
            for worker, region in enumerate(division.made[position])
            if not region.is_empty
        }
        self._owners[name] = {}
        fetches: list[tuple[int, Fetch]] = []
        if made.has_partial:
            makers = self._reduce(name, made, makers, fetches)
        for worker in range(self._workers):
            region = self._own_region(name, worker)
            if region.is_empty:
                continue
            self._owners[name][worker] = (name, region)
            if makers.get(worker) == (name, region):
                continue
            self._add_buffer(worker, name, name, region)
            pieces = copied(region, makers, self._givers(name, worker))
            fetches.append((worker, self._fetch(worker, name, name, pieces)))
        self._pending[name] = fetches
        if name not in self._following:
            freed = max(region.elements for region in division.made[position])
            freed -= max((region.elements for _, region in self._owners[name].values()), default=0)
            if freed > 0:
                self._returning.append(name)
            if freed * self._graph.tensors[name].dtype.item_bytes > self._much:
                self._start_epoch()

    def _reduce(
        self,
        name: str,
        made: Tiling,
        makers: Mapping[int, tuple[str, Region]],
        fetches: list[tuple[int, Fetch]],
    ) -> dict[int, tuple[str, Region]]:
        """Prepares the fetches that join partial results, spread over the workers; returns who then has what."""
        middle = reduced_boxes(made, self._plan.tilings[name], index_space(self._graph.tensors[name].shape))
        joined = contributors(made)
        found: dict[int, tuple[str, Region]] = {}
        for worker, region in enumerate(middle):
            if region.is_empty:
                continue
            target = name if region == self._own_region(name, worker) else self._derived(f"{name}@reduced")
            self._add_buffer(worker, target, name, region)
            sources = [other for other in range(self._workers) if joined[worker, other]]
            pieces = reduced(region, makers, sources)
            fetches.append((worker, self._fetch(worker, target, name, pieces, reducing=made)))
            found[worker] = (target, region)
        return found

    def _derived(self, name: str) -> str:
        """A name for a buffer or value of our own: the one given, unless the model has a tensor of that name."""
        while name in self._graph.tensors:
            name += "'"
        return name

    def _fetch(
        self, worker: int, target: str, tensor: str, pieces: tuple[Piece, ...], reducing: Tiling | None = None
    ) -> Fetch:
        reducer = reducer_of(reducing) if reducing is not None else None
        return make_fetch(
            f"fetch {target}", worker, target, pieces, reducer, self._graph.tensors[tensor].dtype.item_bytes
        )

    def _place(self, fetches: Sequence[tuple[int, Fetch]]) -> None:
        """Puts fetches behind all work so far: at the front of the current epoch, or of a new one if it has some."""
        if not fetches:
            return
        if any(self._epochs[-1].work):
            self._start_epoch()
        for worker, fetch in fetches:
            self._epochs[-1].fetches[worker].append(fetch)

    def _start_epoch(self) -> None:
        every = range(self._workers)
        self._epochs.append(Epoch([[] for _ in every], [[] for _ in every]))
        for name in self._returning:
            for worker, fetch in self._pending.pop(name, []):
                self._epochs[-1].fetches[worker].append(fetch)
        self._returning.clear()

    def _own(self, name: str) -> None:
        """Notes who owns an input of the graph."""
        self._owners[name] = {}
        for worker in range(self._workers):
            region = self._own_region(name, worker)
            if not region.is_empty:
                self._add_buffer(worker, name, name, region)
                self._owners[name][worker] = (name, region)

    def _own_region(self, name: str, worker: int) -> Region:
        key = self._plan.tilings[name], self._graph.tensors[name].shape
        if key not in self._tiles:
            self._tiles[key] = tuple(key[0].boxes(key[1]))
        return self._tiles[key][worker]

    def _add_buffer(self, worker: int, name: str, tensor: str, region: Region) -> None:
        symbol = self._graph.tensors[tensor]
        shape = region.shape if symbol.shape else ()
        self._buffers[worker][name] = Buffer(name, tensor, region, shape, symbol.dtype)


def _replaced(graph: Graph) -> dict[str, list[str]]:
    """By op: the next states that nothing keeps from being written over their states once the op is done."""
    last: dict[str, str] = {}
    for op in graph.ops:
        last.update(dict.fromkeys((*op.inputs, *op.outputs), op.name))
    number = {op.name: position for position, op in enumerate(graph.ops)}
    found: dict[str, list[str]] = {}
    for pair in graph.state:
        if pair.following in graph.producer and pair.current not in graph.outputs:
            ops = [last[name] for name in (pair.current, pair.following) if name in last]
            found.setdefault(max(ops, key=number.__getitem__), []).append(pair.following)
    return found


def _slice(op: str, source: str, frame: Region, target: str, region: Region) -> LocalWork:
    """Takes a part of what the worker holds: cheaper inside a segment than as a fetch between two."""
    dims = [dim for dim in range(region.rank) if (region.lo[dim], region.hi[dim]) != (frame.lo[dim], frame.hi[dim])]
    starts = np.array([region.lo[dim] - frame.lo[dim] for dim in dims], dtype=np.int64)
    ends = np.array([region.hi[dim] - frame.lo[dim] for dim in dims], dtype=np.int64)
    names = tuple(f"{target}.{part}" for part in ("starts", "ends", "axes"))
    constants = dict(zip(names, (starts, ends, np.array(dims, dtype=np.int64)), strict=True))
    return LocalWork(op, (LocalNode("Slice", (source, *names), (target,)),), constants)
