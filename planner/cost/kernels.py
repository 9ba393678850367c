"""Kernels that a GPU executes for an op: how many kernels, and how often these pass over the op's bytes.

An op is one kernel that reads its operands once and writes its results once. Two kinds of ops differ. A view launches
nothing. An op with a slow kernel is executed as other ops (``planner.graph.decompositions.cuda``): the gradient of a
filter is slices, their concatenation and products. Their kernels and bytes are counted from the ops of that form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner.graph.core.emitter import Emitter, free_prefix
from planner.graph.core.model import Op, Tensor
from planner.graph.core.traits import RESHAPES, carried
from planner.graph.decompositions.registry import Purpose, decomposition
from planner.tdl.bind import BoundOp


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels of an op."""

    count: int
    passes: float
    """Bytes that they touch for each byte of the op's operands and results."""


ONE_KERNEL: Final = Kernels(1, 1.0)


def is_alias(op: Op) -> bool:
    """Whether executing an op takes no time: its result is another view of the elements that it reads."""
    return not op.domain and (op.op_type in RESHAPES or op.op_type == "Identity")


def kernels_of(op: BoundOp, touched_bytes: float) -> Kernels:
    """The kernels of a whole op; a part of it is executed alike.

    Args:
        op: the op.
        touched_bytes: of its operands and results.
    """
    if is_alias(op.op):
        return Kernels(0, 0.0)
    rule = decomposition(Purpose.CUDA, op.op)
    if rule is None or not rule.is_better or not touched_bytes:
        return ONE_KERNEL
    emitter = _emitter(op)
    if rule(emitter, op.op) is None:
        return ONE_KERNEL
    kernels = [kernel for kernel in emitter.ops if not is_alias(kernel)]
    return Kernels(len(kernels), sum(_touched_bytes(emitter, kernel) for kernel in kernels) / touched_bytes)


def _emitter(op: BoundOp) -> Emitter:
    node = op.node
    kinds = [
        *zip(op.op.inputs, node.input_shapes, node.input_dtypes, strict=True),
        *zip(op.op.outputs, node.output_shapes, node.output_dtypes, strict=True),
    ]
    tensors = {
        name: Tensor(name, shape, dtype) for name, shape, dtype in kinds if shape is not None and dtype is not None
    }
    values = dict(zip(op.op.inputs, node.constants, strict=True))
    return Emitter(free_prefix("kernels/", sorted(tensors)), tensors, values, node.opset)


def _touched_bytes(emitter: Emitter, op: Op) -> int:
    """Of an op of a form: operands and results; of an operand that it takes a part of, as much as it makes."""
    results = [emitter.tensor(name) for name in op.outputs]
    result_bytes = sum(result.size_bytes for result in results)
    if carried(op.op_type, len(op.inputs)):
        return 2 * result_bytes
    return result_bytes + sum(emitter.tensor(name).size_bytes for name in op.inputs if name)
