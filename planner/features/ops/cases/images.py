"""Cases of operators on images and signals: resizing, sampling, blocks, further pools, transforms, tables."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.features.ops.cases.case import Case, Given, Known, ints, make
from planner.graph.core.model import Attribute, TensorAttribute


def floats(*values: float) -> Known:
    """A constant input of real numbers: scales."""
    return Known(np.array(values, dtype=np.float32))


def resizes() -> Iterator[Case]:
    """Nearest and interpolated, up and down, by scales and by sizes, old forms and new."""
    asymmetric: dict[str, Attribute] = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    yield make("Resize", (2, 3, 4, 5), None, floats(1, 1, 2, 3), **asymmetric)  # type: ignore[arg-type]
    yield make("Resize", (2, 3, 4, 5), None, floats(1, 1, 2, 2))
    yield make("Resize", (2, 3, 4, 5), None, None, ints(2, 3, 12, 15))
    yield make("Resize", (2, 3, 4, 5), None, None, ints(2, 3, 7, 5))
    yield make("Resize", (2, 3, 4, 5), None, floats(1, 1, 1.5, 2), mode="linear")
    yield make("Resize", (2, 3, 5, 5), None, floats(1, 1, 2, 2), mode="cubic")
    yield make("Resize", (1, 2, 6, 6), None, floats(1, 1, 0.5, 0.5), mode="linear")
    yield make("Resize", (4, 6), None, floats(1.2, 2), coordinate_transformation_mode="align_corners", mode="linear")
    yield make("Resize", (2, 3, 4, 5), None, floats(2, 3), axes=(2, 3), nearest_mode="ceil")
    yield make("Resize", (2, 3, 4, 5), None, None, ints(8, 10), axes=(3, 2))
    yield make("Resize", (2, 3, 4, 6), None, None, ints(8, 8), axes=(2, 3), keep_aspect_ratio_policy="not_larger")
    yield make("Resize", (2, 2, 4, 4), None, floats(1, 1, 2, 2), opset=13)
    yield make("Resize", (2, 2, 4, 3), floats(1, 1, 2, 2), opset=10)
    yield make("Resize", (1, 1, 9, 12), None, None, ints(1, 1, 15, 9), mode="linear")
    yield make("Resize", (1, 1, 8, 12), None, floats(1, 1, 1.25, 0.75), mode="linear")
    yield make("Resize", (1, 1, 12, 10), None, floats(1, 1, 0.6, 0.6), mode="cubic", antialias=1)
    yield make("Resize", (1, 1, 12, 9), None, floats(1, 1, 1.5, 0.5), mode="nearest")
    yield make(
        "Resize", (1, 1, 8, 9), None, None, ints(1, 1, 12, 6), mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1
    )
    yield make("Resize", (1, 1, 12, 12), None, None, ints(4, 6), axes=(2, 3), mode="linear", antialias=1)
    symmetric = {"coordinate_transformation_mode": "half_pixel_symmetric", "mode": "linear"}
    yield make("Resize", (1, 1, 7, 10), None, floats(1, 1, 1.5, 1.5), **symmetric)  # type: ignore[arg-type]
    yield make("Resize", (1, 2, 6, 10), None, floats(1, 1, 1.5, 2), mode="linear", **asymmetric)  # type: ignore[arg-type]
    yield make("Upsample", (2, 3, 4, 3), floats(1, 1, 2, 3), mode="nearest", opset=9)
    yield make("Upsample", (2, 3, 4, 3), floats(1, 1, 2, 2), mode="linear", opset=9)


def samplings() -> Iterator[Case]:
    """Grids, regions, deformed windows."""
    grid = Given((3, 5, 4, 2), low=-1.0, high=1.0)
    yield make("GridSample", (3, 2, 4, 5), grid)
    yield make("GridSample", (3, 2, 4, 5), grid, mode="nearest", padding_mode="border", align_corners=1)
    yield make("GridSample", (3, 2, 4, 5), grid, mode="bilinear", padding_mode="reflection", opset=16)
    yield make("AffineGrid", (4, 2, 3), ints(4, 3, 5, 6))
    yield make("AffineGrid", (3, 3, 4), ints(3, 2, 4, 2, 5), align_corners=1)
    boxes = np.array([[0, 0, 3, 3], [1, 2, 4, 5], [0, 1, 5, 4], [2, 2, 5, 5], [1, 0, 4, 5]], dtype=np.float32)
    samples = Known(np.array([0, 1, 1, 0, 1], dtype=np.int64), constant=False)
    regions = Known(boxes, constant=False)
    yield make("RoiAlign", (2, 4, 6, 6), regions, samples, output_height=2, output_width=3, sampling_ratio=2)
    yield make(
        "RoiAlign",
        (2, 3, 6, 6),
        regions,
        samples,
        output_height=2,
        output_width=2,
        sampling_ratio=1,
        mode="max",
        opset=16,
    )
    numbered = np.concatenate([samples.array[:, None].astype(np.float32), boxes], axis=1)
    yield make("MaxRoiPool", (2, 3, 6, 6), Known(numbered, constant=False), pooled_shape=(2, 2))
    around: dict[str, Attribute] = {"kernel_shape": (2, 2), "pads": (0, 0, 0, 0)}
    yield make("DeformConv", (2, 4, 4, 5), (6, 4, 2, 2), (2, 8, 3, 4), (6,), **around)  # type: ignore[arg-type]
    yield make("DeformConv", (2, 3, 4, 4), (5, 3, 2, 2), (2, 8, 3, 3), None, (2, 4, 3, 3), **around)  # type: ignore[arg-type]
    yield make("DeformConv", (2, 4, 4, 4), (4, 2, 2, 2), (2, 16, 3, 3), None, group=2, offset_group=2, **around)  # type: ignore[arg-type]


def blocks() -> Iterator[Case]:
    """Channels to positions and back, columns to images, crops around the middle."""
    for mode in ("DCR", "CRD"):
        yield make("DepthToSpace", (2, 12, 3, 4), blocksize=2, mode=mode)
        yield make("DepthToSpace", (1, 18, 2, 1), blocksize=3, mode=mode)
    yield make("SpaceToDepth", (2, 3, 6, 8), blocksize=2)
    yield make("SpaceToDepth", (1, 2, 6, 3), blocksize=3)
    yield make("Col2Im", (2, 20, 9), ints(3, 7), ints(1, 5))
    yield make("Col2Im", (3, 12, 12), ints(5, 5), ints(2, 2), pads=(0, 0, 0, 0), strides=(1, 1), dilations=(1, 2))
    yield make("CenterCropPad", (7, 4, 6), ints(4, 7, 6))
    yield make("CenterCropPad", (7, 5, 3), ints(10, 2), axes=(0, 1))
    yield make("CenterCropPad", (4, 5), ints(9), axes=(-1,))
    yield make("CenterCropPad", (4, 5), ints(2, 1))


def pools() -> Iterator[Case]:
    """Norms of windows; values put back where a pool found them."""
    yield make("LpPool", (2, 3, 8, 7), kernel_shape=(2, 2), strides=(2, 2))
    yield make("LpPool", (2, 3, 9, 7), kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1), p=1)
    yield make("LpPool", (1, 2, 7, 6), kernel_shape=(3, 3), strides=(2, 2), auto_pad="SAME_UPPER")
    yield make("LpPool", (1, 2, 9), kernel_shape=(3,), pads=(0, 2), p=3, opset=17)
    yield make("LpPool", (1, 2, 13, 8), kernel_shape=(3, 3), strides=(3, 3), pads=(1, 1, 1, 1), ceil_mode=1)
    # The last window reaches further beyond the end than a kernel has elements.
    yield make("LpPool", (1, 2, 6), kernel_shape=(2,), strides=(2,), dilations=(2,), pads=(1, 1), ceil_mode=1)
    yield make("GlobalLpPool", (2, 3, 5, 4))
    yield make("GlobalLpPool", (3, 2, 7), p=1)
    indices = np.stack([np.array([[[5, 7], [13, 15]], [[0, 2], [8, 11]]]) + 32 * b for b in range(3)])
    indices[:, 1] += 16
    yield make(
        "MaxUnpool", (3, 2, 2, 2), Known(indices.astype(np.int64), constant=False), kernel_shape=(2, 2), strides=(2, 2)
    )
    line = np.arange(2 * 3 * 4).reshape(2, 3, 4) * 2 + 1
    # Of another size than the one that follows from the kernel, the places are of other channels, too.
    beyond = Known(indices.astype(np.int64), constant=False), ints(3, 2, 5, 4)
    yield make("MaxUnpool", (3, 2, 2, 2), *beyond, kernel_shape=(2, 2), strides=(2, 2))
    yield make("MaxUnpool", (2, 3, 4), Known(line.astype(np.int64), constant=False), kernel_shape=(2,), strides=(2,))


def signals() -> Iterator[Case]:
    """Transforms along an axis and by frames; the tables that go with them."""
    axis = Known(np.array(1, dtype=np.int64))
    yield make("DFT", (3, 8, 1), None, axis)
    yield make("DFT", (3, 5, 2), None, axis, inverse=1)
    yield make("DFT", (3, 8, 4, 1), Known(np.array(6, dtype=np.int64)), axis, onesided=1)
    yield make("DFT", (4, 6, 1), axis=1, opset=17)
    yield make("STFT", (2, 16, 1), Known(np.array(4, dtype=np.int64)), (8,))
    frame = Known(np.array(5, dtype=np.int64))
    yield make("STFT", (3, 17, 1), Known(np.array(3, dtype=np.int64)), None, frame, onesided=0)
    eight = Known(np.array(8, dtype=np.int64))
    for name in ("HannWindow", "HammingWindow", "BlackmanWindow"):
        yield make(name, eight)
        yield make(name, eight, periodic=0)
    low, high = (Known(np.array(value, dtype=np.float32)) for value in (20.0, 4000.0))
    bins, rate = Known(np.array(4, dtype=np.int64)), Known(np.array(8192, dtype=np.int64))
    yield make("MelWeightMatrix", bins, eight, rate, low, high)


def made_from_shapes() -> Iterator[Case]:
    """Shapes, sizes, unit matrices, constants."""
    yield make("Shape", (4, 1, 7))
    yield make("Shape", (4, 1, 7), start=1)
    yield make("Shape", (5, 2, 3, 4), start=-3, end=-1)
    yield make("Size", (4, 1, 7))
    yield make("EyeLike", (4, 6))
    yield make("EyeLike", (5, 5), k=-1, dtype=7)
    yield make("EyeLike", Given((7, 3), "int32"), k=1)
    table: Attribute = TensorAttribute(np.linspace(-1, 2, 20, dtype=np.float32).reshape(4, 5))
    yield make("Constant", value=table)


def families() -> tuple[Iterator[Case], ...]:
    """All of this file."""
    return resizes(), samplings(), blocks(), pools(), signals(), made_from_shapes()
