"""Resize and Upsample: a dim that keeps its size is copied, one that repeats its elements is a floor-division.

Other dims (interpolated, or shrunk) are kept whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from opdefs.broadcast import normal_axes
from opdefs.parts import input_region, int64
from planner.tdl.builder import Ix, NodeView, Opaque, TensorArg, Val, op
from planner.tdl.local import LocalNode, LocalOp, NotLocalError, Part


@dataclass(frozen=True, slots=True)
class Scaling:
    """What happens to each dim: 1 copies, n repeats each element n times, 0 needs all of the dim."""

    repeats: tuple[int, ...]
    scales: tuple[float, ...] | None
    """By dim, where the op states them."""


def _stated(node: NodeView) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Scales and sizes, as far as they are known; an empty input is none."""
    if node.op.op_type == "Upsample" and node.attribute("scales") is not None:
        return np.array(node.attribute("scales")), None
    first = 1 if node.op.op_type == "Upsample" or node.opset < 11 else 2
    found = []
    for slot in (first, 3):
        value = node.constant_if_known(slot) if node.has(slot) and slot >= first else None
        found.append(None if value is None or value.size == 0 else value)
    return found[0], found[1] if first == 2 else None


def scaling(node: NodeView) -> Scaling:
    """How each dim is scaled."""
    rank = node.rank(0)
    axes = normal_axes(node.attribute("axes") or range(rank), rank) if node.attribute("axes") else tuple(range(rank))
    order = [axis % rank for axis in node.attribute("axes") or range(rank)]
    scales, sizes = _stated(node)
    by_dim = None
    if scales is not None:
        by_dim = tuple(float(scales[order.index(dim)]) if dim in axes else 1.0 for dim in range(rank))
    cropped = node.attribute("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    fitted = node.attribute("keep_aspect_ratio_policy", "stretch") != "stretch"
    repeats = []
    for dim in range(rank):
        if dim not in axes:
            repeats.append(1)
        elif cropped or fitted or (by_dim is None and sizes is None):
            repeats.append(0)
        else:
            before, after = node.size(0, dim), node.output_size(dim)
            ratio = Fraction(by_dim[dim]) if by_dim is not None else Fraction(after, before)
            whole = ratio.denominator == 1 and before * ratio == after
            repeats.append(int(ratio) if whole and (ratio == 1 or _repeats_evenly(node)) else 0)
    return Scaling(tuple(repeats), by_dim)


def _repeats_evenly(node: NodeView) -> bool:
    """True if nearest neighbours, for a whole scale n, are ``x // n``."""
    if node.attribute("mode", "nearest") != "nearest":
        return False
    if node.op.op_type == "Upsample" or node.opset < 11:
        return True
    where = node.attribute("coordinate_transformation_mode", "half_pixel")
    rounding = node.attribute("nearest_mode", "round_prefer_floor")
    if where == "asymmetric":
        return bool(rounding == "floor")
    return where in ("half_pixel", "pytorch_half_pixel") and rounding in ("round_prefer_floor", "round_prefer_ceil")


def resize_local(node: NodeView, part: Part) -> LocalOp:
    """Resizes what the part reads; where it begins or ends inside of a repeated element, slices it out.

    Raises:
        NotLocalError: it does, and the opset is older than 10.
    """
    region, made = input_region(part, 0), part.outputs[0]
    assert made is not None, "the output is made"
    plan = scaling(node)
    attributes = dict(node.op.attributes)
    inputs = [f"c{slot}" if name else "" for slot, name in enumerate(node.op.inputs)]
    constants = {f"c{slot}": node.constant(slot) for slot, name in enumerate(node.op.inputs) if name and slot}
    inputs[0] = "in0"
    rank = region.rank
    grown = [size * max(1, repeat) for size, repeat in zip(region.shape, plan.repeats, strict=True)]
    if len(inputs) > 3 and inputs[3] and constants["c3"].size:
        order = [axis % rank for axis in node.attribute("axes") or range(rank)]
        sizes = [int(size) for size in constants["c3"]]
        for number, dim in enumerate(order):
            if plan.repeats[dim]:
                sizes[number] = grown[dim]
        constants["c3"] = int64(sizes)
    starts = [made.lo[dim] - region.lo[dim] * plan.repeats[dim] for dim in range(rank) if plan.repeats[dim]]
    axes = [dim for dim in range(rank) if plan.repeats[dim]]
    if all(grown[dim] == made.shape[dim] for dim in axes):
        return LocalOp((LocalNode(node.op.op_type, tuple(inputs), ("out0",), attributes),), constants)
    if node.opset < 10:
        raise NotLocalError("before opset 10, a part of Upsample holds whole elements of its input")
    constants["starts"], constants["axes"] = int64(starts), int64(axes)
    constants["ends"] = int64([start + made.shape[dim] for start, dim in zip(starts, axes, strict=True)])
    return LocalOp(
        (
            LocalNode(node.op.op_type, tuple(inputs), ("more",), attributes),
            LocalNode("Slice", ("more", "starts", "ends", "axes"), ("out0",)),
        ),
        constants,
    )


@op("Resize", "Upsample", local=resize_local)
def resize(node: NodeView, X: TensorArg, *parameters: TensorArg | None) -> object:
    """Copies, repeats or interpolates, dim by dim."""
    repeats = scaling(node).repeats

    def value(*i: Ix) -> Val:
        read = X[tuple(var // n if n else slice(None) for var, n in zip(i, repeats, strict=True))]
        kept = tuple(var for var, n in zip(i, repeats, strict=True) if not n)
        return Opaque("interpolate")(read)[kept] if kept else read

    return value
