"""Conv, of any rank, grouped or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.graph.core.model import Attribute
from planner.opdefs.parts import constant_result, input_region, int64, output_region, output_shape
from planner.opdefs.windows import local_geometry, windows
from planner.tdl.builder import Ix, NodeView, Sum, TensorArg, Val, op
from planner.tdl.local import LocalNode, LocalOp, NotLocalError, Part, same_op


def local_groups(part: Part, group: int, output: str, outputs_per_group: int, inputs_per_group: int) -> int:
    """The ``group`` attribute of a part of a grouped convolution.

    Args:
        part: the worker's part.
        group: groups of the whole op.
        output: index variable of the output channels.
        outputs_per_group: output channels of one group.
        inputs_per_group: input channels of one group.

    Raises:
        NotLocalError: the part holds several groups and not all of each.
    """
    if group == 1:
        return 1
    lo, hi = part.ranges[output]
    first, last = lo // outputs_per_group, (hi - 1) // outputs_per_group
    if first == last:
        return 1
    if lo % outputs_per_group or hi % outputs_per_group:
        raise NotLocalError("a part of a grouped convolution holds whole groups, or lies in one")
    if part.ranges["ci"] != (0, inputs_per_group):
        raise NotLocalError("a part of a grouped convolution that holds several groups has all their input channels")
    return last - first + 1


def is_one_group(node: NodeView) -> bool:
    """Then a convolution's part is another convolution, wherever it is cut."""
    return bool(node.attribute("group", 1) == 1)


def only_bias(node: NodeView, part: Part) -> LocalOp:
    """The local op of a part to which no input contributes: the bias, or zeros."""
    if len(part.inputs) < 3 or part.inputs[2] is None:
        return constant_result(node, part, 0.0)
    shape = output_shape(node, part)
    return LocalOp(
        (LocalNode("Reshape", ("in2", "channels"), ("bias",)), LocalNode("Expand", ("bias", "shape"), ("out0",))),
        {"channels": int64((1, shape[1], *(1 for _ in shape[2:]))), "shape": int64(shape)},
    )


def conv_local(node: NodeView, part: Part) -> LocalOp:
    """Explicit pads where the part lies at a border; the groups that it holds; the bias added once."""
    if part.inputs[0] is None:
        return only_bias(node, part)
    weights = node.input_shape(1)
    group = node.attribute("group", 1)
    kernel = [hi - lo for lo, hi in (part.ranges[f"k{dim}"] for dim in range(len(weights) - 2))]
    changed: dict[str, Attribute] = dict(local_geometry(node, part, kernel))
    if group != 1:
        changed["group"] = local_groups(part, group, "co", weights[0] // group, weights[1])
    local = same_op(node, part, attributes=changed, drop=() if part.is_first else (2,))
    return _as_channels(local, part) if node.op.op_type == "Conv" and group != 1 else local


def _as_channels(local: LocalOp, part: Part) -> LocalOp:
    """The same with the first spatial dim as channels, where one window reads all of it.

    So are the samples in the gradient of a grouped filter. Kernels for more dims are slower, or are none.
    """
    x, w, y = input_region(part, 0).shape, input_region(part, 1).shape, output_region(part)
    node, rank = local.nodes[0], len(x) - 2
    pads = node.attributes["pads"]
    assert isinstance(pads, tuple), "local_geometry states them"
    if rank == 1 or x[2] != w[2] or y.shape[2] != 1 or pads[0] or pads[rank]:
        return local
    changed: dict[str, Attribute] = {
        name: value[1:] if isinstance(value, tuple) else value for name, value in node.attributes.items()
    }
    changed["pads"] = (*pads[1:rank], *pads[rank + 1 :])
    shapes = {"xs": (x[0], x[1] * x[2], *x[3:]), "ws": (w[0], w[1] * w[2], *w[3:]), "ys": y.shape}
    return LocalOp(
        (
            LocalNode("Reshape", (node.inputs[0], "xs"), ("x",)),
            LocalNode("Reshape", (node.inputs[1], "ws"), ("w",)),
            replace(node, inputs=("x", "w", *node.inputs[2:]), outputs=("y",), attributes=changed),
            LocalNode("Reshape", ("y", "ys"), node.outputs),
        ),
        {**local.constants, **{name: int64(shape) for name, shape in shapes.items()}},
    )


@op("Conv", local=conv_local, always_local=is_one_group)
def conv(node: NodeView, X: TensorArg, W: TensorArg, B: TensorArg | None = None) -> object:
    """Y[b, co, y] = Sum over ci and k of X[b, ci, y*stride + k*dilation - pad] * W[co, ci, k], plus B[co].

    With groups, output channel co is of group ``co // outputs``, and reads input channels ``group * inputs + ci``.
    """
    total = conv_value(node, X, W)
    if B is None:
        return total
    return lambda b, co, *y: total(b, co, *y) + B[co]


def conv_value(node: NodeView, X: TensorArg, W: TensorArg) -> Callable[..., Val]:
    """An element of a convolution without its bias, as a function of its batch, channel and position."""
    rank = X.rank - 2
    group = node.attribute("group", 1)
    window = windows(node, node.attribute("kernel_shape") or tuple(node.size(1, dim + 2) for dim in range(rank)))
    outputs, inputs = (node.size(1, 0) // group, node.size(1, 1)) if group != 1 else (1, 1)
    padded = X.padded(0.0)

    def term(b: Ix, co: Ix, y: tuple[Ix, ...], ci: Ix, k: tuple[Ix, ...]) -> Val:
        channel = ci if group == 1 else (co // outputs) * inputs + ci
        where = (w.at(position, offset) for w, position, offset in zip(window, y, k, strict=True))
        return padded[(b, channel, *where)] * W[(co, ci, *k)]

    def value(b: Ix, co: Ix, *y: Ix) -> Val:
        return Sum(lambda ci, *k: term(b, co, y, ci, k), count=1 + rank)

    return value
