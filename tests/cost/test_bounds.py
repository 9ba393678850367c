"""The least that a product or convolution moves: against all assignments, against grids, and against known numbers."""

from __future__ import annotations

from itertools import combinations, product
from math import prod

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.shape_inference import infer_shapes

from fast_suite import examples
from planner import opdefs
from planner.algebra.region import Boxes
from planner.algebra.tiling import Placement, Shard, Tiling
from planner.cost.bounds import Bounds, Holding
from planner.cost.contraction import Contraction, contraction_of
from planner.cost.grids import best_grid, grids
from planner.graph.core.model import Attribute, DType, Graph, Op, Tensor
from planner.tdl.bind import BoundOp

DESCRIPTIONS = opdefs.standard()
FLOAT = TensorProto.FLOAT


def op(op_type: str, *shapes: tuple[int, ...], **attributes: Attribute) -> BoundOp:
    """An op on float32 tensors of these shapes; its own is what ONNX infers."""
    names = [f"x{number}" for number in range(len(shapes))]
    node = helper.make_node(op_type, names, ["y"], **attributes)
    given_ = [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in zip(names, shapes, strict=True)]
    graph = helper.make_graph([node], "op", given_, [helper.make_tensor_value_info("y", FLOAT, None)])
    inferred = infer_shapes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))
    made = tuple(dim.dim_value for dim in inferred.graph.output[0].type.tensor_type.shape.dim)
    tensors = {
        name: Tensor(name, shape, DType.FLOAT32) for name, shape in zip([*names, "y"], [*shapes, made], strict=True)
    }
    one = Op("op", op_type, tuple(names), ("y",), tuple(sorted(attributes.items())))
    return DESCRIPTIONS.bind(one, Graph("op", tensors, (one,), tuple(names), ("y",), {}))


def bounds(bound: BoundOp) -> Bounds:
    found = Bounds.of(bound)
    assert found is not None
    return found


def least(bound: BoundOp, text: str, ways: tuple[int, ...]) -> int:
    found = bounds(bound).any(Tiling.parse(text, ways))
    assert found is not None
    return round(found.any_bytes)


def convolution(batch: int, channels: tuple[int, int], image: int, window: int = 3) -> BoundOp:
    pads = (window // 2,) * 4
    return op(
        "Conv",
        (batch, channels[0], image, image),
        (channels[1], channels[0], window, window),
        strides=(1, 1),
        pads=pads,
    )


# Which ops sum products


@pytest.mark.parametrize(
    ("op_type", "shapes", "attributes"),
    [
        ("MatMul", ((6, 4), (4, 5)), {}),
        ("MatMul", ((2, 3, 6, 4), (4, 5)), {}),
        ("MatMul", ((2, 1, 6, 4), (3, 4, 5)), {}),
        ("Gemm", ((4, 6), (5, 4), (5,)), {"transA": 1, "transB": 1, "alpha": 0.5}),
        ("Einsum", ((2, 3, 4), (2, 4, 5)), {"equation": "bij,bjk->bik"}),
        ("Conv", ((2, 4, 9), (6, 4, 3)), {}),
        ("Conv", ((2, 4, 9, 8), (6, 4, 3, 3), (6,)), {"strides": (2, 1), "dilations": (1, 2)}),
        ("Conv", ((2, 4, 9, 8), (6, 2, 3, 3)), {"group": 2}),
        ("Conv", ((2, 6, 9, 8), (6, 1, 3, 3)), {"group": 6}),
        ("Conv", ((1, 2, 4, 5, 6), (3, 2, 1, 2, 2)), {}),
        ("ConvTranspose", ((2, 4, 5, 5), (4, 3, 3, 3)), {"strides": (2, 2)}),
        ("ConvTranspose", ((2, 4, 5, 5), (4, 3, 3, 3)), {"group": 2}),
    ],
)
def test_products_and_convolutions_are_contractions(
    op_type: str, shapes: tuple[tuple[int, ...], ...], attributes: dict[str, Attribute]
) -> None:
    bound = op(op_type, *shapes, **attributes)
    contraction = contraction_of(bound)
    assert contraction is not None
    sizes = [prod(bound.node.input_shapes[0] or ()), prod(bound.node.input_shapes[1] or ())]
    assert touched_elements(contraction, 0) <= sizes[0]
    assert touched_elements(contraction, 1) == sizes[1]
    assert touched_elements(contraction, 2) == prod(bound.node.output_shapes[0] or ())


def touched_elements(contraction: Contraction, tensor: int) -> int:
    """Elements of a tensor that are multiplied with anything."""
    along = [dict(zip(stencil.tensors, stencil.touched, strict=True)) for stencil in contraction.stencils]
    return contraction.inside(tensor) * prod(counts.get(tensor, 1) for counts in along)


@pytest.mark.parametrize(
    ("op_type", "shapes", "attributes"),
    [
        ("Add", ((4, 5), (4, 5)), {}),
        ("Mul", ((4, 5), (4, 5)), {}),
        ("ReduceSum", ((4, 5),), {}),
        ("Softmax", ((4, 5),), {}),
        ("MaxPool", ((1, 2, 6, 6),), {"kernel_shape": (2, 2)}),
        ("Einsum", ((2, 3), (3, 4), (4, 5)), {"equation": "ij,jk,kl->il"}),
        ("Einsum", ((2, 3), (3, 4)), {"equation": "ij,jk->k"}),
    ],
)
def test_other_ops_are_none(
    op_type: str, shapes: tuple[tuple[int, ...], ...], attributes: dict[str, Attribute]
) -> None:
    assert contraction_of(op(op_type, *shapes, **attributes)) is None


def test_repeated_work_has_no_bound() -> None:
    found = bounds(op("MatMul", (8, 8), (8, 8)))
    assert found.any(Tiling.parse("S(0)/2 R/2", (2, 2))) is None
    assert found.as_it_lies(Tiling.parse("R", (2,)), Holding(([64, 64], [64, 64]), 64)) is None


# Known numbers


@pytest.mark.parametrize(
    ("shapes", "text", "ways", "expected"),
    [
        (((4096, 4096), (4096, 4096)), "S(0)/2 S(1)/2 S(2)/2", (2, 2, 2), 201_326_592),
        (((4096, 4096), (4096, 4096)), "S(0)/4 S(1)/4 S(2)/4", (4, 4, 4), 603_979_776),
        (((512, 8192), (8192, 8192)), "S(1)/2 S(2)/4", (2, 4), 61_351_833),
        (((16, 64, 64), (16, 64, 64)), "S(0)/8", (8,), 0),
    ],
)
def test_the_least_of_products(
    shapes: tuple[tuple[int, ...], ...], text: str, ways: tuple[int, ...], expected: int
) -> None:
    """The first two are three times V^(2/3) for each worker, less the tensors; batches need share nothing."""
    assert least(op("MatMul", *shapes), text, ways) == pytest.approx(expected, abs=2)


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (convolution(64, (512, 512), 14), 49_575_894),
        (convolution(8, (640, 640), 56), 92_766_203),
    ],
)
def test_the_least_of_convolutions(bound: BoundOp, expected: int) -> None:
    assert least(bound, "S(0)", (8,)) == pytest.approx(expected, abs=2)


@pytest.mark.parametrize(("rows", "samples", "workers", "times"), [(64, 1 << 20, 4, 1.0), (8192, 512, 8, 1.936764)])
def test_a_gradient_by_data_parallelism_beside_its_all_reduce(
    rows: int, samples: int, workers: int, times: float
) -> None:
    """Samples lie with their workers, and all of them are to have the sum: an all-reduce moves 2 (k - 1) |C|."""
    product_ = bounds(op("MatMul", (rows, samples), (samples, rows)))
    own = [rows * samples // workers] * workers
    found = product_.as_it_lies(Tiling.parse("S(2)", (workers,)), Holding((own, own), workers * rows * rows))
    assert found is not None
    assert 2 * (workers - 1) * rows * rows * 4 / found == pytest.approx(times, rel=1e-5)


def test_in_little_memory_more_moves() -> None:
    """4096^3 on 64 workers, 2 V / sqrt(M) each: as much as SUMMA on an 8 x 8 grid where M holds a tile of C."""
    product_ = bounds(op("MatMul", (4096, 4096), (4096, 4096)))
    strategy = Tiling.parse("S(0)/4 S(1)/4 S(2)/4", (4, 4, 4))
    found = [product_.any(strategy, memory_bytes=memory) for memory in (1 << 18, 1 << 20, 1 << 40)]
    moved = [one.any_bytes for one in found if one is not None]
    assert moved == sorted(moved, reverse=True)
    limited = 2 * 4096**3 / np.sqrt((1 << 18) / 4) * 4 - 3 * 4096**2 * 4
    assert moved[0] == pytest.approx(limited, rel=1e-6)
    assert moved[2] == pytest.approx(603_979_776, rel=1e-6)


# Against all assignments


def _points(bound: BoundOp) -> tuple[list[tuple[int, ...]], list[list[frozenset[tuple[int, ...]]]]]:
    """Whole windows of an op, and of each tensor the elements that each of them touches.

    A window is a point of the variables that are not named after taps; it touches what all of its taps do.
    """
    names = [variable.name for variable in bound.variables]
    taps = [number for number, name in enumerate(names) if bound.op.op_type == "Conv" and name.startswith("k")]
    free = [number for number in range(len(names)) if number not in taps]
    points = list(product(*(range(bound.extents[number]) for number in free)))
    touched: list[list[frozenset[tuple[int, ...]]]] = [[], [], []]
    for point in points:
        lo, hi = np.zeros((1, len(names)), dtype=np.int64), np.array([bound.extents], dtype=np.int64)
        for number, value in zip(free, point, strict=True):
            lo[0, number], hi[0, number] = value, value + 1
        ranges = Boxes(lo, hi)
        reads = bound.reads(ranges)
        for tensor, boxes in enumerate((reads[0].boxes, reads[1].boxes, bound.makes(ranges, 0))):
            region = boxes.region(0)
            touched[tensor].append(
                frozenset(product(*(range(a, b) for a, b in zip(region.lo, region.hi, strict=True))))
            )
    return points, touched


@pytest.mark.parametrize(
    "bound",
    [
        op("MatMul", (2, 2), (2, 2)),
        op("MatMul", (3, 2), (2, 2)),
        op("MatMul", (1, 4), (4, 3)),
        op("MatMul", (2, 1, 3), (2, 3, 2)),
        op("Conv", (1, 1, 4), (3, 1, 3), pads=(1, 1)),
        op("Conv", (1, 2, 3), (2, 2, 2)),
        op("Conv", (1, 1, 7), (2, 1, 2), strides=(2,)),
        op("Conv", (2, 1, 5), (2, 1, 3), strides=(2,), pads=(1, 1)),
        op("Conv", (1, 2, 4), (2, 1, 3), pads=(1, 1), group=2),
    ],
    ids=lambda one: f"{one.op.op_type}{one.node.input_shapes}{dict(one.op.attributes)}",
)
def test_no_balanced_assignment_to_two_workers_touches_less(bound: BoundOp) -> None:
    """Any half of the windows, box or not: each worker touches at least D(v), for all assignments there are."""
    points, touched = _points(bound)
    assert 4 <= len(points) <= 12
    found = bounds(bound)
    half = len(points) // 2
    # The shares of the work alone matter, so that any variable in halves serves.
    even = [n for n, extent in enumerate(bound.extents) if extent % 2 == 0 and bound.variables[n].name != "k0"]
    limit = found.any(Tiling((Shard(even[0]),), (2,)))
    assert limit is not None
    whole = [len(frozenset().union(*one)) for one in touched]
    moved = []
    for mine in combinations(range(len(points)), half):
        parts = [mine, tuple(sorted(set(range(len(points))).difference(mine)))]
        total = sum(len(frozenset().union(*(one[n] for n in part))) for part in parts for one in touched)
        moved.append(4 * (total - sum(whole)))
    assert limit.any_bytes <= min(moved)


@st.composite
def contractions(draw: st.DrawFn) -> BoundOp:
    size = st.integers(1, 6)
    if draw(st.booleans()):
        batch = draw(st.sampled_from([(), (2,), (3,)]))
        m, k, n = draw(size), draw(size), draw(size)
        return op("MatMul", (*batch, m, k), (*batch, k, n))
    rank = draw(st.integers(1, 2))
    window = [draw(st.integers(1, 3)) for _ in range(rank)]
    strides, dilations = (tuple(draw(st.integers(1, 3)) for _ in range(rank)) for _ in range(2))
    group, channels = draw(st.sampled_from([(1, 2), (2, 4), (3, 3)]))
    sizes = [draw(st.integers(1, 4)) + (one - 1) * step for one, step in zip(window, dilations, strict=True)]
    pads = tuple(draw(st.integers(0, one - 1)) for one in window)
    shapes = (
        (draw(st.integers(1, 3)), channels, *sizes),
        (group * draw(st.integers(1, 2)), channels // group, *window),
    )
    attributes: dict[str, Attribute] = {"strides": strides, "dilations": dilations, "group": group}
    if draw(st.booleans()):
        return op("Conv", *shapes, pads=(*pads, *pads), **attributes)
    turned = ((shapes[0][0], shapes[1][0], *sizes), shapes[1])
    return op("ConvTranspose", *turned, **attributes)


def _pieces(data: st.DataObject, bound: BoundOp) -> Tiling:
    cuts = data.draw(st.integers(1, 2))
    free: list[Placement] = [Shard(n) for n, variable in enumerate(bound.variables) if not variable.obstacle]
    placements = tuple(data.draw(st.sampled_from(free)) for _ in range(cuts))
    return Tiling(placements, tuple(data.draw(st.integers(2, 3)) for _ in range(cuts)))


@given(st.data())
@examples(150)
def test_no_strategy_moves_less_than_the_least(data: st.DataObject) -> None:
    """Workers touch what their parts read and make; wherever each element lies, the rest of it moves."""
    bound = data.draw(contractions())
    strategy = _pieces(data, bound)
    found = bounds(bound)
    ranges = bound.ranges(strategy)
    reads = bound.reads(ranges)
    made = bound.makes(ranges, 0)
    touched = [reads[0].boxes.elements, reads[1].boxes.elements, made.elements]
    limit = found.any(strategy)
    assert limit is not None
    contraction = found.contraction
    once = sum(touched_elements(contraction, tensor) for tensor in range(3))
    assert limit.any_bytes <= 4 * (sum(int(one.sum()) for one in touched) - once) + 1e-6
    own = [[data.draw(st.integers(0, int(count))) for count in one.tolist()] for one in touched[:2]]
    holders = data.draw(st.integers(1, 3))
    size = prod(bound.node.output_shapes[0] or ())
    lies = found.as_it_lies(strategy, Holding((own[0], own[1]), holders * size))
    needed = sum(int((one - np.array(mine)).sum()) for one, mine in zip(touched, own, strict=False))
    assert lies is not None
    assert (
        lies
        <= 4 * (needed + int(touched[2].sum()) + (holders - 2) * size)
        + 4 * (size - touched_elements(contraction, 2))
        + 1e-6
    )


# Grids


@pytest.mark.parametrize(
    ("bound", "workers", "expected"),
    [
        (op("MatMul", (4096, 4096), (4096, 4096)), 8, 201_326_592),
        (op("MatMul", (4096, 4096), (4096, 4096)), 64, 603_979_776),
        (convolution(64, (512, 512), 14), 8, 54_001_664),
        (convolution(256, (2048, 2048), 6), 8, 301_989_888),
    ],
)
def test_the_best_grid(bound: BoundOp, workers: int, expected: int) -> None:
    found = best_grid(bound, workers)
    assert found is not None
    assert found.moved_bytes == expected


@given(st.data())
@examples(60)
def test_no_grid_moves_less_than_the_least(data: st.DataObject) -> None:
    bound = data.draw(contractions())
    found = bounds(bound)
    workers = data.draw(st.sampled_from([2, 3, 4, 6]))
    all_of_them = list(grids(bound, workers))
    assume(all_of_them)
    untouched = 4 * (prod(bound.node.output_shapes[0] or ()) - touched_elements(found.contraction, 2))
    beyond = []
    for grid in all_of_them:
        cut = [(number, ways) for number, ways in enumerate(grid.ways) if ways > 1]
        limit = found.any(Tiling(tuple(Shard(n) for n, _ in cut), tuple(ways for _, ways in cut)))
        assert limit is not None
        beyond.append(grid.moved_bytes + untouched - limit.any_bytes)
    assert min(beyond) >= 0


@given(st.data())
@examples(40)
def test_an_even_grid_without_halos_moves_what_the_formula_says(data: st.DataObject) -> None:
    """By hand: (P_k - 1)|In| + (P_b - 1)|Ker| + (P_c - 1)|Out| (SPAA'21, section 2.2)."""
    pb, pk, pc = (data.draw(st.sampled_from([1, 2, 3])) for _ in range(3))
    b, k, c = pb * data.draw(st.integers(1, 3)), pk * data.draw(st.integers(1, 3)), pc * data.draw(st.integers(1, 3))
    bound = op("Conv", (b, c, 5), (k, c, 3), pads=(1, 1))
    names = [variable.name for variable in bound.variables]
    wanted = {"b": pb, "co": pk, "ci": pc}
    ways = tuple(wanted.get(name, 1) for name in names)
    moved = {grid.ways: grid.moved_bytes for grid in grids(bound, pb * pk * pc)}
    assert moved[ways] == 4 * ((pk - 1) * b * c * 5 + (pb - 1) * k * c * 3 + (pc - 1) * b * k * 5)
