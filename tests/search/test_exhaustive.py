"""The search against all plans of one cut, on small graphs, with what moves and the excess counted element by element.

The tables are not used here: what an op reads is gathered point by point, transfers are counted on masks, and what a
worker touches and computes is counted over its points.
"""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from fast_suite import chosen
from planner import opdefs
from planner.algebra.delivery import contributors, made_tiling, reduced_boxes
from planner.algebra.region import Boxes, Region, index_space
from planner.algebra.tiling import UNCUT, Tiling
from planner.features.zoo.models import mlp
from planner.graph.core.model import DType, Graph, Op, StatePair, Tensor
from planner.graph.step.deliveries import SharedDelivery, is_delivery, with_deliveries
from planner.search.model.problem import Link, Problem, no_restriction
from planner.search.moves.recursion import search_recursively
from planner.tdl.bind import BoundOp

Mask = np.ndarray


def small(
    tensors: dict[str, tuple[int, ...]],
    ops: list[Op],
    output: str,
    constants: dict[str, np.ndarray] | None = None,
    state: tuple[StatePair, ...] = (),
) -> Graph:
    known = constants or {}
    every = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in tensors.items()}
    every.update({name: Tensor(name, value.shape, DType.INT64) for name, value in known.items()})
    made = {name for op in ops for name in op.outputs}
    inputs = tuple(name for name in tensors if name not in made)
    return Graph("small", every, tuple(ops), inputs, (output,), known, state=state)


def chain() -> Graph:
    return small(
        {"x": (4, 6), "w": (6, 5), "v": (5, 8), "h": (4, 5), "r": (4, 5), "y": (4, 8)},
        [
            Op("first", "MatMul", ("x", "w"), ("h",)),
            Op("relu", "Relu", ("h",), ("r",)),
            Op("second", "MatMul", ("r", "v"), ("y",)),
        ],
        "y",
    )


def residual() -> Graph:
    return small(
        {"x": (6, 6), "w": (6, 6), "h": (6, 6), "s": (6, 6), "total": (6,)},
        [
            Op("product", "MatMul", ("x", "w"), ("h",)),
            Op("sum", "Add", ("h", "x"), ("s",)),
            Op("rows", "ReduceSum", ("s", "axes"), ("total",), (("keepdims", 0),)),
        ],
        "total",
        constants={"axes": np.array([1])},
    )


def spatial() -> Graph:
    window = (("kernel_shape", (3, 3)), ("pads", (1, 1, 1, 1)))
    return small(
        {"x": (1, 2, 8, 5), "w": (2, 2, 3, 3), "h": (1, 2, 8, 5), "v": (4, 2, 3, 3), "y": (1, 4, 4, 3)},
        [
            Op("one", "Conv", ("x", "w"), ("h",), window),
            Op("two", "Conv", ("h", "v"), ("y",), (*window, ("strides", (2, 2)))),
        ],
        "y",
    )


def update() -> Graph:
    return small(
        {"x": (8, 4), "g": (8, 6), "w": (4, 6), "dw": (4, 6), "next": (4, 6)},
        [
            Op("gradient", "Gemm", ("x", "g"), ("dw",), (("transA", 1),)),
            Op("step", "Sub", ("w", "dw"), ("next",)),
        ],
        "next",
        state=(StatePair("w", "next"),),
    )


def delivered() -> Graph:
    """Two products and a sum read the state, the products as it is delivered to both."""
    graph = small(
        {"x": (4, 6), "w": (6, 6), "h": (4, 6), "y": (4, 6), "next": (6, 6)},
        [
            Op("first", "MatMul", ("x", "w"), ("h",)),
            Op("second", "MatMul", ("h", "w"), ("y",)),
            Op("step", "Add", ("w", "w"), ("next",)),
        ],
        "y",
        state=(StatePair("w", "next"),),
    )
    return with_deliveries(graph, [SharedDelivery("w@shared", "w", ("first", "second"))])


GRAPHS: dict[str, Callable[[], Graph]] = {
    "chain": chain,
    "residual": residual,
    "spatial": spatial,
    "update": update,
    "delivered": delivered,
    "mlp": lambda: mlp(1, 6, 8),
}
CASES = list(itertools.product(GRAPHS, [2, 3, 4]))


def mask_of(region: Region, shape: tuple[int, ...]) -> Mask:
    mask = np.zeros(index_space(shape), dtype=bool)
    mask[tuple(slice(lo, hi) for lo, hi in zip(region.lo, region.hi, strict=True))] = True
    return mask


def points(region: Region) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(lo, hi) for lo, hi in zip(region.lo, region.hi, strict=True))))


def needed(bound: BoundOp, slot: int, strategy: Tiling) -> list[Mask]:
    """Which elements each worker reads: the hull of what the points of its iteration space read, one by one."""
    shape = bound.node.input_shapes[slot]
    assert shape is not None
    found = []
    for region in bound.ranges(strategy):
        mine = np.array(points(region))
        at_points = bound.reads(Boxes(mine, mine + 1))[slot].boxes
        hull = Region((0,) * len(index_space(shape)), (0,) * len(index_space(shape)))
        for single in at_points:
            hull = hull.hull(single)
        found.append(mask_of(hull, shape))
    return found


def link_elements(problem: Problem, link: Link, tiling: Tiling, strategy: Tiling) -> int:
    bound = problem.variables[link.op].op
    assert bound is not None
    shapes = bound.node.input_shapes if link.is_input else bound.node.output_shapes
    shape = shapes[link.position]
    assert shape is not None
    owned = [mask_of(region, shape) for region in tiling.boxes(shape)]
    if link.is_input:
        wanted = needed(bound, link.position, strategy)
        return sum(int((need & ~own).sum()) for need, own in zip(wanted, owned, strict=True))
    dims = bound.analysis.outputs[link.position]
    assert dims is not None
    made = made_tiling(strategy, dims, bound.reducers(strategy))
    there = [mask_of(region, shape) for region in made.boxes(shape)]
    count = 0
    if made.has_partial:
        joined = contributors(made)
        middle = [mask_of(region, shape) for region in reduced_boxes(made, tiling, shape)]
        for worker, part in enumerate(middle):
            for other, contribution in enumerate(there):
                if other != worker and joined[worker, other]:
                    count += int((part & contribution).sum())
        there = middle
    return count + sum(int((own & ~have).sum()) for own, have in zip(owned, there, strict=True))


OPERATIONS = {"MatMul": 2, "Gemm": 2, "Conv": 2, "Mul": 1, "Add": 1, "Sub": 1, "ReduceSum": 1, "Relu": 1}
"""Of floats at each point; of a Relu, the comparison."""


def time_of_part(bound: BoundOp, region: Region, reads: list[Mask]) -> float:
    """How long a worker executes its part, in bytes of its link: what it touches, or what it computes."""
    mine = points(region)
    touched = 4 * sum(int(mask.sum()) for mask in reads)
    for dims in bound.analysis.outputs:
        assert dims is not None
        touched += 4 * len({tuple(point[dim] for dim in dims) for point in mine})
    return max(touched / 8, OPERATIONS[bound.op.op_type] * len(mine) / 128)


def excess(bound: BoundOp, strategy: Tiling) -> int:
    """All workers wait for the slowest one, and an even share would have been enough."""
    if is_delivery(bound.op):
        return 0

    def times(strategy: Tiling) -> list[float]:
        reads = zip(*(needed(bound, slot, strategy) for slot in bound.read_slots), strict=True)
        parts = zip(bound.ranges(strategy), reads, strict=True)
        return [time_of_part(bound, region, list(masks)) for region, masks in parts]

    each, [alone] = times(strategy), times(UNCUT)
    return round(max(0.0, len(each) * max(each) - alone))


@pytest.mark.parametrize(
    ("name", "ways"), chosen(CASES, fast=[(name, ways) for name, ways in CASES if name != "spatial" or ways == 4])
)
def test_no_plan_of_one_cut_is_cheaper_than_the_one_that_is_found(name: str, ways: int) -> None:
    graph = GRAPHS[name]()
    problem = Problem(graph, opdefs.standard().bind_all(graph), ways)
    found = search_recursively(problem, (ways,), no_restriction)
    start = Tiling((), ())
    candidates = [problem.extensions(variable, start, ways) for variable in problem.variables]
    tables = [
        np.array(
            [[link_elements(problem, link, t, s) * 4 for s in candidates[link.op]] for t in candidates[link.tensor]]
        )
        for link in problem.links
    ]
    charges = {
        variable.number: [excess(variable.op, strategy) for strategy in candidates[variable.number]]
        for variable in problem.variables
        if variable.op is not None
    }
    assert any(amount > 0 for own in charges.values() for amount in own)
    best = None
    plans = 0
    for values in itertools.product(*(range(len(options)) for options in candidates)):
        plans += 1
        moved = sum(
            table[values[link.tensor], values[link.op]] for link, table in zip(problem.links, tables, strict=True)
        )
        cost = moved + sum(own[values[op]] for op, own in charges.items())
        best = cost if best is None else min(best, cost)
    assert plans > 100
    assert found.cost == best
