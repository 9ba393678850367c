"""Quantised operators: scales and zero points are of the tensor, of an axis, or of blocks along it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner.graph.core.model import Attribute
from planner.opdefs.broadcast import aligned, normal_axis
from planner.opdefs.convolution import local_groups
from planner.opdefs.parts import output_region
from planner.opdefs.windows import Window, local_geometry, windows
from planner.tdl.builder import Ix, NodeView, Opaque, Sum, TensorArg, Val, call, op
from planner.tdl.local import LocalOp, NotLocalError, Part, same_op


def scale_local(node: NodeView, part: Part) -> LocalOp:
    """The same op.

    Raises:
        NotLocalError: the part holds a part of a block.
    """
    block, output = node.attribute("block_size", 0), output_region(part)
    if block and len(node.input_shapes[1] or ()) > 1:
        axis = normal_axis(node.attribute("axis", 1), output.rank)
        full_shape = node.output_shape()
        if output.lo[axis] % block or (output.hi[axis] % block and output.hi[axis] != full_shape[axis]):
            raise NotLocalError("a part of a tensor that is quantised by blocks holds whole blocks")
    return same_op(node, part)


@op("QuantizeLinear", "DequantizeLinear", local=scale_local)
def scale_linear(node: NodeView, X: TensorArg, scale: TensorArg, zero: TensorArg | None = None) -> object:
    """Each element by the scale and the zero point of its tensor, axis or block."""

    def factor(tensor: TensorArg, i: Sequence[Ix]) -> Val:
        if tensor.rank == 0:
            return tensor.scalar()
        blocks = node.attribute("block_size", 0)
        if tensor.rank == 1 and not blocks and node.is_single(tensor.slot, 0):
            return tensor[0]  # of the whole tensor, which need not have the axis
        axis = normal_axis(node.attribute("axis", 1), X.rank)
        if tensor.rank == 1 and not blocks:
            return tensor[i[axis]]
        return tensor[tuple(var // blocks if dim == axis else var for dim, var in enumerate(i))]

    learned = [tensor for tensor in (scale, zero) if tensor is not None]
    return lambda *i: call(node.op.op_type, X[i], *(factor(tensor, i) for tensor in learned))


@op("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: NodeView, X: TensorArg) -> object:
    """The scale is of the extremes of the whole tensor, which every element therefore needs."""

    def everything() -> Val:
        return X[tuple(slice(None) for _ in range(X.rank))]

    return (
        lambda *i: Opaque("DynamicQuantizeLinear")(everything())[i],
        lambda: Opaque("Scale")(everything())[()],
        lambda: Opaque("ZeroPoint")(everything())[()],
    )


def _of_rows(node: NodeView, tensor: TensorArg, b: Sequence[Ix], m: Ix | None) -> Val:
    """A scale or zero point of a matrix: of all of it, or of each row (its last dim but one, or its only one)."""
    return _of_lines(node, tensor, b, m, 2)


def _of_columns(node: NodeView, tensor: TensorArg, b: Sequence[Ix], n: Ix | None) -> Val:
    """The same by columns: its last dim, or its only one."""
    return _of_lines(node, tensor, b, n, 1)


def _of_lines(node: NodeView, tensor: TensorArg, b: Sequence[Ix], line: Ix | None, from_end: int) -> Val:
    if tensor.rank == 0 or (tensor.rank == 1 and node.is_single(tensor.slot, 0)):
        return tensor[(0,) * tensor.rank]
    if tensor.rank == 1:
        return tensor[0 if line is None else line]
    batch = aligned(node, tensor, b, trailing=2)
    index = 0 if line is None or node.is_single(tensor.slot, tensor.rank - from_end) else line
    return tensor[(*batch, index, 0) if from_end == 2 else (*batch, 0, index)]


@op("MatMulInteger")
def matmul_integer(
    node: NodeView, A: TensorArg, B: TensorArg, a_zero: TensorArg | None = None, b_zero: TensorArg | None = None
) -> object:
    """The product of the differences from the zero points; sums of integers are exact, so that k can be cut."""

    def value(*i: Ix) -> Val:
        b, m, n = _matrix_indices(A, B, i)

        def term(k: Ix) -> Val:
            lhs, rhs = _lhs_element(node, A, b, m, k), _rhs_element(node, B, b, k, n)
            lhs = lhs if a_zero is None else lhs - _of_rows(node, a_zero, b, m)
            rhs = rhs if b_zero is None else rhs - _of_columns(node, b_zero, b, n)
            return lhs * rhs

        return Sum(term)

    return value


def _matrix_indices(A: TensorArg, B: TensorArg, i: tuple[Ix, ...]) -> tuple[tuple[Ix, ...], Ix | None, Ix | None]:
    """The indices of the batch, the row and the column; a vector has no row, or no column."""
    n = i[-1] if B.rank > 1 else None
    leading = i[:-1] if B.rank > 1 else i
    m = leading[-1] if A.rank > 1 else None
    return (leading[:-1] if A.rank > 1 else leading), m, n


def _lhs_element(node: NodeView, A: TensorArg, b: Sequence[Ix], m: Ix | None, k: Ix | slice) -> Val:
    return A[k] if m is None else A[(*aligned(node, A, b, trailing=2), m, k)]


def _rhs_element(node: NodeView, B: TensorArg, b: Sequence[Ix], k: Ix | slice, n: Ix | None) -> Val:
    return B[k] if n is None else B[(*aligned(node, B, b, trailing=2), k, n)]


@op("QLinearMatMul")
def qlinear_matmul(
    node: NodeView,
    A: TensorArg,
    a_scale: TensorArg,
    a_zero: TensorArg,
    B: TensorArg,
    b_scale: TensorArg,
    b_zero: TensorArg,
    y_scale: TensorArg,
    y_zero: TensorArg,
) -> object:
    """A product that is rounded to the output's scale, so that k is not cut."""

    def value(*i: Ix) -> Val:
        b, m, n = _matrix_indices(A, B, i)
        rows = [_of_rows(node, tensor, b, m) for tensor in (a_scale, a_zero, y_scale, y_zero)]
        columns = [_of_columns(node, tensor, b, n) for tensor in (b_scale, b_zero)]
        product = Sum(lambda k: _lhs_element(node, A, b, m, k) * _rhs_element(node, B, b, k, n))
        return call("rescale", product, *rows, *columns)

    return value


def _window(node: NodeView, weights: TensorArg) -> tuple[Window, ...]:
    rank = weights.rank - 2
    return windows(
        node, node.attribute("kernel_shape") or tuple(node.size(weights.slot, dim + 2) for dim in range(rank))
    )


def _conv_geometry(node: NodeView, part: Part, weights_slot: int) -> dict[str, Attribute]:
    """Pads, kernel and groups of a part.

    Raises:
        NotLocalError: it reads padding only.
    """
    weights = node.input_shape(weights_slot)
    if part.inputs[0] is None:
        raise NotLocalError("a part of a quantised convolution that reads padding only")
    kernel = [hi - lo for lo, hi in (part.ranges[f"k{dim}"] for dim in range(len(weights) - 2))]
    changed: dict[str, Attribute] = dict(local_geometry(node, part, kernel))
    group = node.attribute("group", 1)
    if group != 1:
        changed["group"] = local_groups(part, group, "co", weights[0] // group, weights[1])
    return changed


def _conv_value(
    node: NodeView, X: TensorArg, W: TensorArg, b: Ix, co: Ix, y: Sequence[Ix], product: Callable[[Val, Val], Val]
) -> Val:
    group = node.attribute("group", 1)
    window = _window(node, W)
    outputs, inputs = (node.size(W.slot, 0) // group, node.size(W.slot, 1)) if group != 1 else (1, 1)
    padded = X.padded(0.0)

    def term(ci: Ix, *k: Ix) -> Val:
        channel = ci if group == 1 else (co // outputs) * inputs + ci
        where = (w.at(position, offset) for w, position, offset in zip(window, y, k, strict=True))
        return product(padded[(b, channel, *where)], W[(co, ci, *k)])

    return Sum(term, count=1 + len(window))


@op("ConvInteger", local=lambda node, part: same_op(node, part, attributes=_conv_geometry(node, part, 1)))
def conv_integer(
    node: NodeView, X: TensorArg, W: TensorArg, x_zero: TensorArg | None = None, w_zero: TensorArg | None = None
) -> object:
    """A convolution of the differences from the zero points; padding is the zero point, and so adds nothing."""

    def less(value: Val, zero: TensorArg | None, co: Ix) -> Val:
        return value if zero is None else value - _of_channel(node, zero, co)

    def value(b: Ix, co: Ix, *y: Ix) -> Val:
        return _conv_value(node, X, W, b, co, y, lambda x, w: less(x, x_zero, co) * less(w, w_zero, co))

    return value


def _of_channel(node: NodeView, tensor: TensorArg, co: Ix) -> Val:
    """A scale or zero point: of the tensor, or of the output channel."""
    is_single = tensor.rank == 0 or node.is_single(tensor.slot, 0)
    return tensor[((0,) * tensor.rank) if is_single else (co,)]


@op("QLinearConv", local=lambda node, part: same_op(node, part, attributes=_conv_geometry(node, part, 3)))
def qlinear_conv(
    node: NodeView,
    X: TensorArg,
    x_scale: TensorArg,
    x_zero: TensorArg,
    W: TensorArg,
    w_scale: TensorArg,
    w_zero: TensorArg,
    y_scale: TensorArg,
    y_zero: TensorArg,
    B: TensorArg | None = None,
) -> object:
    """A convolution that is rounded to the output's scale, so that its sums are not cut."""

    def value(b: Ix, co: Ix, *y: Ix) -> Val:
        numbers = [tensor[(0,) * tensor.rank] for tensor in (x_scale, x_zero, y_scale, y_zero)]
        numbers += [_of_channel(node, tensor, co) for tensor in (w_scale, w_zero)]
        numbers += [] if B is None else [B[co]]
        return call("rescale", _conv_value(node, X, W, b, co, y, lambda x, w: x * w), *numbers)

    return value
