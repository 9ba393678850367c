"""Cases of the operators that move elements: shapes, slices, lookups, scatters, and what constants make."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.features.ops.cases.case import Case, Given, Known, Operand, ints, make
from planner.graph.core.model import Attribute, Shape, TensorAttribute

RESHAPES: tuple[tuple[Shape, Shape], ...] = (
    ((4, 6, 5), (24, 5)),
    ((24, 5), (4, 6, 5)),
    ((2, 7, 64), (2, 7, 4, 16)),
    ((2, 7, 4, 16), (2, 7, 64)),
    ((2, 7, 4, 16), (14, 64)),
    ((6,), (6, 1)),
    ((1, 5, 1), (5,)),
    ((4, 3), (3, 4)),
    ((2, 3, 4), (4, 6)),
    ((4, 6), (2, 3, 4)),
    ((2, 3, 5), (30,)),
    ((30,), (2, 3, 5)),
    ((1, 1), ()),
    ((), (1, 1)),
    ((8, 3, 1, 7), (8, 21)),
)


def shapes() -> Iterator[Case]:
    """Merges, splits, both at once, and dims of size 1."""
    for before, after in RESHAPES:
        yield make("Reshape", before, ints(*after))
    yield make("Reshape", (4, 6), ints(0, -1, 2), allowzero=0)
    yield make("Flatten", (4, 3, 5))
    yield make("Flatten", (4, 3, 5), axis=2)
    yield make("Flatten", (4, 3), axis=0)
    yield make("Squeeze", (4, 1, 5, 1))
    yield make("Squeeze", (4, 1, 5, 1), ints(-1))
    yield make("Unsqueeze", (4, 5), ints(0, 2))
    yield make("Unsqueeze", (4, 5), ints(-1))
    yield make("Transpose", (4, 5))
    yield make("Transpose", (2, 3, 4, 5), perm=(0, 2, 1, 3))
    yield make("Transpose", (3, 1, 4), perm=(2, 0, 1))


def stretches() -> Iterator[Case]:
    """Concat, Split, Slice, Pad, Expand, Tile, Trilu."""
    yield make("Concat", (4, 3), (4, 5), (4, 1), axis=1)
    yield make("Concat", (4, 3), (2, 3), axis=0)
    yield make("Concat", (4, 3, 2), (4, 3, 2), axis=-1)
    yield make("Split", (4, 6), axis=1, num_outputs=3, outputs=3)
    yield make("Split", (7, 4), ints(2, 4, 1), axis=0, outputs=3)
    yield make("Split", (3, 8), ints(4, 4), axis=-1, outputs=2)
    # ONNX clips a bound beyond the end, so that this one means all that remains.
    big = 2**62
    yield make("Slice", (9, 7), ints(1, 2), ints(8, 6), ints(0, 1))
    yield make("Slice", (9, 7), ints(0), ints(big), ints(1), ints(2))
    yield make("Slice", (9, 7), ints(-1, 5), ints(-big, 0), ints(0, -1), ints(-1, -2))
    yield make("Slice", (9, 7), ints(-4), ints(-1), ints(-2))
    yield make("Slice", (9, 7), ints(3, 1), ints(9, 7))
    yield make("Slice", (11,), ints(10), ints(0), ints(0), ints(-3))
    half = Known(np.array(0.5, dtype=np.float32))
    yield make("Pad", (5, 4), ints(1, 2, 3, 0))
    yield make("Pad", (5, 4), ints(1, 2, 3, 0), half)
    yield make("Pad", (3, 2), ints(4, 0, 4, 0), half)
    yield make("Pad", (6, 4), ints(-1, 2, -2, 0), half)
    yield make("Pad", (5, 4), ints(2, 3), half, ints(-1))
    yield make("Pad", (5, 4, 3), ints(0, 1, 0, 0, 2, 0), mode="edge")
    yield make("Pad", (5, 4, 3), ints(0, 1, 0, 0, 2, 0), mode="reflect")
    yield make("Expand", (4, 1), ints(3, 4, 5))
    yield make("Expand", (4, 5), ints(1, 1))
    yield make("Expand", (), ints(4))
    yield make("Tile", (4, 5), ints(3, 1))
    yield make("Tile", (2, 3), ints(2, 5))
    yield make("Tile", (1, 5), ints(4, 2))
    for upper in (0, 1):
        yield make("Trilu", (5, 6), upper=upper)
        yield make("Trilu", (2, 5, 4), Known(np.array(-1, dtype=np.int64)), upper=upper)


def _positions(shape: Shape, below: int, *, constant: bool = False, lowest: int = 0, dtype: str = "int64") -> Known:
    values = np.random.default_rng(7).integers(lowest, below, shape)
    return Known(np.asarray(values).astype(dtype), constant)


def _distinct(rows: int, columns: int, below: int) -> Known:
    generator = np.random.default_rng(7)
    columns_of = [generator.permutation(below)[:rows] for _ in range(columns)]
    return Known(np.stack(columns_of, axis=1).astype(np.int64), constant=False)


def lookups() -> Iterator[Case]:
    """Gather of every kind, by computed and by constant positions, and OneHot."""
    yield make("Gather", (7, 5), _positions((4, 3), 7))
    yield make("Gather", (7, 5), _positions((4,), 7, constant=True))
    yield make("Gather", (4, 7, 3), _positions((5,), 7, lowest=-7), axis=1)
    yield make("Gather", (4, 7, 3), Known(np.array(2, dtype=np.int64)), axis=1)
    yield make("Gather", (4, 7, 3), Known(np.array([-1], dtype=np.int64)), axis=-1)
    yield make("GatherElements", (4, 7), _positions((4, 1), 7), axis=1)
    yield make("GatherElements", (6, 7), _positions((5, 7), 6), axis=0)
    yield make("GatherElements", (6, 7), _positions((3, 9), 7), axis=1)
    yield make("GatherND", (4, 5, 6), _positions((7, 2), 4))
    yield make("GatherND", (4, 5, 6), _positions((4, 3, 1), 5), batch_dims=1)
    yield make("GatherND", (4, 5), _positions((3, 2, 2), 4))
    three = Known(np.array(3, dtype=np.int64))
    values = Known(np.array([0.5, -2.0], dtype=np.float32))
    yield make("OneHot", _positions((5,), 3), three, values)
    yield make("OneHot", _positions((4, 5), 3), three, values, axis=0)
    yield make("OneHot", _positions((4, 1), 9, lowest=-9), Known(np.array(7, dtype=np.int64)), values, axis=1)
    yield make("OneHot", _positions((3,), 5, dtype="float32"), Known(np.array(5, dtype=np.int64)), values)
    yield make("Gather", (7, 5), _positions((4, 3), 7, lowest=-7, dtype="int32"))
    yield make("Gather", (1, 5), _positions((4,), 1))
    yield make("Gather", Given((11, 2), "int64"), _positions((), 11))
    yield make("Gather", Given((6, 2), "bool"), _positions((3,), 6))
    yield make("GatherElements", (6, 7), _positions((5, 7), 6, lowest=-6), axis=0)
    yield make("GatherND", (4, 5, 6), _positions((7, 3), 4, lowest=-4))


def scatters() -> Iterator[Case]:
    """Scatters that overwrite and that add, with updates as large as the data and smaller."""
    yield make("ScatterElements", (5, 6), _positions((5, 1), 6), (5, 1), axis=1)
    yield make("ScatterElements", (5, 6), _positions((5, 4), 6), (5, 4), axis=1, reduction="add")
    yield make("ScatterElements", (5, 6), _positions((3, 4), 6), (3, 4), axis=1, reduction="add")
    yield make("ScatterElements", (5, 6), _positions((7, 6), 5), (7, 6), axis=0, reduction="add")
    yield make("ScatterElements", (5, 6), _positions((5, 4), 6), (5, 4), axis=1, reduction="max")
    yield make("ScatterND", (6, 5), _positions((4, 1), 6), (4, 5), reduction="add")
    yield make("ScatterND", (6, 5), _positions((4, 3, 1), 6), (4, 3, 5), reduction="add")
    yield make("ScatterND", (6, 5, 4), _positions((7, 2), 5), (7, 4), reduction="add")
    yield make("ScatterND", (6, 5), _positions((7, 2), 5), (7,), reduction="add")
    yield make("ScatterND", (6, 5), _distinct(4, 1, 6), (4, 5))
    yield make("ScatterND", (6, 5), _positions((4, 1), 6), (4, 5), reduction="mul")
    yield make("ScatterND", (6, 5, 4), _positions((7, 2), 5, lowest=-5), (7, 4), reduction="add")
    yield make("ScatterND", (6, 5), _positions((9, 1), 6), (9, 5), reduction="max")
    for reduction in ("add", "mul", "min", "max"):
        yield make("ScatterElements", (7, 6), _positions((4, 6), 7, lowest=-7), (4, 6), axis=0, reduction=reduction)
    yield make("ScatterElements", (7, 1), _positions((4, 1), 7), (4, 1), reduction="add")
    yield make("Scatter", (5, 6), _distinct(2, 6, 5), (2, 6), opset=10)
    yield make("Scatter", (5, 6), _positions((5, 1), 6), (5, 1), axis=1, opset=10)


def fills() -> Iterator[Case]:
    """ConstantOfShape and Range."""
    value: Attribute = TensorAttribute(np.array([1.5], dtype=np.float32))
    yield make("ConstantOfShape", ints(4, 5))
    yield make("ConstantOfShape", ints(7), value=value)
    yield make("ConstantOfShape", ints(), value=value)
    scalars: tuple[Operand, ...] = tuple(Known(np.array(number, dtype=np.int64)) for number in (1, 9, 2))
    yield make("Range", *scalars)
    yield make("Identity", Given((), "float32"))


def families() -> tuple[Iterator[Case], ...]:
    """All of this file."""
    return shapes(), stretches(), lookups(), scatters(), fills()
