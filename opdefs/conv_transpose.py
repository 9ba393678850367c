"""ConvTranspose: the data gradient of a Conv, in gather form.

Output y reads input x with ``y = x * stride + k * dilation - pad``, that is ``x = (y + pad - k * dilation) / stride``
where that is an integer, and nothing where it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

import numpy as np

from planner.errors import DescriptionError
from planner.graph.core.model import Attribute
from planner.opdefs.convolution import is_one_group, local_groups, only_bias
from planner.opdefs.parts import input_region, int64, output_region
from planner.opdefs.windows import Scattering, Window, listed
from planner.tdl.builder import Ix, NodeView, Sum, TensorArg, Val, op
from planner.tdl.local import LocalNode, LocalOp, Part, same_op

_END: Final = 2**63 - 1
"""Where a Slice ends that takes all to the end of a dim."""


def _windows(node: NodeView, kernel: Sequence[int]) -> tuple[Window, ...]:
    rank = len(kernel)
    strides, dilations = listed(node, "strides", rank, 1), listed(node, "dilations", rank, 1)
    extra, pads = listed(node, "output_padding", rank, 0), listed(node, "pads", 2 * rank, 0)
    if any(value < 1 for value in (*strides, *dilations, *kernel)):
        raise DescriptionError("kernel sizes, strides and dilations are positive")
    mode = node.attribute("auto_pad", "NOTSET")
    if mode == "VALID":
        pads = (0,) * (2 * rank)
    if not mode.startswith("SAME") and node.attribute("output_shape") is None:
        return tuple(Window(kernel[dim], strides[dim], dilations[dim], pads[dim]) for dim in range(rank))
    window_by_dim = []
    for dim in range(rank):
        reach = strides[dim] * (node.size(0, dim + 2) - 1) + extra[dim] + (kernel[dim] - 1) * dilations[dim] + 1
        total = max(0, reach - node.output_size(dim + 2))
        before = total // 2 if mode == "SAME_UPPER" else total - total // 2
        window_by_dim.append(Window(kernel[dim], strides[dim], dilations[dim], before))
    return tuple(window_by_dim)


def _spatial_kernel(node: NodeView, rank: int) -> tuple[int, ...]:
    return node.attribute("kernel_shape") or tuple(node.size(1, dim + 2) for dim in range(rank))


def conv_transpose_local(node: NodeView, part: Part) -> LocalOp:
    """Crops what the part's inputs scatter outside of it, and widens with zeros where none of them reaches."""
    if part.inputs[0] is None:
        return only_bias(node, part)
    region, output, weights = input_region(part, 0), output_region(part), node.input_shape(1)
    rank = len(weights) - 2
    group = node.attribute("group", 1)
    kernel: list[int] = []
    dims: list[Scattering] = []
    window = _windows(node, _spatial_kernel(node, rank))
    for dim, w in enumerate(window):
        lo, hi = part.ranges[f"k{dim}"]
        kernel.append(hi - lo)
        # Element 0 of what the part's inputs and kernel scatter into stands at this place of the whole output.
        origin = region.lo[dim + 2] * w.stride + lo * w.dilation - w.before
        length = (region.shape[dim + 2] - 1) * w.stride + (hi - lo - 1) * w.dilation + 1
        dims.append(Scattering.of(output.lo[dim + 2] - origin, origin + length - output.hi[dim + 2], w.stride))
    pads = tuple(form.pad for form in dims)
    changed: dict[str, Attribute] = {
        "kernel_shape": tuple(kernel),
        "pads": (*pads, *pads),
        "output_padding": tuple(form.output_padding for form in dims),
        "auto_pad": "NOTSET",
        "strides": tuple(w.stride for w in window),
        "dilations": tuple(w.dilation for w in window),
    }
    if group != 1:
        changed["group"] = local_groups(part, group, "co", weights[1], weights[0] // group)
    biased = part.is_first and len(part.inputs) > 2 and part.inputs[2] is not None
    is_widened = any(any(form.zeros) for form in dims)
    scatter = same_op(node, part, attributes=changed, drop=() if biased and not is_widened else (2,)).nodes[0]
    nodes = [LocalNode("ConvTranspose", scatter.inputs, ("scattered",), _without(changed, node))]
    constants: dict[str, np.ndarray] = {}
    sliced = [dim for dim, form in enumerate(dims) if any(form.cut)]
    if sliced:
        constants["starts"] = int64([dims[dim].cut[0] for dim in sliced])
        constants["ends"] = int64([-dims[dim].cut[1] or _END for dim in sliced])
        constants["axes"] = int64([dim + 2 for dim in sliced])
        nodes.append(LocalNode("Slice", ("scattered", "starts", "ends", "axes"), ("cut",)))
    if is_widened:
        constants["zeros"] = int64((0, 0, *(form.zeros[0] for form in dims), 0, 0, *(form.zeros[1] for form in dims)))
        nodes.append(LocalNode("Pad", (nodes[-1].outputs[0], "zeros"), ("widened",)))
    if is_widened and biased:
        constants["channels"] = int64((-1, *(1 for _ in range(rank))))
        nodes.append(LocalNode("Reshape", ("in2", "channels"), ("bias",)))
        nodes.append(LocalNode("Add", ("widened", "bias"), ("sum",)))
    nodes[-1] = replace(nodes[-1], outputs=("out0",))
    return LocalOp(tuple(nodes), constants)


def _without(changed: dict[str, Attribute], node: NodeView) -> dict[str, Attribute]:
    """The op's attributes with these changes, but for ``output_shape``, which pads replace."""
    merged = {**dict(node.op.attributes), **changed}
    merged.pop("output_shape", None)
    return merged


@op("ConvTranspose", local=conv_transpose_local, always_local=is_one_group)
def conv_transpose(node: NodeView, X: TensorArg, W: TensorArg, B: TensorArg | None = None) -> object:
    """Y[b, co, y] = Sum over ci and k of X[b, ci, (y + pad - k*dilation) / stride] * W[ci, co, k], plus B[co].

    With groups, output channel co is number ``co % outputs`` of group ``co // outputs``.
    """
    rank = X.rank - 2
    group = node.attribute("group", 1)
    window = _windows(node, _spatial_kernel(node, rank))
    outputs, inputs = (node.size(1, 1), node.size(1, 0) // group) if group != 1 else (1, 1)

    def term(b: Ix, co: Ix, y: tuple[Ix, ...], ci: Ix, k: tuple[Ix, ...]) -> Val:
        where = [
            (position - offset * w.dilation + w.before) * Fraction(1, w.stride)
            for w, position, offset in zip(window, y, k, strict=True)
        ]
        if group == 1:
            return X.padded(0.0)[(b, ci, *where)] * W[(ci, co, *k)]
        channel = (co // outputs) * inputs + ci
        return X.padded(0.0)[(b, channel, *where)] * W[(channel, co % outputs, *k)]

    def value(b: Ix, co: Ix, *y: Ix) -> Val:
        extents = None if group == 1 else (inputs, *(w.kernel for w in window))
        total = Sum(lambda ci, *k: term(b, co, y, ci, k), extents=extents, count=1 + rank)
        return total if B is None else total + B[co]

    return value
