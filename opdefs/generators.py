"""Operators that make a tensor from constants: ConstantOfShape, Range."""

from __future__ import annotations

from opdefs.broadcast import normal_axis
from opdefs.parts import int64, output_shape
from planner.graph.model import Attribute
from planner.tdl.builder import Ix, NodeView, TensorArg, Val, call, op
from planner.tdl.local import LocalNode, LocalOp, Part


def constant_of_shape_local(node: NodeView, part: Part) -> LocalOp:
    """The part's own shape."""
    value = node.attribute("value")
    attributes: dict[str, Attribute] = {} if value is None else {"value": value}
    shape = int64(output_shape(node, part))
    return LocalOp((LocalNode("ConstantOfShape", ("shape",), ("out0",), attributes),), {"shape": shape})


@op("ConstantOfShape", local=constant_of_shape_local)
def constant_of_shape(node: NodeView, shape: TensorArg) -> object:
    """One value everywhere: nothing is read."""
    return lambda *i: call("value")


@op("Range")
def range_(node: NodeView, start: TensorArg, limit: TensorArg, delta: TensorArg) -> object:
    """Start + delta * i: the result depends on the position itself."""
    return lambda i: start.scalar() + delta.scalar() * call("position", i)
