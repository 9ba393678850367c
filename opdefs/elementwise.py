"""Element-wise operators: an output element is a function of the input elements at its own index.

Inputs broadcast (ONNX, "multidirectional broadcasting"): aligned at the right, a dim of size 1 is read at 0.
"""

from __future__ import annotations

from planner.errors import UnsupportedError
from planner.graph.core.model import ELEM_TYPES, DType
from planner.graph.core.traits import ELEMENT_WISE
from planner.opdefs.broadcast import broadcast
from planner.opdefs.parts import output_dtype
from planner.tdl.builder import NodeView, TensorArg, call, op
from planner.tdl.local import LocalNode, LocalOp, Part


@op(*sorted(ELEMENT_WISE - {"CastLike"}))
def elementwise(node: NodeView, *inputs: TensorArg | None) -> object:
    """Every operator that needs nothing special; optional inputs (Clip's bounds) may be absent."""
    operands = [tensor for tensor in inputs if tensor is not None]
    return lambda *i: call(node.op.op_type, *(broadcast(node, tensor, i) for tensor in operands))


def cast_local(node: NodeView, part: Part) -> LocalOp:
    """A Cast: of its second input CastLike knows the dtype only, so no worker needs it."""
    return LocalOp((LocalNode("Cast", ("in0",), ("out0",), {"to": ELEM_TYPES[output_dtype(node)]}),))


@op("CastLike", local=cast_local, shape_only=(1,))
def cast_like(node: NodeView, X: TensorArg, like: TensorArg) -> object:
    """Cast to the dtype of another tensor, which is not read."""
    return lambda *i: call("Cast", X[i])


def dropout_local(node: NodeView, part: Part) -> LocalOp:
    """Nothing is dropped: the data pass, and the mask is all true.

    Raises:
        UnsupportedError: in training mode the mask would depend on how the op is split.
    """
    if node.has(2) and bool(node.constant(2).item()):
        raise UnsupportedError(
            f"op {node.op.name} (Dropout) is in training mode: its random mask would depend on the plan",
            hint="export the model with Dropout at inference (training_mode false), or remove it",
        )
    nodes = [LocalNode("Identity", ("in0",), ("out0",))]
    if len(node.op.outputs) > 1 and node.op.outputs[1]:
        # x == x would be false for NaN, so "x or not x".
        nodes += [
            LocalNode("Cast", ("in0",), ("nonzero",), {"to": ELEM_TYPES[DType.BOOL]}),
            LocalNode("Not", ("nonzero",), ("zero",)),
            LocalNode("Or", ("nonzero", "zero"), ("out1",)),
        ]
    return LocalOp(tuple(nodes))


@op("Dropout", local=dropout_local)
def dropout(node: NodeView, X: TensorArg, ratio: TensorArg | None = None, training: TensorArg | None = None) -> object:
    """Each element by itself: the identity, at inference."""
    return (lambda *i: X[i]), (lambda *i: call("mask", X[i]))
