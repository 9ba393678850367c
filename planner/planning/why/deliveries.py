"""How each tensor comes to the ops that read it and from the op that makes it: regions, bytes, and a sentence why."""

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
from planner.graph.deliveries import is_delivery
from planner.graph.model import Op
from planner.graph.reading.undescribed import qualified
from planner.reasons import Delivery
from planner.search.decided import Decided
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

    def __init__(self, decided: Decided, tables: CostTables) -> None:
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
        asked: list[tuple[BoundOp, bool, int, str]] = []
        for op in decided.ops:
            for slot, first in op.delivered_slots.items():
                name = op.op.inputs[slot]
                if slot == first and name not in graph.constants:
                    asked.append((op, True, slot, name))
            used = ((place, name) for place, name in enumerate(op.op.outputs) if name in graph.used)
            asked += [(op, False, place, name) for place, name in used if name]
        requests = [
            Request(
                op,
                is_input,
                position,
                graph.tensors[name],
                tables.alone(decided.tilings[name]),
                tables.alone(decided.strategies[op.op.name].tiling),
            )
            for op, is_input, position, name in asked
        ]
        found = zip(asked, tables.bytes_of(requests), strict=True)
        return tuple(Port(*which, int(table[0, 0])) for which, table in found)

    @cached_property
    def by_tensor(self) -> dict[str, tuple[Port, ...]]:
        """The ports of each tensor: its maker's first, then its readers'."""
        found: dict[str, list[Port]] = {}
        for port in sorted(self.ports, key=lambda port: port.is_input):
            found.setdefault(port.tensor, []).append(port)
        return {name: tuple(ports) for name, ports in found.items()}

    @cached_property
    def by_op(self) -> dict[str, tuple[Port, ...]]:
        """The ports of each op."""
        found: dict[str, list[Port]] = {}
        for port in self.ports:
            found.setdefault(port.op.op.name, []).append(port)
        return {name: tuple(ports) for name, ports in found.items()}

    def charge(self, op: BoundOp) -> int:
        """What an op's repeated and uneven work costs, in bytes."""
        return op_charge(op, self._strategy(op).tiling, self._tables)

    def repeated(self, op: BoundOp) -> int:
        """Of that, what is repeated."""
        return self._tables.repeated(op, self._strategy(op).tiling)

    def delivery(self, port: Port) -> Delivery:
        """A port with its regions and its reason."""
        boxes, made = self._boxes(port)
        return Delivery(
            tensor=port.tensor,
            op=port.op.op.name,
            op_type=_type_of(port.op.op),
            strategy=str(self._strategy(port.op)),
            is_input=port.is_input,
            regions=tuple(boxes),
            is_partial=made is not None and made.has_partial,
            moved_bytes=port.moved_bytes,
            reason=self.reason(port),
        )

    def reason(self, port: Port) -> str:
        """Why a delivery moves something, or nothing: with names, strategies and tilings."""
        told = _Told(port.op.op.name, f", which is split {self._strategy(port.op)},")
        return self._why_read(port, told) if port.is_input else self._why_made(port, told)

    def kind_of_reason(self, port: Port) -> str:
        """The same without names, strategies and tilings: equal for deliveries of equal layers, and of like ones."""
        told = _Told(port.op.op.op_type, "")
        return self._why_read(port, told) if port.is_input else self._why_made(port, told)

    def needs_all(self, port: Port) -> bool:
        """Whether every worker needs all of a tensor that an op reads."""
        boxes = self._boxes(port)[0]
        return bool((boxes.elements == self.decided.graph.tensors[port.tensor].elements).all())

    def _strategy(self, op: BoundOp) -> OpStrategy:
        return self.decided.strategies[op.op.name]

    def _boxes(self, port: Port) -> tuple[Boxes, Tiling | None]:
        """By worker what an op needs or makes; of an output also the tiling in which it is made."""
        op, strategy = port.op, self._strategy(port.op).tiling
        shape = self.decided.graph.tensors[port.tensor].shape
        if port.is_input:
            return op.reads(op.ranges(strategy), port.position)[port.position].boxes, None
        dims = op.analysis.outputs[port.position]
        if dims is None:
            return Boxes.whole(shape, strategy.workers), None
        made = made_tiling(strategy, dims, op.reducers(strategy), op.analysis.steps_of(port.position))
        return made.boxes(index_space(shape)), made

    def _why_made(self, port: Port, told: _Told) -> str:
        strategy, held = self._strategy(port.op), self.decided.tilings[port.tensor]
        made, who = self._boxes(port)[1], told.who
        if not port.moved_bytes:
            if made is not None and made.has_partial:
                return "contributions stay where they are made until they are needed: nothing moves"
            return "it is made where it lies: nothing moves"
        lies = "every worker keeps all of it" if _is_whole(held) else told.of("it lies in other parts", f"as {held}")
        if made is not None and made.has_partial and not held.has_partial:
            parts = f"{who} is split along {_along(strategy, made)}, so each worker has a contribution to it"
            kept = (
                "every worker keeps all of the sum" if _is_whole(held) else told.of("each keeps a part", f"as {held}")
            )
            return f"{parts}; these are summed, and {kept}"
        return f"{who}{told.split} makes it {told.of('in parts', '' if made is None else f'as {made}')}, and {lies}"

    def _why_read(self, port: Port, told: _Told) -> str:
        strategy, held = self._strategy(port.op), self.decided.tilings[port.tensor]
        tensor, who = self.decided.graph.tensors[port.tensor], f"{told.who}{told.split}"
        if not port.moved_bytes:
            return "each worker has what it needs: nothing moves"
        if held.has_partial:
            return f"it lies in contributions{told.of('', f'({held})')}, which are summed on the way to {told.who}"
        need = self._boxes(port)[0]
        tiles = held.boxes(index_space(tensor.shape))
        needed, had, common = need.elements, tiles.elements, need.overlap(tiles)
        each = f"each worker has {_part(had, tensor.elements)}"
        if (needed == tensor.elements).all():
            if _is_whole(strategy.tiling):
                return f"{told.who} is executed whole by every worker, and needs all of it, of which {each}"
            return f"{who} needs all of it on every worker, and {each}"
        if (common == had).all() and (had > 0).all():
            if halo := _halo(need, tiles):
                return f"{who} reads beyond each worker's part of it{told.of('', halo)}"
            return f"{who} needs {_part(needed, tensor.elements)} of it on each worker, and {each}"
        return f"{who} needs other parts of it than each worker has{told.of('', f'as {held}')}"


@dataclass(frozen=True, slots=True)
class _Told:
    """How much a reason tells."""

    who: str
    """The op's name, or its type."""
    split: str
    """How it is split, in commas; "" where that is not told."""

    def of(self, brief: str, full: str) -> str:
        """One of two forms of words, after what is there."""
        text = full if self.split else brief
        return f" {text}" if text and not brief else text


def _type_of(op: Op) -> str:
    return "shared delivery" if is_delivery(op) else qualified(op.domain, op.op_type)


def _is_whole(tiling: Tiling) -> bool:
    return all(isinstance(one, Replicate) for one in tiling.placements)


def _along(strategy: OpStrategy, made: Tiling) -> str:
    """The index variables whose cuts make contributions."""
    pairs = zip(strategy.tiling.placements, made.placements, strict=True)
    names = (
        strategy.variables[mine.dim] if isinstance(mine, Shard) else "contributions"
        for mine, result in pairs
        if isinstance(result, Partial)
    )
    return " and ".join(dict.fromkeys(names))


def _part(elements: NDArray[np.int64], whole: int) -> str:
    """``1/4``; ``at most 2/7`` where workers differ."""
    most = int(elements.max())
    if not whole or most == 0:
        return "nothing"
    if most == whole:
        return "all" if int(elements.min()) == whole else "up to all"
    share = whole / most
    text = f"1/{round(share)}" if abs(share - round(share)) < 0.005 else f"{most / whole:.0%}"
    return text if int(elements.min()) == most else f"at most {text}"


def _halo(need: Boxes, tiles: Boxes) -> str:
    """``up to 2 along dim 1`` where what is needed is a part and some border around it; "" where it is more."""
    before, after = tiles.lo - need.lo, need.hi - tiles.hi
    beyond = np.maximum(before, after).max(axis=0)
    sizes = (tiles.hi - tiles.lo).min(axis=0)
    if (beyond >= sizes)[beyond > 0].any():
        return ""
    found = [f"{int(most)} along dim {dim}" for dim, most in enumerate(beyond.tolist()) if most > 0]
    return "up to " + " and ".join(found) if found else ""
