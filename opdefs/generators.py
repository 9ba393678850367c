"""Operators that make a tensor from constants or shapes: ConstantOfShape, Range, Shape, Size, EyeLike."""

from __future__ import annotations

from math import prod

import numpy as np

from planner.algebra.region import Region
from planner.graph.core.model import ELEM_TYPES, Attribute, TensorAttribute
from planner.opdefs.parts import int64, output_dtype, output_region, output_shape
from planner.tdl.builder import NodeView, TensorArg, call, op
from planner.tdl.local import LocalNode, LocalOp, NotLocalError, Part


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


def shape_local(node: NodeView, part: Part) -> LocalOp:
    """A constant: shapes are known when the graph is planned."""
    shape, output = node.input_shape(0), output_region(part)
    stated = shape[node.attribute("start", 0) : node.attribute("end", len(shape))]
    # A scalar is the Size, of whatever shape the input is.
    sizes = int64(stated[output.lo[0] : output.hi[0]]) if part.ranges else np.array(prod(shape), dtype=np.int64)
    return LocalOp((LocalNode("Identity", ("known",), ("out0",)),), {"known": sizes})


@op("Shape", "Size", local=shape_local, shape_only=(0,))
def shape_of(node: NodeView, X: TensorArg) -> object:
    """The sizes of the input, or their product: nothing of it is read."""
    return lambda *i: call(node.op.op_type)


def eye_like_local(node: NodeView, part: Part) -> LocalOp:
    """The diagonal moves with the part's corner."""
    output = output_region(part)
    dtype = output_dtype(node)
    attributes: dict[str, Attribute] = {
        "dtype": ELEM_TYPES[dtype],
        "k": node.attribute("k", 0) - output.lo[1] + output.lo[0],
    }
    return LocalOp(
        (
            LocalNode("Expand", ("zero", "shape"), ("blank",)),
            LocalNode("EyeLike", ("blank",), ("out0",), attributes),
        ),
        {"zero": np.array(0.0, dtype=np.float32), "shape": int64(output.shape)},
    )


@op("EyeLike", local=eye_like_local, shape_only=(0,))
def eye_like(node: NodeView, X: TensorArg) -> object:
    """Ones on a diagonal: a guard on the position, which the local k follows. Nothing is read."""
    return lambda i, j: call("EyeLike")


def constant_local(node: NodeView, part: Part) -> LocalOp:
    """The part's own elements.

    Raises:
        NotLocalError: the constant is no array of numbers.
    """
    value, output = node.attribute("value"), output_region(part)
    if not isinstance(value, TensorAttribute):
        raise NotLocalError("a constant that is no array of numbers")
    shape = node.output_shapes[0]
    elements = value.array if shape == () else value.array[output.within(Region.whole(value.array.shape))]
    return LocalOp((LocalNode("Identity", ("known",), ("out0",)),), {"known": elements})


@op("Constant", local=constant_local)
def constant(node: NodeView) -> object:
    """An array that is known: nothing is read. The reader makes it a constant of the graph."""
    return lambda *i: call("value")
