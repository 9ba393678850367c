"""ONNX Runtime's own products and convolutions: operands turned, an activation after them, weights of few bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.errors import DescriptionError, UnsupportedError
from planner.graph.core.model import DType, Implied
from planner.opdefs.broadcast import aligned, broadcast
from planner.opdefs.convolution import conv_local, conv_value
from planner.opdefs.microsoft import DOMAIN
from planner.opdefs.parts import output_region
from planner.opdefs.windows import windows
from planner.tdl.builder import Ix, NodeView, Opaque, Sum, TensorArg, Val, call, op, over
from planner.tdl.local import LocalOp, NotLocalError, Part, same_op


def _turned(node: NodeView, slot: int) -> tuple[int, ...]:
    """The shape of a FusedMatMul's operand once it is turned."""
    shape, letter = node.input_shape(slot), "AB"[slot]
    if len(shape) < 2:
        return shape
    if node.attribute(f"transBatch{letter}", 0):
        shape = (*shape[1:-1], shape[0], shape[-1])
    return (*shape[:-2], shape[-1], shape[-2]) if node.attribute(f"trans{letter}", 0) else shape


def _fused_matmul_results(node: NodeView) -> Sequence[Implied | None]:
    a, b = _turned(node, 0), _turned(node, 1)
    if not a or not b or a[-1] != b[-2 if len(b) > 1 else -1]:
        raise DescriptionError(f"operands of shapes {list(a)} and {list(b)} cannot be multiplied")
    rows, columns = a[-2:-1] if len(a) > 1 else (), b[-1:] if len(b) > 1 else ()
    try:
        batch = np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        raise DescriptionError(f"operands of shapes {list(a)} and {list(b)} cannot be multiplied") from None
    return (((*batch, *rows, *columns), None),)


@op("FusedMatMul", domain=DOMAIN, results=_fused_matmul_results)
def fused_matmul(node: NodeView, A: TensorArg, B: TensorArg) -> object:
    """Alpha * A' B', where the last two dims may be exchanged, and the first may stand before the last."""
    alpha = node.attribute("alpha", 1.0)

    def element(tensor: TensorArg, b: Sequence[Ix], row: Ix | None, column: Ix | None) -> Val:
        letter = "AB"[tensor.slot]
        if tensor.rank == 1:
            return tensor[row if column is None else column]
        assert row is not None, "a matrix has rows"
        assert column is not None, "a matrix has columns"
        first, last = (column, row) if node.attribute(f"trans{letter}", 0) else (row, column)
        if not node.attribute(f"transBatch{letter}", 0):
            return tensor[(*aligned(node, tensor, b, trailing=2), first, last)]
        dims = b[len(b) - (tensor.rank - 2) :]
        batch = [0 if node.is_single(tensor.slot, dim + 1) else var for dim, var in enumerate(dims)]
        return tensor[(first, *batch, last)]

    def product(*i: Ix) -> Val:
        n = i[-1] if B.rank > 1 else None
        leading = i[:-1] if B.rank > 1 else i
        m = leading[-1] if A.rank > 1 else None
        b = leading[:-1] if A.rank > 1 else leading
        total = Sum(lambda k: element(A, b, m, k) * element(B, b, *((k, n) if n is not None else (k, None))))
        return total if alpha == 1 else alpha * total

    return product


def _gemm_results(node: NodeView) -> Sequence[Implied | None]:
    a, b = node.input_shape(0), node.input_shape(1)
    if len(a) != 2 or len(b) != 2:
        raise DescriptionError("its operands are matrices")
    return (((a[1 if node.attribute("transA", 0) else 0], b[0 if node.attribute("transB", 0) else 1]), None),)


@op("FusedGemm", domain=DOMAIN, results=_gemm_results)
def fused_gemm(node: NodeView, A: TensorArg, B: TensorArg, C: TensorArg | None = None) -> object:
    """An activation of alpha * A' B' + beta * C, so that the sum is not cut."""
    alpha, beta = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    flip_a, flip_b = node.attribute("transA", 0), node.attribute("transB", 0)

    def value(m: Ix, n: Ix) -> Val:
        total = alpha * Sum(lambda k: (A[k, m] if flip_a else A[m, k]) * (B[n, k] if flip_b else B[k, n]))
        total = total if C is None else total + beta * broadcast(node, C, (m, n))
        return call(node.attribute("activation", ""), total)

    return value


def _conv_results(node: NodeView) -> Sequence[Implied | None]:
    x, w = node.input_shape(0), node.input_shape(1)
    rank = len(x) - 2
    if rank < 1 or len(w) != len(x):
        raise DescriptionError("images and weights are of other ranks")
    window = windows(node, node.attribute("kernel_shape") or w[2:])
    mode = node.attribute("auto_pad", "NOTSET")
    pads = node.attribute("pads") or (0,) * (2 * rank)
    sizes = []
    for dim, dim_window in enumerate(window):
        reach = (dim_window.kernel - 1) * dim_window.dilation + 1
        if mode.startswith("SAME"):
            sizes.append(-(-x[dim + 2] // dim_window.stride))
            continue
        padding = 0 if mode == "VALID" else pads[dim] + pads[dim + rank]
        sizes.append((x[dim + 2] + padding - reach) // dim_window.stride + 1)
    if any(size < 1 for size in sizes):
        raise DescriptionError("the kernel is larger than the image")
    return (((x[0], w[0], *sizes), None),)


def _fused_conv_local(node: NodeView, part: Part) -> LocalOp:
    """As of a Conv.

    Raises:
        NotLocalError: it reads padding only.
    """
    if part.inputs[0] is None:
        raise NotLocalError("a part of a fused convolution that reads padding only")
    return conv_local(node, part)


@op("FusedConv", domain=DOMAIN, local=_fused_conv_local, results=_conv_results)
def fused_conv(
    node: NodeView, X: TensorArg, W: TensorArg, B: TensorArg | None = None, Z: TensorArg | None = None
) -> object:
    """An activation of Conv(X, W, B) + Z, so that its sums are not cut."""
    total = conv_value(node, X, W)

    def value(b: Ix, co: Ix, *y: Ix) -> Val:
        terms = [total(b, co, *y)]
        terms += [] if B is None else [B[co]]
        terms += [] if Z is None else [Z[(b, co, *y)]]
        return call(node.attribute("activation", ""), call("+", *terms))

    return value


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
