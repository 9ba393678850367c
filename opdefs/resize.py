"""Resize and Upsample: a dim that keeps its size is copied, one that repeats its elements is a floor-division.

A dim that is interpolated is a lookup of known places along a line, weighed and summed: a part reads the few rows
beyond its borders that these are.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np

from planner.graph.core.bands import Band
from planner.graph.core.interpolation import resizing
from planner.graph.folding.evaluate import MAX_FOLDED_ELEMENTS
from planner.opdefs.lookup import Strip, strip_of
from planner.opdefs.parts import input_region, int64, output_dtype, output_region
from planner.tdl.builder import Ix, NodeView, Opaque, Sum, TensorArg, Val, op
from planner.tdl.local import LocalNode, LocalOp, Part

Way: TypeAlias = "int | Strip | None"
"""What happens to a dim: 1 copies, n repeats elements; else the strip that an element is made of, or all of the dim."""


def _is_old(node: NodeView) -> bool:
    """Whether it is Upsample, or the Resize that took its place, whose only operand beside the first is scales."""
    return node.op.op_type == "Upsample" or node.opset < 11


def _stated(node: NodeView) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Scales and sizes, as far as they are known; an empty input is none."""
    if node.attribute("scales") is not None:
        return np.array(node.attribute("scales")), None
    first = 1 if _is_old(node) else 2
    values = [node.constant_if_known(slot) if node.has(slot) and slot >= first else None for slot in (first, 3)]
    scales, sizes = (None if value is None or value.size == 0 else value for value in values)
    return scales, sizes if first == 2 else None


def _bands(node: NodeView) -> dict[int, Band] | None:
    """The matrices of the dims that are resized; None where they are not known, too large, or not each by itself."""
    scales, sizes = _stated(node)
    where, policy = node.attribute("coordinate_transformation_mode"), node.attribute("keep_aspect_ratio_policy")
    before, after = (
        tuple(size(dim) for dim in range(node.rank(0))) for size in (partial(node.size, 0), node.output_size)
    )
    max_size = max((max(pair) for pair in zip(before, after, strict=True) if pair[0] != pair[1]), default=0)
    is_known = (scales is not None or sizes is not None) and max_size <= MAX_FOLDED_ELEMENTS and 0 not in before
    if not is_known or where == "tf_crop_and_resize" or policy not in (None, "stretch"):
        return None
    resized = node.op
    if _is_old(node):
        if any(size < old for size, old in zip(after, before, strict=True)):
            return None
        old = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        resized = replace(resized, attributes=(*resized.attributes, *old.items()))
    return resizing(resized, before, after, None if scales is None else scales.ravel().tolist())


def _is_summed(band: Band) -> bool:
    """Whether elements are more than looked up."""
    return band.width > 1 or bool((band.weights != 1).any())


def _ways(node: NodeView) -> tuple[Way, ...]:
    """What happens to each dim."""
    bands, rank = _bands(node), node.rank(0)
    if bands is None:
        axes = [axis % rank for axis in node.attribute("axes") or range(rank)]
        return tuple(None if dim in axes else 1 for dim in range(rank))
    is_float, ways = output_dtype(node).is_float and node.opset >= 13, list[Way]()
    for dim in range(rank):
        band, size = bands.get(dim), node.size(0, dim)
        if band is None or band.is_identity:
            ways.append(1)
            continue
        times = band.rows // size
        if np.array_equal(band.places[:, 0], np.arange(times * size) // times) and not _is_summed(band):
            ways.append(times)
        else:
            may_cut = is_float or not _is_summed(band)
            ways.append(strip_of(band.places, size, dim=0, widest=size - 1) if may_cut else None)
    return tuple(ways)


def resize_local(node: NodeView, part: Part) -> LocalOp:
    """Dims that are whole, or repeat whole elements, are resized; of others the elements are looked up and summed."""
    region, tile = input_region(part, 0), output_region(part)
    ways, bands, cut = _ways(node), _bands(node) or {}, dict[int, Band]()
    for dim, way in enumerate(ways):
        is_whole = (region.shape[dim], tile.shape[dim]) == (node.size(0, dim), node.output_size(dim))
        grown = (region.lo[dim] * way, region.hi[dim] * way) if isinstance(way, int) else None
        if not is_whole and grown != (tile.lo[dim], tile.hi[dim]):
            cut[dim] = bands[dim]
    inputs = [f"c{slot}" if name else "" for slot, name in enumerate(node.op.inputs)]
    constants = {f"c{slot}": node.constant(slot) for slot, name in enumerate(node.op.inputs) if name and slot}
    axes = [axis % region.rank for axis in node.attribute("axes") or range(region.rank)]
    # Before opset 11 scales are an attribute or input 1, which stays as it is: every resized dim is then looked up.
    if node.opset < 11 and cut:
        cut = bands
    if "c2" in constants and constants["c2"].size:
        constants["c2"] = np.where([axis in cut for axis in axes], np.float32(1), constants["c2"])
    if "c3" in constants and constants["c3"].size:
        is_grown = [isinstance(ways[axis], int) for axis in axes]
        sizes = np.where(is_grown, [tile.shape[axis] for axis in axes], constants["c3"])
        constants["c3"] = np.where([axis in cut for axis in axes], [region.shape[axis] for axis in axes], sizes)
    nodes, last = list[LocalNode](), "in0"
    if any(way != 1 and dim not in cut for dim, way in enumerate(ways)):
        nodes.append(LocalNode(node.op.op_type, ("in0", *inputs[1:]), ("resized",), dict(node.op.attributes)))
        last = "resized"
    for dim, band in cut.items():
        places, weights = (array[tile.lo[dim] : tile.hi[dim]] for array in (band.places - region.lo[dim], band.weights))
        constants[f"places{dim}"] = places if _is_summed(band) else places[:, 0]
        nodes.append(LocalNode("Gather", (last, f"places{dim}"), (f"read{dim}",), {"axis": dim}))
        if _is_summed(band):
            column = weights.reshape(*places.shape, *(1 for _ in range(dim + 1, region.rank)))
            constants[f"weights{dim}"] = column.astype(output_dtype(node).array_dtype)
            constants[f"taps{dim}"] = int64([dim + 1])
            nodes.append(LocalNode("Mul", (f"read{dim}", f"weights{dim}"), (f"weighed{dim}",)))
            nodes.append(LocalNode("ReduceSum", (f"weighed{dim}", f"taps{dim}"), (f"summed{dim}",), {"keepdims": 0}))
        (last,) = nodes[-1].outputs
    return LocalOp((*nodes[:-1], replace(nodes[-1], outputs=("out0",))), constants)


@op("Resize", "Upsample", local=resize_local)
def resize(node: NodeView, X: TensorArg, *parameters: TensorArg | None) -> object:
    """Copies, repeats or interpolates, dim by dim."""
    ways = node.derive(_ways)
    strips = [way for way in ways if isinstance(way, Strip)]
    padded = X.padded(0.0)

    def value(*i: Ix) -> Val:
        opaque_vars = tuple(var for var, way in zip(i, ways, strict=True) if way is None)

        def element(*ends: Ix) -> Val:
            end = iter(ends)
            return (padded if strips else X)[
                tuple(
                    way.at(var, next(end)) if isinstance(way, Strip) else var // way if way else slice(None)
                    for var, way in zip(i, ways, strict=True)
                )
            ]

        if not strips and not opaque_vars:
            return element()
        return Opaque("interpolate")(Sum(element, extents=(2,) * len(strips)) if strips else element())[opaque_vars]

    return value
