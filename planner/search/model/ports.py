"""The ports of ops, as tables of a search: what moves between tensors and ops, and what ops are charged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from planner.cost.tables import CostTables
from planner.errors import UnsupportedError
from planner.graph.core.model import Graph
from planner.search.exact.network import Link
from planner.tdl.bind import BoundOp


def ports_of(
    graph: Graph, ops: Sequence[BoundOp], of_tensor: Mapping[str, int], of_op: Mapping[str, int], tables: CostTables
) -> tuple[list[Link], list[Link]]:
    """A link for each input that is brought to an op and for each output that is used; and a charge for each op.

    Args:
        graph: that is planned.
        ops: of the graph.
        of_tensor: the variable of each tensor; constants have none.
        of_op: the variable of each op.
        tables: say which links are of one kind.

    Raises:
        UnsupportedError: an input would have to be brought and cannot be.
    """
    tensors, used, kinds = graph.tensors, graph.used, dict[object, int]()
    links: list[Link] = []
    charges: list[Link] = []
    for op in ops:
        number = of_op[op.op.name]
        ports = [(True, slot, name) for slot, name in _brought(op, of_tensor)]
        ports += [(False, position, name) for position, name in enumerate(op.op.outputs) if name and name in used]
        for is_input, position, name in ports:
            table_kind = tables.kind(op, is_input, position, tensors[name].dtype)
            kind = kinds.setdefault(table_kind, len(kinds))
            links.append(Link(of_tensor[name], number, is_input, position, kind, name, op.op.name))
        kind = kinds.setdefault(("charge", *tables.charge_kind(op)), len(kinds))
        charges.append(Link(number, number, False, -1, kind, "", op.op.name))
    return links, charges


def _brought(op: BoundOp, of_tensor: Mapping[str, int]) -> Iterator[tuple[int, str]]:
    """The inputs that are brought to an op: each region of a tensor once, and no constants."""
    delivered, shape_only = op.delivered_slots, op.description.shape_only
    for slot, name in enumerate(op.op.inputs):
        if name not in of_tensor or slot in shape_only:  # absent, or a constant
            continue
        if slot not in delivered:
            raise UnsupportedError(
                f"op {op.op.name} ({op.op.op_type}): input {slot} ({name}) must be a constant",
                hint="a shape, axes or bounds that the graph computes cannot be planned; fold them before",
            )
        if delivered[slot] == slot:
            yield slot, name
