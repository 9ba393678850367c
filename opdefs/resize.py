"""Resize and Upsample: a dim that keeps its size is copied, one that repeats its elements is a floor-division.

Dims that are interpolated or shrunk by a ratio of small numbers are cut with a halo; others are kept whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from planner.opdefs.broadcast import normal_axes
from planner.opdefs.parts import input_region, int64
from planner.tdl.builder import Ix, NodeView, Opaque, Sum, TensorArg, Val, op
from planner.tdl.local import LocalNode, LocalOp, NotLocalError, Part


@dataclass(frozen=True, slots=True)
class Steps:
    """A dim that is interpolated, in steps: ``made`` outputs further on, everything is ``read`` inputs further on.

    So a part that begins with a whole step is a Resize of its own. What lies beyond its borders comes with a halo of
    whole steps, the outputs of which are sliced off again.
    """

    made: int
    read: int
    halo: int
    """Inputs before and after those of a step: a multiple of ``read``."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """What happens to each dim: 1 copies, n repeats each element n times, 0 does something else."""

    repeats: tuple[int, ...]
    steps: tuple[Steps | None, ...]
    """By dim; None where it repeats, and where all of the dim is needed."""
    scales: tuple[float, ...] | None
    """By dim, where the op states them."""


_LONGEST_STEP = 16
"""Longer steps are taken for none: a part would read more beyond its borders than it is worth."""
_SAME_RATIO = 1e-6
"""A scale is stated in float32."""
_SYMMETRIC = "half_pixel_symmetric"


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
    where = node.attribute("coordinate_transformation_mode", "half_pixel")
    cropped, shifts = where == "tf_crop_and_resize", where == "tf_half_pixel_for_nn"
    fitted = node.attribute("keep_aspect_ratio_policy", "stretch") != "stretch"
    repeats: list[int] = []
    steps: list[Steps | None] = []
    for dim in range(rank):
        steps.append(None)
        if dim not in axes:
            repeats.append(1)
        elif cropped or fitted or (by_dim is None and sizes is None):
            repeats.append(0)
        else:
            before, after = node.size(0, dim), node.output_size(dim)
            ratio = Fraction(by_dim[dim]) if by_dim is not None else Fraction(after, before)
            whole = ratio.denominator == 1 and before * ratio == after
            repeats.append(int(ratio) if whole and ((ratio == 1 and not shifts) or _repeats_evenly(node)) else 0)
            if not repeats[-1]:
                steps[-1] = _steps(node, before, after, ratio)
    return Scaling(tuple(repeats), tuple(steps), by_dim)


def _steps(node: NodeView, before: int, after: int, ratio: Fraction) -> Steps | None:
    """How a dim that is interpolated goes on in steps; None if it does not, or only in long ones.

    ONNX (Resize): output x lies at (x + 0.5) / scale - 0.5 of the input, or at x / scale, and takes the nearest
    element, 2 or 4 of them, or with antialias as many more as the dim shrinks. The other coordinates depend on where a
    dim ends.
    """
    near = ratio.limit_denominator(_LONGEST_STEP)
    made, read = near.numerator, near.denominator
    if not 0 < made <= _LONGEST_STEP or abs(near / ratio - 1) > _SAME_RATIO or after == 1:
        return None
    mode, where = node.attribute("mode", "nearest"), node.attribute("coordinate_transformation_mode", "half_pixel")
    if node.op.op_type == "Upsample" or node.opset < 11:
        where = "asymmetric"
    evenly = before * made == after * read
    if where not in ("asymmetric", "half_pixel", "pytorch_half_pixel") and not (where == _SYMMETRIC and evenly):
        return None
    if mode == "nearest" and Fraction(float(np.float32(made) / np.float32(read))) != near:
        return None  # the nearest of two elements that are equally near is a matter of rounding
    taps = 2 if mode == "cubic" else 1
    if node.attribute("antialias", 0):
        taps = taps * max(1, -(-read // made)) + 1
    return Steps(made, read, -(-taps // read) * read)


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
    """Resizes what the part reads, and slices out what it makes.

    Raises:
        NotLocalError: it is to be sliced, and the opset is older than 10; or rounding would make another size.
    """
    region, made, whole = input_region(part, 0), part.outputs[0], node.output_shapes[0]
    assert made is not None, "the output is made"
    assert whole is not None, "the output is there"
    plan = scaling(node)
    rank = region.rank
    inputs = [f"c{slot}" if name else "" for slot, name in enumerate(node.op.inputs)]
    constants = {f"c{slot}": node.constant(slot) for slot, name in enumerate(node.op.inputs) if name and slot}
    inputs[0] = "in0"
    grown: dict[int, int] = {}
    starts: dict[int, int] = {}
    for dim, (repeat, steps) in enumerate(zip(plan.repeats, plan.steps, strict=True)):
        if repeat:
            first, grown[dim] = region.lo[dim] * repeat, region.shape[dim] * repeat
        elif steps is not None:
            first = region.lo[dim] // steps.read * steps.made
            grown[dim] = region.shape[dim] * steps.made // steps.read
            _check_size(plan, dim, region.shape[dim], grown[dim], whole[dim])
        else:
            continue
        starts[dim] = made.lo[dim] - first
    if len(inputs) > 3 and inputs[3] and constants["c3"].size:
        order = [axis % rank for axis in node.attribute("axes") or range(rank)]
        sizes = [int(size) for size in constants["c3"]]
        constants["c3"] = int64([grown.get(dim, size) for dim, size in zip(order, sizes, strict=True)])
    attributes = dict(node.op.attributes)
    axes = tuple(grown)
    if all(grown[dim] == made.shape[dim] for dim in axes):
        return LocalOp((LocalNode(node.op.op_type, tuple(inputs), ("out0",), attributes),), constants)
    if node.opset < 10:
        raise NotLocalError("before opset 10, a part of Upsample holds whole elements of its input")
    constants["starts"], constants["axes"] = int64([starts[dim] for dim in axes]), int64(axes)
    constants["ends"] = int64([starts[dim] + made.shape[dim] for dim in axes])
    return LocalOp(
        (
            LocalNode(node.op.op_type, tuple(inputs), ("more",), attributes),
            LocalNode("Slice", ("more", "starts", "ends", "axes"), ("out0",)),
        ),
        constants,
    )


def _check_size(plan: Scaling, dim: int, read: int, grown: int, whole: int) -> None:
    """Raises NotLocalError where a part's own Resize would not make what it is to make."""
    if plan.scales is not None:
        scale = np.float32(plan.scales[dim])
        # The runtime's kernel multiplies in float32, its shape inference in float64: 9 rows by 1.6666666 are 15 or 14.
        if {int(np.float32(read) * scale), int(read * float(scale))} != {grown}:
            raise NotLocalError("the size of a resized part is a matter of rounding")
    if grown == 1 < whole:
        raise NotLocalError("a dim that is resized to one element is computed in another way")


@op("Resize", "Upsample", local=resize_local)
def resize(node: NodeView, X: TensorArg, *parameters: TensorArg | None) -> object:
    """Copies, repeats or interpolates, dim by dim."""
    plan = scaling(node)
    stepped = [steps for steps in plan.steps if steps is not None]
    extents = tuple(steps.read + 2 * steps.halo for steps in stepped)
    padded = X.padded(0.0)

    def value(*i: Ix) -> Val:
        kept = tuple(var for var, n, steps in zip(i, plan.repeats, plan.steps, strict=True) if not n and steps is None)

        def element(*t: Ix) -> Val:
            offsets = iter(t)
            place: list[Ix | slice] = []
            for var, n, steps in zip(i, plan.repeats, plan.steps, strict=True):
                if steps is not None:
                    place.append(var // steps.made * steps.read + next(offsets) - steps.halo)
                else:
                    place.append(var // n if n else slice(None))
            return (padded if stepped else X)[tuple(place)]

        if not stepped and not kept:
            return element()
        return Opaque("interpolate")(Sum(element, extents=extents) if stepped else element())[kept]

    return value
