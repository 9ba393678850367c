"""Memory inside of a segment: tensors that only its own nodes see.

The runtime that executes a segment allocates them; this file says how many bytes they are at most, by their liveness
in the order of the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from onnx import FunctionProto, TypeProto, helper

from planner.artifacts.worker_model import body_graph
from planner.graph.core.model import DType, Shape
from planner.graph.core.traits import COPYING, SLICING, VIEWS
from planner.graph.files.protos import dtype_of
from planner.graph.folding.propagation import inferred

ELEMENTWISE: Final = frozenset(
    {"Add", "Sub", "Mul", "Div", "Neg", "Sqrt", "Identity", "Abs", "Exp", "Tanh", "Relu", "Sigmoid", "Reciprocal"}
)
"""Operators whose result the runtime writes over an input that nobody needs any more."""


def workspace_bytes(
    body: FunctionProto, inputs: Sequence[tuple[Shape, DType]], outputs: Sequence[tuple[Shape, DType]]
) -> int:
    """Bytes of the tensors inside of a function that are needed at the same time, at most.

    An element-wise node takes over the memory of an input that nobody needs after it, as ONNX Runtime's planner lets
    it. Constants and what kernels allocate for themselves are not counted.

    Args:
        body: the function.
        inputs: shape and dtype by position of its inputs.
        outputs: the same of its outputs.
    """
    sizes = _sizes(body, inputs, outputs)
    outside = {*body.input, *body.output}
    last: dict[str, int] = {}
    for number, node in enumerate(body.node):
        last.update(dict.fromkeys(node.input, number))
    needed = peak = 0
    alive: dict[str, int] = {}
    for number, node in enumerate(body.node):
        dying = [name for name in dict.fromkeys(node.input) if name in alive and last[name] == number]
        if node.op_type != "Constant":
            for name in node.output:
                size = sizes.get(name, 0)
                if not name or name in outside:
                    continue
                reused = next((candidate for candidate in dying if alive[candidate] == size), None)
                if reused is not None and node.op_type in ELEMENTWISE:
                    needed -= alive.pop(reused)
                    dying.remove(reused)
                alive[name] = size
                needed += size
        peak = max(peak, needed)
        for name in (*dying, *(name for name in node.output if name in alive and name not in last)):
            needed -= alive.pop(name)
    return peak


MOVING: Final = COPYING | VIEWS | SLICING
"""Operators whose results a runtime may never store."""


def _sizes(
    body: FunctionProto, inputs: Sequence[tuple[Shape, DType]], outputs: Sequence[tuple[Shape, DType]]
) -> Mapping[str, int]:
    """Bytes of every value whose shape can be inferred."""
    graph = body_graph(body, inputs, outputs)
    graph.value_info.extend(body.value_info)
    model = helper.make_model(graph, opset_imports=list(body.opset_import))
    inferred_graph = inferred(model).graph
    return {value.name: _size_bytes(value.type) for value in inferred_graph.value_info}


def _size_bytes(kind: TypeProto) -> int:
    dtype = dtype_of(kind.tensor_type.elem_type)
    return 0 if dtype is None else dtype.item_bytes * prod(dim.dim_value for dim in kind.tensor_type.shape.dim)
