"""Deliveries of each tensor from its maker to its readers: regions, bytes, and a sentence why."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.algebra.delivery import made_tiling
from planner.algebra.region import Boxes, index_space
from planner.algebra.tiling import Partial, Replicate, Shard, Tiling
from planner.artifacts.plan import OpStrategy
from planner.cost.by_op import op_charge
from planner.cost.tables import CostTables, Request
from planner.graph.core.model import Op, qualified
from planner.graph.step.deliveries import is_delivery
from planner.reasons import Delivery
from planner.search.decision import Decision
from planner.tdl.bind import BoundOp


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output of an op, and what moves there."""

    op: BoundOp
    is_input: bool
    position: int
    tensor: str
    moved_bytes: int


class Deliveries:
    """All deliveries of a plan."""

    def __init__(self, decided: Decision, tables: CostTables) -> None:
        """Takes note of a plan.

        Args:
            decided: the plan.
            tables: of bytes.
        """
        self.decided, self._tables = decided, tables

    @cached_property
    def ports(self) -> tuple[Port, ...]:
        """Every input that is brought to an op and every output that is used, op by op, inputs first."""
        decided, tables = self.decided, self._tables
        graph = decided.graph
        endpoints: list[tuple[BoundOp, bool, int, str]] = []
        for op in decided.ops:
            for slot, first in op.delivered_slots.items():
                name = op.op.inputs[slot]
                if slot == first and name not in graph.constants:
                    endpoints.append((op, True, slot, name))
            used = ((place, name) for place, name in enumerate(op.op.outputs) if name in graph.used)
            endpoints += [(op, False, place, name) for place, name in used if name]
        requests = [
            Request(
                op,
                is_input,
                position,
                graph.tensors[name],
                tables.alone(decided.tilings[name]),
                tables.alone(decided.strategies[op.op.name].tiling),
            )
            for op, is_input, position, name in endpoints
        ]
        pairs = zip(endpoints, tables.bytes_of(requests), strict=True)
        return tuple(Port(*endpoint, int(table[0, 0])) for endpoint, table in pairs)

    @cached_property
    def by_tensor(self) -> dict[str, tuple[Port, ...]]:
        """The ports of each tensor: its maker's first, then its readers'."""
        ports_of: dict[str, list[Port]] = {}
        for port in sorted(self.ports, key=lambda port: port.is_input):
            ports_of.setdefault(port.tensor, []).append(port)
        return {name: tuple(ports) for name, ports in ports_of.items()}

    @cached_property
    def by_op(self) -> dict[str, tuple[Port, ...]]:
        """The ports of each op."""
        ports_of: dict[str, list[Port]] = {}
        for port in self.ports:
            ports_of.setdefault(port.op.op.name, []).append(port)
        return {name: tuple(ports) for name, ports in ports_of.items()}

    def charge(self, op: BoundOp) -> int:
        """The price of an op's repeated and uneven work, in bytes."""
        return op_charge(op, self._strategy(op).tiling, self._tables)

    def repeated(self, op: BoundOp) -> int:
        """The repeated part of that."""
        return self._tables.repeated(op, self._strategy(op).tiling)

    def delivery(self, port: Port) -> Delivery:
        """A port with its regions and its reason."""
        boxes, tiling = self._boxes(port)
        return Delivery(
            tensor=port.tensor,
            op=port.op.op.name,
            op_type=_type_of(port.op.op),
            strategy=str(self._strategy(port.op)),
            is_input=port.is_input,
            regions=tuple(boxes),
            is_partial=tiling is not None and tiling.has_partial,
            moved_bytes=port.moved_bytes,
            reason=self.reason(port),
        )

    def reason(self, port: Port) -> str:
        """The reason why a delivery moves something, or nothing: with names, strategies and tilings."""
        text = _Wording(port.op.op.name, f", which is split {self._strategy(port.op)},")
        return self._why_read(port, text) if port.is_input else self._why_made(port, text)

    def kind_of_reason(self, port: Port) -> str:
        """The reason without names, strategies and tilings: equal for deliveries of equal layers, and of like ones."""
        text = _Wording(port.op.op.op_type, "")
        return self._why_read(port, text) if port.is_input else self._why_made(port, text)

    def needs_all(self, port: Port) -> bool:
        """Whether every worker needs all of a tensor that an op reads."""
        boxes = self._boxes(port)[0]
        return bool((boxes.elements == self.decided.graph.tensors[port.tensor].elements).all())

    def _strategy(self, op: BoundOp) -> OpStrategy:
        return self.decided.strategies[op.op.name]

    def _boxes(self, port: Port) -> tuple[Boxes, Tiling | None]:
        """The boxes that an op needs or makes, by worker; of an output also the tiling in which it is made."""
        op, strategy = port.op, self._strategy(port.op).tiling
        shape = self.decided.graph.tensors[port.tensor].shape
        if port.is_input:
            return op.reads(op.ranges(strategy), port.position)[port.position].boxes, None
        dims = op.analysis.outputs[port.position]
        if dims is None:
            return Boxes.whole(shape, strategy.workers), None
        tiling = made_tiling(strategy, dims, op.reducers(strategy), op.analysis.steps_of(port.position))
        return tiling.boxes(index_space(shape)), tiling

    def _why_made(self, port: Port, text: _Wording) -> str:
        strategy, held, who = self._strategy(port.op), self.decided.tilings[port.tensor], text.who
        have, tiling = self._boxes(port)
        is_partial = tiling is not None and tiling.has_partial
        if not port.moved_bytes:
            return f"{'partial sums stay' if is_partial else 'stays'} where {who} runs: no communication"
        need = held.boxes(index_space(self.decided.graph.tensors[port.tensor].shape))
        movement = collective(need, have, is_partial=is_partial)
        if tiling is not None and is_partial and not held.has_partial:
            return f"{movement}: {who} is split along {_along(strategy, tiling)}{text.of('', f', kept as {held}')}"
        if text.split:
            return f"{movement}: {who} makes {tiling or 'all'}, kept as {held}"
        groups = "groups of workers keep all of the result" if movement == "all-gather" else "the result another way"
        return f"{movement}: {who} is split, {'every worker keeps all of the result' if _is_whole(held) else groups}"

    def _why_read(self, port: Port, text: _Wording) -> str:
        strategy, held = self._strategy(port.op), self.decided.tilings[port.tensor]
        tensor, who = self.decided.graph.tensors[port.tensor], f"{text.who}{text.split}"
        if not port.moved_bytes:
            return "each worker has what it needs: no communication"
        need = self._boxes(port)[0]
        tiles = held.boxes(index_space(tensor.shape))
        movement = collective(need, tiles, is_partial=held.has_partial)
        if held.has_partial:
            return f"{movement}: {who} needs partial sums{text.of('', f' ({held})')} joined"
        if movement == "halo exchange":
            return f"{movement}: {who} reads{text.of('', f' {_halo(need, tiles)}')} beyond each worker's shard"
        if movement in ("all-to-all", "exchange"):
            return f"{movement}: {who} needs other parts than each worker has{text.of('', f' as {held}')}"
        needed, had = _part(need.elements, tensor.elements), _part(tiles.elements, tensor.elements)
        if _is_whole(strategy.tiling):
            return f"{movement}: every worker runs all of {text.who}, and has {had}"
        return f"{movement}: {who} needs {needed} on each worker, which has {had}"


@dataclass(frozen=True, slots=True)
class _Wording:
    """The detail of a reason."""

    who: str
    """The op's name, or its type."""
    split: str
    """How it is split, in commas; "" where that is not told."""

    def of(self, brief: str, full: str) -> str:
        """One of two forms of words."""
        return full if self.split else brief


def _sent(need: Boxes, have: Boxes) -> str:
    """The collective where some workers need nothing: one worker gives all others the same, or several give."""
    takes = need.cross_overlap(have) > 0
    np.fill_diagonal(takes, val=False)
    same = need.cross_overlap(need) == need.elements
    is_alike = same[np.ix_(takes.any(1), takes.any(1))].all()
    return "broadcast" if takes.any(0).sum() == 1 and is_alike else "exchange"


def collective(need: Boxes, have: Boxes, *, is_partial: bool) -> str:
    """The collective that gives each worker the region that it needs.

    ``planner.partition.collectives`` names the fetches of a program, which not every plan has; this goes by regions.

    Args:
        need: by worker.
        have: by worker: its tile, or the region of its partial sums.
        is_partial: whether workers have partial sums.
    """
    if not need.elements.all():
        return "reduce" if is_partial else _sent(need, have)
    if is_partial:
        return "reduce-scatter" if (need.elements < have.elements).any() else "all-reduce"
    if not have.elements.all():
        return "broadcast"
    if _halo(need, have):
        return "halo exchange"
    if (need.overlap(have) == have.elements).all():
        return "all-gather"
    # In an all-to-all each worker of a group takes a region of its own from all of the group.
    takes = (need.cross_overlap(have) > 0) | np.eye(need.workers, dtype=bool)
    is_apart = (takes & (need.cross_overlap(need) > 0)).sum() == need.workers
    is_complete = (takes == takes.T).all() and (takes @ takes == takes).all()
    return "all-to-all" if is_apart and is_complete else "exchange"


def _type_of(op: Op) -> str:
    return "shared delivery" if is_delivery(op) else qualified(op.domain, op.op_type)


def _is_whole(tiling: Tiling) -> bool:
    return all(isinstance(placement, Replicate) for placement in tiling.placements)


def _along(strategy: OpStrategy, tiling: Tiling) -> str:
    """The index variables whose cuts make partial sums."""
    pairs = zip(strategy.tiling.placements, tiling.placements, strict=True)
    names = (
        strategy.variables[mine.dim] if isinstance(mine, Shard) else "partial sums"
        for mine, result in pairs
        if isinstance(result, Partial)
    )
    return " and ".join(dict.fromkeys(names))


def _part(elements: NDArray[np.int64], total: int) -> str:
    """``1/4``; ``at most 2/7`` where workers differ."""
    largest = int(elements.max())
    if not total or largest == 0:
        return "nothing"
    if largest == total:
        return "all" if int(elements.min()) == total else "up to all"
    share = total / largest
    text = f"1/{round(share)}" if abs(share - round(share)) < 0.005 else f"{largest / total:.0%}"
    return text if int(elements.min()) == largest else f"at most {text}"


def _halo(need: Boxes, tiles: Boxes) -> str:
    """``up to 2 along dim 1`` where what is needed is a part and some border around it; "" where it is more."""
    before, after = tiles.lo - need.lo, need.hi - tiles.hi
    beyond = np.maximum(before, after).max(axis=0)
    sizes = (tiles.hi - tiles.lo).min(axis=0)
    if (beyond >= sizes)[beyond > 0].any():
        return ""
    borders = [f"{int(size)} along dim {dim}" for dim, size in enumerate(beyond.tolist()) if size > 0]
    return "up to " + " and ".join(borders) if borders else ""
