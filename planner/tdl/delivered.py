"""The description of a shared delivery (``planner.graph.step.deliveries``): each element is the tensor's there."""

from __future__ import annotations

from planner.graph.step.deliveries import DOMAIN, OP_TYPE
from planner.tdl.builder import NodeView, TensorArg, op
from planner.tdl.local import LocalNode, LocalOp, Part


def _local(node: NodeView, part: Part) -> LocalOp:
    """A copy, where a plan delivers in one tiling and holds in another."""
    return LocalOp((LocalNode("Identity", ("in0",), ("out0",)),))


@op(OP_TYPE, domain=DOMAIN, local=_local)
def delivered(node: NodeView, X: TensorArg) -> object:
    """The tensor itself."""
    return lambda *i: X[i]
