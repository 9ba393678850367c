"""Which ops are linear in all that they read, by their descriptions and by their kernels."""

from collections import Counter

import numpy as np
import pytest

from planner import opdefs
from planner.features.ops.cases.case import Case, bind_case
from planner.features.ops.cases.examples import all_cases
from planner.features.ops.strategies import normwise_error, run_whole, tolerance
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.tdl.linear import Linearity

DESCRIPTIONS = opdefs.standard()
ADDS, MOVES, NONE = Linearity.ADDS, Linearity.MOVES, Linearity.NONE


@pytest.mark.parametrize(
    ("op_type", "shapes", "made", "linearity"),
    [
        ("Add", ((3, 4), (4,)), (3, 4), ADDS),
        ("Sub", ((3, 4), (3, 1)), (3, 4), ADDS),
        ("Sum", ((3, 4), (3, 4), (4,)), (3, 4), ADDS),
        ("Sum", ((3, 4),), (3, 4), MOVES),
        ("Mean", ((3, 4), (3, 4)), (3, 4), ADDS),
        ("Neg", ((3, 4),), (3, 4), MOVES),
        ("Transpose", ((3, 4),), (4, 3), MOVES),
        ("GlobalAveragePool", ((2, 3, 4, 4),), (2, 3, 1, 1), ADDS),
        ("Mul", ((3, 4), (3, 4)), (3, 4), NONE),
        ("Div", ((3, 4), (3, 4)), (3, 4), NONE),
        ("MatMul", ((3, 4), (4, 5)), (3, 5), NONE),
        ("Gemm", ((3, 4), (4, 5), (5,)), (3, 5), NONE),
        ("Max", ((3, 4), (3, 4)), (3, 4), NONE),
        ("Relu", ((3, 4),), (3, 4), NONE),
        ("Softmax", ((3, 4),), (3, 4), NONE),
    ],
)
def test_by_description(
    op_type: str, shapes: tuple[tuple[int, ...], ...], made: tuple[int, ...], linearity: Linearity
) -> None:
    names = [f"x{slot}" for slot in range(len(shapes))]
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in zip(names, shapes, strict=True)}
    tensors["y"] = Tensor("y", made, DType.FLOAT32)
    op = Op("op", op_type, tuple(names), ("y",), (("perm", (1, 0)),) if op_type == "Transpose" else ())
    graph = Graph("one", tensors, (op,), tuple(names), ("y",), {})
    assert DESCRIPTIONS.bind(op, graph).analysis.linearity is linearity


def contributions(case: Case) -> tuple[float, float] | None:
    """By how much an op of a sum differs from the sum of the ops, and what is rounding; None if it is not linear."""
    bound, first, _ = bind_case(case, DESCRIPTIONS, seed=1)
    if bound.analysis.linearity is NONE or not all(array.dtype == np.float32 for array in first.values()):
        return None
    if not all(bound.op.inputs[slot] in first for slot in bound.read_slots):
        return None
    _, second, _ = bind_case(case, DESCRIPTIONS, seed=2)
    read = {bound.op.inputs[slot] for slot in bound.read_slots}
    total = {name: first[name] + second[name] if name in read else first[name] for name in first}
    whole, one, other = (run_whole(bound, arrays) for arrays in (total, first, second))
    worst = max(normwise_error(one[position] + other[position], array) for position, array in whole.items())
    return worst, tolerance(np.dtype(np.float32))


def test_by_kernels() -> None:
    """Every case of every operator whose description is linear: f(a + b) = f(a) + f(b)."""
    seen = Counter[str]()
    for case in all_cases():
        found = contributions(case)
        if found is not None:
            seen[case.op_type] += 1
            assert found[0] <= found[1], str(case)
    assert len(seen) > 20
    assert {"Add", "Mean", "Pad", "ReduceSum", "Reshape", "Slice", "Split", "Sub", "Sum", "Transpose"} <= seen.keys()
