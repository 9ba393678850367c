"""Resize as a matrix along each dim: which elements of its input an element of its output is a sum of."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from planner.graph.core.attributes import integer, integers, number, text
from planner.graph.core.bands import Band
from planner.graph.core.model import Op, Shape

_HALF_WAY = 1e-6
"""A place so near the middle of two elements counts as there (ONNX Runtime, measured)."""


def resizing(
    op: Op,
    before: Shape,
    after: Shape,
    scales: Sequence[float] | None = None,
    sizes: Sequence[float] | None = None,
    region: Sequence[float] | None = None,
) -> dict[int, Band]:
    """The matrices of a Resize, by dim that changes.

    Args:
        op: since opset 11.
        before: its input's shape.
        after: its output's.
        scales: by axis, where it states them.
        sizes: by axis; needed where it keeps the aspect.
        region: of the input, starts and ends by axis; needed of tf_crop_and_resize.
    """
    if before == after:
        return {}  # ONNX Runtime copies it, whatever is stated
    coordinates, policy = (
        text(op, "coordinate_transformation_mode", "half_pixel"),
        text(op, "keep_aspect_ratio_policy", "stretch"),
    )
    axes = [axis % len(before) for axis in integers(op, "axes", tuple(range(len(before))))]
    factors = [out_size / size for out_size, size in zip(after, before, strict=True)]
    if scales is not None:
        for axis, scale in zip(axes, scales, strict=True):
            factors[axis] = scale
    elif policy != "stretch" and sizes is not None:
        ratios = [out_size / before[axis] for axis, out_size in zip(axes, sizes, strict=True)]
        common = min(ratios) if policy == "not_larger" else max(ratios)
        for axis in axes:
            factors[axis] = common
    regions = [(0.0, 1.0)] * len(before)
    if region is not None:
        for axis, start, end in zip(axes, region, region[len(axes) :], strict=False):
            regions[axis] = (start, end)
    shifts = coordinates == "tf_half_pixel_for_nn" and text(op, "mode", "nearest") == "nearest"
    bands = {}
    for dim, (size, out_size, factor) in enumerate(zip(before, after, factors, strict=True)):
        if size != out_size or factor != 1.0 or regions[dim] != (0.0, 1.0) or shifts:
            bands[dim] = interpolation(
                size,
                out_size,
                factor,
                mode=text(op, "mode", "nearest"),
                coordinates=coordinates,
                rounding=text(op, "nearest_mode", "round_prefer_floor"),
                cubic=number(op, "cubic_coeff_a", -0.75),
                exclude=bool(integer(op, "exclude_outside", 0)),
                antialias=bool(integer(op, "antialias", 0)),
                region=regions[dim],
            )
    return bands


def interpolation(
    size: int,
    out_size: int,
    scale: float,
    *,
    mode: str,
    coordinates: str,
    rounding: str,
    cubic: float,
    exclude: bool,
    antialias: bool = False,
    region: tuple[float, float] = (0.0, 1.0),
) -> Band:
    """The matrix [out_size, size] of ONNX Resize along one dim (ONNX operator Resize, its reference formulas).

    Places are in float32 and in ONNX Runtime's order, so that the nearest element is the one that it reads.

    Args:
        size: of the input.
        out_size: size of the output.
        scale: of the output to the input.
        mode: nearest, linear or cubic.
        coordinates: the coordinate transformation.
        rounding: of nearest.
        cubic: parameter of Keys' kernel.
        exclude: whether elements beyond the border have no weight.
        antialias: whether the kernel is stretched where the output is smaller.
        region: of the input, for tf_crop_and_resize; what lies beyond the input is extrapolated, and reads nothing.

    Raises:
        ValueError: a coordinate transformation that there is not.
    """
    out, half, last = np.arange(out_size, dtype=np.float32), np.float32(0.5), np.float32(size - 1)
    ratio, start, end = (np.float32(number) for number in (scale, *region))
    # An output of one element has no spacing, and out_size - 1 would divide by zero: such cases come by themselves.
    match coordinates:
        case "asymmetric":
            at = out / ratio
        case "pytorch_half_pixel" if out_size == 1:
            at = 0 * out
        case "half_pixel" | "pytorch_half_pixel":
            at = (out + half) / ratio - half
        case "align_corners":
            at = out * last / np.float32(out_size - 1) if out_size > 1 else 0 * out
        case "tf_half_pixel_for_nn":
            at = (out + half) / ratio
        case "half_pixel_symmetric":
            before = np.float32(size / 2) * (1 - np.float32(out_size) / (ratio * np.float32(size)))
            at = (float(before) + (out + 0.5).astype(float) / float(ratio) - 0.5).astype(np.float32)
        case "tf_crop_and_resize" if out_size > 1:
            at = start * last + out * (end - start) * last / np.float32(out_size - 1)
        case "tf_crop_and_resize":
            at = np.full(1, 0.5 * float(start + end) * float(last), np.float32)
        case _:
            raise ValueError(coordinates)
    places, weights = _taps(at, size, scale if antialias else 1.0, mode, rounding, cubic, exclude=exclude)
    if coordinates == "tf_crop_and_resize":
        weights[(at < 0) | (at > size - 1)] = 0.0
    rows = np.repeat(np.arange(out_size), places.shape[1])
    return Band.of((out_size, size), rows, places.ravel(), weights.ravel())


def _taps(
    at: np.ndarray, size: int, scale: float, mode: str, rounding: str, cubic: float, *, exclude: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Which elements are read at places, which are indices with fractions, and what they count.

    A scale below 1 stretches the kernel.

    Returns:
        Elements and weights, [places, taps].
    """
    if mode == "nearest":
        below, past = np.floor(at), at - np.floor(at)
        is_half = np.abs(past - 0.5) < _HALF_WAY
        is_up = {
            "floor": np.zeros_like(is_half),
            "ceil": past > 0,
            "round_prefer_floor": (past > 0.5) & ~is_half,
            "round_prefer_ceil": (past > 0.5) | is_half,
        }
        nearest = below + is_up[rounding]
        return np.clip(nearest, 0, size - 1).astype(np.int64)[:, None], np.ones((len(at), 1))
    first = np.floor(at)
    ratio = at - first
    narrow = min(scale, 1.0)
    reach = math.ceil((1 if mode == "linear" else 2) / narrow)
    offsets = range(1 - reach, 1 + reach)
    distances = [np.abs(ratio - offset) * narrow for offset in offsets]
    weights = [np.maximum(1 - far, 0) if mode == "linear" else _cubic(far, cubic) for far in distances]
    if exclude:
        inside = [((first + offset >= 0) & (first + offset < size)) for offset in offsets]
        weights = [weight * is_inside for weight, is_inside in zip(weights, inside, strict=True)]
    # Weights add up to 1 again: some of them were left out, or the kernel was stretched.
    if exclude or narrow < 1:
        total = sum(weights)
        weights = [weight / total for weight in weights]
    read = [np.clip(first + offset, 0, size - 1).astype(np.int64) for offset in offsets]
    return np.stack(read, axis=1), np.stack(weights, axis=1)


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Keys' kernel (1981) with parameter ``a``."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    kernel: np.ndarray = np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
    return kernel
