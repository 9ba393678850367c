"""Causes of a plan's cost, and replicated tensors: alike things together, the largest first."""

from __future__ import annotations

from planner.algebra.region import index_space
from planner.algebra.tiling import Replicate, Tiling
from planner.planning.why.deliveries import Deliveries, Port
from planner.reasons import Cause, Kept, Subject


def causes(deliveries: Deliveries) -> tuple[Cause, ...]:
    """The causes of the plan's cost: the dearest first. Together they are what the plan costs.

    Args:
        deliveries: of the plan.
    """
    decided = deliveries.decided
    moved: dict[str, list[tuple[int, str]]] = {}
    for name, ports in deliveries.by_tensor.items():
        amount = sum(port.moved_bytes for port in ports)
        if amount:
            dearest = max(ports, key=lambda port: port.moved_bytes)
            moved.setdefault(deliveries.kind_of_reason(dearest), []).append((amount, name))
    work: dict[str, list[tuple[int, str]]] = {}
    for op in decided.ops:
        amount = deliveries.charge(op)
        if amount:
            is_repeated = 2 * deliveries.repeated(op) > amount
            reason = f"{'duplicated' if is_repeated else 'uneven'} work: {op.op.op_type}"
            work.setdefault(reason, []).append((amount, op.op.name))
    rows = [_cause("tensor", reason, members, decided.cost) for reason, members in moved.items()]
    rows += [_cause("op", reason, members, decided.cost) for reason, members in work.items()]
    return tuple(sorted(rows, key=lambda cause: (-cause.cost_bytes, cause.names)))


def tensor_reason(deliveries: Deliveries, name: str) -> str:
    """The reason why bytes move because of a tensor, or none: the reason of the dearest of its deliveries.

    Args:
        deliveries: of the plan.
        name: of the tensor.
    """
    ports = deliveries.by_tensor.get(name, ())
    dearest = max(ports, key=lambda port: port.moved_bytes, default=None)
    if dearest is None:
        return "no op reads or makes it"
    if not dearest.moved_bytes:
        return _why_still(ports)
    paying = sum(port.moved_bytes > 0 for port in ports) - 1
    remark = f" (and {paying} more of its deliveries move bytes)" if paying else ""
    return deliveries.reason(dearest) + remark


def kept_whole(deliveries: Deliveries) -> tuple[Kept, ...]:
    """Tensors of which several workers have the same, and why; what takes most memory first.

    Args:
        deliveries: of the plan.
    """
    decided = deliveries.decided
    groups: dict[str, list[tuple[int, str]]] = {}
    for name, tiling in decided.tilings.items():
        tensor = decided.graph.tensors[name]
        held = int(tiling.boxes(index_space(tensor.shape)).elements.sum()) - tensor.elements
        if held > 0 and any(isinstance(placement, Replicate) for placement in tiling.placements):
            reason = _why_kept(deliveries, name, tiling)
            groups.setdefault(reason, []).append((held * tensor.dtype.item_bytes, name))
    entries = [
        Kept(tuple(name for _, name in _dearest_first(members)), sum(size for size, _ in members), reason)
        for reason, members in groups.items()
    ]
    return tuple(sorted(entries, key=lambda entry: (-entry.held_bytes, entry.names)))


def _cause(kind: Subject, reason: str, members: list[tuple[int, str]], cost: int) -> Cause:
    amount = sum(size for size, _ in members)
    return Cause(kind, tuple(name for _, name in _dearest_first(members)), amount, amount / cost, reason)


def _dearest_first(members: list[tuple[int, str]]) -> list[tuple[int, str]]:
    return sorted(members, key=lambda member: -member[0])


def _why_still(ports: tuple[Port, ...]) -> str:
    """Why nothing moves because of a tensor."""
    makers, readers = sum(not port.is_input for port in ports), sum(port.is_input for port in ports)
    if not readers:
        return "stays where it is made, and no op reads it: no communication"
    need = "1 reader needs" if readers == 1 else f"{readers} readers need"
    return f"{'stays where it is made; ' if makers else ''}{need} no more than each worker has: no communication"


def _why_kept(deliveries: Deliveries, name: str, tiling: Tiling) -> str:
    """Why several workers have the same of a tensor."""
    decided = deliveries.decided
    tensor = decided.graph.tensors[name]
    if all(size < min(decided.cuts) for size in index_space(tensor.shape)):
        return "replicated: too small to split"
    ports = deliveries.by_tensor.get(name, ())
    readers = [port for port in ports if port.is_input]
    makers = [port for port in ports if not port.is_input]
    is_whole = all(isinstance(placement, Replicate) for placement in tiling.placements)
    where = "" if is_whole else " within groups of workers"
    if any(port.moved_bytes for port in makers):
        return f"cached{where}: fetched once, because several ops read it"
    if readers and any(map(deliveries.needs_all, readers)):
        amount = "all" if all(map(deliveries.needs_all, readers)) else "some"
        return f"replicated{where}: {amount} ops that read it need all of it on every worker"
    if makers:
        return f"replicated{where}: duplicated work moves less than communication"
    return f"replicated{where}: workers that split one op need the same part"
