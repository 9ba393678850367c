"""Pairwise tables of time: what a tensor's tiling and an op's strategy cost in transfers, and the op in computing.

The objective ``time`` (ICML'18, section 5.1, equation 1) as tables for the search, in whole picoseconds. An entry of
transfers is the time of the worker that waits longest: for each depth of cuts (``planner.cost.seconds.depth``) its
bytes at what a byte takes there, and the longest latency of those that it uses. An entry of computing is the slowest
worker's.

What a byte takes is measured under load: all workers receive at once, each as much, spread evenly over the workers
at that depth, and the busiest port on the way counts. For a tree of levels on which the cuts are laid from the outside
in that is the level's bandwidth over ``shared_by``. A plan of the first few cuts counts for each of its workers all the
devices that the later cuts will divide its part among.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from planner.algebra.delivery import made_tiling
from planner.algebra.lane import has_owners
from planner.algebra.partial import IMPOSSIBLE, impossible_reads, partial_cuts, settled
from planner.algebra.region import Boxes, index_space
from planner.algebra.tiling import Replicate, Tiling
from planner.cost.roofline import says_speed
from planner.cost.seconds.assignment import usual_devices
from planner.cost.seconds.depth import depths, group_boxes, nearby_nested, redistributed
from planner.cost.seconds.measured import compute_times
from planner.cost.tables import Candidates, Table, TableMemo
from planner.errors import UsageError
from planner.graph.core.model import Tensor
from planner.machine.device_profile import DeviceProfile
from planner.machine.kinds import shares_by_cut
from planner.machine.routes import Interconnect
from planner.machine.topology_file import Machine
from planner.tdl.bind import BoundOp, Content

PICOSECONDS = 10**12
"""In a second: the unit of the tables."""


class TimeTables(TableMemo):
    """Makes tables of time and remembers them, as ``CostTables`` does those of bytes.

    Attributes:
        shares: by cut the proportions in which its groups have speed and memory; () if all devices are equal.
    """

    def __init__(self, machine: Machine, cuts: tuple[int, ...], profile: DeviceProfile | None = None) -> None:
        """Measures what a byte takes.

        Args:
            machine: with as many devices as the cuts make workers.
            cuts: of the plan, outermost first.
            profile: what ops were measured to take; None: they take their rooflines.

        Raises:
            UsageError: neither the topology nor a profile says how fast its devices are.
        """
        super().__init__()
        assert prod(cuts) == machine.device_count, "a worker for each device"
        self._cuts = cuts
        interconnect = Interconnect(machine)
        placed = usual_devices(interconnect, cuts)
        held = machine.devices
        if profile is None and not all(map(says_speed, held)):
            raise UsageError(
                f"topology {machine.name} does not say how fast its devices compute, so a plan for the least time "
                "cannot be made",
                hint="add compute: {float32: ...TFLOP/s} and memory_bandwidth: ...GB/s to its device, or measure what "
                "ops take there (tofu profile) and give --profile",
            )
        self._computes = compute_times([held[device] for device in placed], profile)
        self.shares = shares_by_cut([held[device] for device in placed], cuts)
        self._per_byte, self._latency = _link_seconds(interconnect, placed, cuts)
        self._joined: dict[tuple[object, ...], float] = {}
        self._alike: dict[Content, BoundOp] = {}
        """The first op of each content. A search takes ops of one content for equal, and a profile may not: it tells a
        square from a square root. So the first stands for all; the estimate of a program tells them apart."""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions where the topology states nothing."""
        return self._computes.assumptions

    def input_table(self, op: BoundOp, slot: int, tensor: Tensor, tilings: Candidates, strategies: Candidates) -> Table:
        """Picoseconds until an op can read an input, shape [tilings, strategies]."""
        return self._once(
            ("in", slot, op.content, tensor.dtype, op.lane),
            (tilings, strategies),
            lambda: self._inputs(op, slot, tensor, tilings, strategies),
        )

    def output_table(
        self, op: BoundOp, position: int, tensor: Tensor, tilings: Candidates, strategies: Candidates
    ) -> Table:
        """Picoseconds until an output is where it is owned, shape [tilings, strategies]."""
        return self._once(
            ("out", position, op.content, tensor.dtype, op.lane),
            (tilings, strategies),
            lambda: self._outputs(op, position, tensor, tilings, strategies),
        )

    def op_table(self, op: BoundOp, strategies: Candidates) -> Table:
        """Picoseconds that an op computes on the slowest worker, shape [strategies]."""
        return self._once(("op", op.content, op.lane), (strategies,), lambda: self._computing(op, strategies))

    def _inputs(self, op: BoundOp, slot: int, tensor: Tensor, tilings: Candidates, strategies: Candidates) -> Table:
        shape = index_space(tensor.shape)
        reads = [op.reads(op.ranges(strategy), slot)[slot].boxes for strategy in strategies]
        arrivals = _arriving(reads, list(tilings), shape).swapaxes(0, 1)
        delays = self._waiting(arrivals * tensor.dtype.item_bytes)
        table = _picoseconds(np.where(_wait_in_turn(op, tilings, strategies), delays.mean(axis=2), delays.max(axis=2)))
        wrong = impossible_reads(tilings, strategies)
        if wrong is not None:
            table[wrong] = IMPOSSIBLE
        return table

    def _outputs(
        self, op: BoundOp, position: int, tensor: Tensor, tilings: Candidates, strategies: Candidates
    ) -> Table:
        dims = op.analysis.outputs[position]
        assert dims is not None, "an absent output has no table"
        shape = index_space(tensor.shape)
        steps = op.analysis.steps_of(position)
        sources = [made_tiling(strategy, dims, op.reducers(strategy), steps) for strategy in strategies]
        item_bytes = tensor.dtype.item_bytes
        seconds = np.zeros((len(tilings), len(strategies)))
        in_turn = _wait_in_turn(op, tilings, strategies)
        columns = [number for number, source in enumerate(sources) if not source.has_partial]
        if columns:
            owned = [tiling.boxes(shape) for tiling in tilings]
            arrivals = _arriving(owned, [sources[number] for number in columns], shape)
            delays = self._waiting(arrivals * item_bytes)
            seconds[:, columns] = np.where(in_turn[:, columns], delays.mean(axis=2), delays.max(axis=2))
        for number, source in enumerate(sources):
            if source.has_partial:
                seconds[:, number] = [self._redistribution(source, tiling, shape, item_bytes) for tiling in tilings]
        table = _picoseconds(seconds)
        for row, tiling in enumerate(tilings):
            if partial_cuts(tiling):
                table[row, [settled(source, tiling) is None for source in sources]] = IMPOSSIBLE
        return table

    def _redistribution(self, source: Tiling, owned: Tiling, shape: tuple[int, ...], item_bytes: int) -> float:
        """Seconds until partial results are joined where they are owned, phase by phase."""
        key = (source, owned, shape, item_bytes)
        if settled(source, owned) is None:
            return 0.0  # it is impossible, whatever it would take
        if key not in self._joined:
            phases = redistributed(source, owned, shape)
            self._joined[key] = sum(float(self._waiting(phase * item_bytes).max()) for phase in phases)
        return self._joined[key]

    def _computing(self, op: BoundOp, strategies: Candidates) -> Table:
        lane, op = op.lane, self._alike.setdefault(op.content, op)
        op_seconds = []
        for strategy in strategies:
            tiling, later = strategy, self._cuts[len(strategy.ways) :]
            for ways in later:
                tiling = tiling.extend(Replicate(), ways)
            seconds = float(self._computes.seconds(op, tiling, prod(later)).max())
            # Others do their lanes' ops meanwhile.
            op_seconds.append(seconds if lane is None else seconds * lane.most_of_a_worker(strategy) / lane.count)
        return _picoseconds(np.array(op_seconds))

    def _waiting(self, moved: NDArray[np.int64]) -> NDArray[np.float64]:
        """Seconds that each worker waits for what arrives, [..., workers, depths] to [..., workers]."""
        workers, cuts = moved.shape[-2:]
        if not cuts:
            return np.zeros(moved.shape[:-1])
        # The devices that later cuts divide a worker's part among receive it together.
        together = len(self._per_byte) // workers
        per_byte = self._per_byte[:, :cuts].reshape(workers, together, cuts).mean(axis=1) / together
        latency = self._latency[:, :cuts].reshape(workers, together, cuts).max(axis=1)
        seconds: NDArray[np.float64] = (moved * per_byte).sum(axis=-1) + ((moved > 0) * latency).max(axis=-1)
        return seconds


def _arriving(needed: Sequence[Boxes], held: Sequence[Tiling], shape: tuple[int, ...]) -> NDArray[np.int64]:
    """``depth.arriving`` for many at once, shape [needed, held, workers, depths]."""
    nested = [number for number, tiling in enumerate(held) if tiling.is_nested]
    if nested:
        plain = [number for number, tiling in enumerate(held) if not tiling.is_nested]
        ways = held[0].ways
        all_of_them = np.empty((len(needed), len(held), needed[0].workers, len(ways)), dtype=np.int64)
        if plain:
            all_of_them[:, plain] = _arriving(needed, [held[number] for number in plain], shape)
        for number in nested:
            all_of_them[:, number] = -np.diff(nearby_nested(*_corners(needed), held[number], shape), axis=2)
        return all_of_them
    lo, hi = (corner[:, None] for corner in _corners(needed))
    groups = [group_boxes(tiling, shape) for tiling in held]
    near = []
    for depth in range(len(held[0].ways) + 1):
        own_lo = np.stack([boxes[depth].lo for boxes in groups])[None]
        own_hi = np.stack([boxes[depth].hi for boxes in groups])[None]
        common = np.minimum(hi, own_hi) - np.maximum(lo, own_lo)
        near.append(np.maximum(common, 0).prod(axis=3))
    elements: NDArray[np.int64] = -np.diff(np.stack(near, axis=3), axis=3)
    return elements


def _wait_in_turn(op: BoundOp, tilings: Candidates, strategies: Candidates) -> NDArray[np.bool_]:
    """Where a lane's tensor comes to its owners or from them, shape [tilings, strategies].

    Other lanes' go to other workers and from them meanwhile: each waits as long as all do on average.
    """
    if op.lane is None:
        return np.zeros((len(tilings), len(strategies)), dtype=bool)
    rows, columns = (np.array([has_owners(tiling) for tiling in candidates]) for candidates in (tilings, strategies))
    in_turn: NDArray[np.bool_] = rows[:, None] | columns
    return in_turn


def _corners(needed: Sequence[Boxes]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where boxes begin and end, each [needed, workers, rank]."""
    return np.stack([boxes.lo for boxes in needed]), np.stack([boxes.hi for boxes in needed])


def _picoseconds(seconds: NDArray[np.float64]) -> Table:
    table: Table = np.rint(seconds * PICOSECONDS).astype(np.int64)
    return table


def _link_seconds(
    interconnect: Interconnect, devices: Sequence[int], cuts: tuple[int, ...]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What a byte from each depth takes to each worker under load, and the latency, both [workers, cuts]."""
    depth = depths(cuts)
    per_byte = np.zeros((len(devices), len(cuts)))
    latency = np.zeros_like(per_byte)
    for cut in range(len(cuts)):
        loads: dict[int, float] = {}
        routes = []
        for receiver, is_sender in enumerate(depth == cut):
            senders = np.nonzero(is_sender)[0].tolist()
            incoming = [interconnect.route(devices[sender], devices[receiver]) for sender in senders]
            routes.append(incoming)
            for route in incoming:
                for port in route.ports:
                    loads[port] = loads.get(port, 0.0) + 1 / len(senders)
        for receiver, incoming in enumerate(routes):
            ports = {port for route in incoming for port in route.ports}
            per_byte[receiver, cut] = max(loads[port] / interconnect.port_bytes_per_s[port] for port in ports)
            latency[receiver, cut] = max(route.latency_seconds for route in incoming)
    return per_byte, latency
