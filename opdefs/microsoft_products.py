"""ONNX Runtime's product with weights of few bits."""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import UnsupportedError
from planner.graph.core.model import DType, Implied
from planner.opdefs.microsoft import DOMAIN
from planner.opdefs.parts import output_region
from planner.tdl.builder import Ix, NodeView, Opaque, Sum, TensorArg, Val, call, op, over
from planner.tdl.local import LocalOp, NotLocalError, Part, same_op


def _nbits_results(node: NodeView) -> Sequence[Implied | None]:
    return (((*node.input_shape(0)[:-1], int(node.attribute("N", 0))), None),)


def _nbits_local(node: NodeView, part: Part) -> LocalOp:
    """The columns and the blocks that the part holds; the bias added once.

    Raises:
        NotLocalError: it holds a part of a block, or of a byte of zero points.
    """
    output = output_region(part)
    columns = output.hi[-1] - output.lo[-1]
    if "k" not in part.ranges:
        return same_op(node, part, attributes={"N": columns})
    (lo, hi), unit = part.ranges["k"], _nbits_unit(node)
    if lo % unit or (hi % unit and hi != part.extents["k"]):
        raise NotLocalError("a part of a product with quantised weights holds whole blocks")
    changed = {"N": columns, "K": hi - lo}
    return same_op(node, part, attributes=changed, drop=() if part.is_first else (5,))


def _nbits_unit(node: NodeView) -> int:
    """Rows of the weights that stay together: a block, or as many as share a byte of zero points."""
    block = int(node.attribute("block_size"))
    return block * (8 // int(node.attribute("bits", 4))) if _has_packed_zeros(node) else block


def _has_packed_zeros(node: NodeView) -> bool:
    return node.has(3) and node.input_dtypes[3] is DType.UINT8 and int(node.attribute("bits", 4)) < 8


@op("MatMulNBits", domain=DOMAIN, local=_nbits_local, results=_nbits_results)
def matmul_nbits(
    node: NodeView,
    A: TensorArg,
    B: TensorArg,
    scale: TensorArg,
    zero: TensorArg | None = None,
    group: TensorArg | None = None,
    bias: TensorArg | None = None,
) -> object:
    """A times the transpose of a matrix of few bits, in whose rows each block has a scale and a zero point.

    The blocks are cut between; not so where scales are a list, or ``g_idx`` says which row has which.
    """
    if node.attribute("weight_prepacked", 0):
        raise UnsupportedError(
            f"op {node.op.name} (MatMulNBits) has weights that are packed for one device",
            hint="export the model without prepacking",
        )
    block = int(node.attribute("block_size"))
    learned = [tensor for tensor in (scale, zero) if tensor is not None]

    def all_of(n: Ix, tensor: TensorArg) -> Val:
        if tensor.rank > 1:
            return tensor[(n, *(slice(None) for _ in range(tensor.rank - 1)))]
        row = node.size(tensor.slot, 0) // node.size(1, 0)
        return Sum(over((f"r{tensor.slot}",), lambda r: tensor[n * row + r]), extents=(row,))

    def whole_rows_product(i: tuple[Ix, ...], n: Ix) -> Val:
        rows = [all_of(n, tensor) for tensor in (B, *learned)]
        # Read in whole, not summed over k: a list of scales, or g_idx, may give any block any scale.
        rows += [] if group is None else [group[:]]
        takes = Sum(lambda k: A[(*i, k)] * B[n, 0, 0])
        return Opaque("MatMulNBits", (takes,))(A[(*i, slice(None))], *rows)[()]

    def product(*i: Ix) -> Val:
        *m, n = i
        if group is not None or any(tensor.rank == 1 for tensor in learned):
            total = whole_rows_product(tuple(m), n)
            return total if bias is None else call("+", total, bias[n])

        def term(k: Ix) -> Val:
            weight = [B[n, k // block, :], scale[n, k // block]]
            if zero is not None:
                weight.append(zero[n, k // (_nbits_unit(node) if _has_packed_zeros(node) else block)])
            return A[(*m, k)] * call("weight", *weight)

        total = Sum(term)
        return total if bias is None else total + bias[n]

    return product
