"""SoyBean, section 4.2.1: what a product of matrices moves, by its three aligned tilings (equation 2)."""

from __future__ import annotations

from itertools import product

import numpy as np

from planner import opdefs
from planner.algebra.tiling import Shard, Tiling
from planner.features.zoo import models as zoo
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.search.decide import decide
from planner.search.request import SearchRequest
from planner.search.user_rules.rules import Rules

M, N, K = 4, 10, 6
SHAPES = {"x": (M, K), "w": (K, N), "y": (M, N)}
TILINGS = {"R": "S(0)", "C": "S(1)", "r": "R"}
"""SoyBean's row, column and replicated tilings, in this program's words."""
ALIGNED = (("R", "r", "R"), ("r", "C", "C"), ("C", "R", "red"))


def one_product() -> Graph:
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in SHAPES.items()}
    return Graph("product", tensors, (Op("product", "MatMul", ("x", "w"), ("y",)),), ("x", "w"), ("y",), {})


def held(tiling: str, shape: tuple[int, int], device: int) -> np.ndarray:
    """Which elements a device has."""
    has = np.zeros(shape, bool)
    half = [slice(None), slice(None)]
    if tiling in "RC":
        dim = "RC".index(tiling)
        half[dim] = slice(device * shape[dim] // 2, (device + 1) * shape[dim] // 2)
    has[tuple(half)] = True
    return has


def converted(before: str, after: str, shape: tuple[int, int]) -> int:
    """Elements that two devices bring from each other: what they need less what they have (the ghost area)."""
    if before == "red":  # each has a term of every element, and brings the other's where it needs the sum
        return sum(int(held(after, shape, device).sum()) for device in (0, 1))
    return sum(int((held(after, shape, d) & ~held(before, shape, d)).sum()) for d in (0, 1))


def test_equation_2_in_all_27_cases() -> None:
    """Each aligned tiling is a strategy of the op, along m, n or k; the least of the three is the equation's."""
    graph = one_product()
    ops = opdefs.standard().bind_all(graph)
    cases = list(product(TILINGS, repeat=3))
    assert len(cases) == 27
    for case in cases:
        rules = Rules({name: TILINGS[tiling] for name, tiling in zip(SHAPES, case, strict=True)})
        for variable, aligned in zip("mnk", ALIGNED, strict=True):
            along = Tiling((Shard(ops[0].variable_number(variable)),), (2,))
            ask = SearchRequest(2, strategy="soybean", rules=rules, held={"product": along})
            (x, w, y), (of_x, of_w, of_y) = case, aligned
            elements = converted(x, of_x, SHAPES["x"]) + converted(w, of_w, SHAPES["w"])
            elements += converted(of_y, y, SHAPES["y"])
            assert decide(graph, ops, ask).moved_bytes == 4 * elements, (case, variable)


def test_a_product_that_is_repeated_is_none_of_the_three() -> None:
    """This program may compute everything twice, at a price, where equation 2 has halves brought."""
    graph = one_product()
    rules = Rules(dict.fromkeys(SHAPES, "R"))
    plan = decide(graph, opdefs.standard().bind_all(graph), SearchRequest(2, strategy="soybean", rules=rules))
    assert plan.moved_bytes == 0 < plan.repeated_bytes


ELEMENTWISE = {"Mul", "Sub", "Tanh", "Exp"}


def test_section_4_5_divides_each_kind_of_op_its_way() -> None:
    """Beside images and windows, which a convolution is not cut along, what has no batch is repeated, and no other."""
    graph = zoo.build("lenet-5", batch=256)
    ops = opdefs.standard().bind_all(graph)
    plan = decide(graph, ops, SearchRequest(4, strategy="soybean-general"))
    along: dict[str, set[str]] = {}
    for op in graph.ops:
        along.setdefault(op.op_type, set()).update(str(plan.strategies[op.name]).replace("/2", "").split())
    assert along["Conv"] | along["ConvTranspose"] == {"b", "ci"}, "the gradient of a weight adds up over samples"
    assert along["AveragePool"] == {"b"}
    assert along["LogSoftmax"] == along["Flatten"] == along["Reshape"] == {"i0"}
    assert along["ReduceSum"] == {"r0"}, "the gradient of a bias"
    assert along["Gemm"] == {"m", "n", "k"}
    assert set(along) >= ELEMENTWISE
    scalars = [op for op in graph.ops if op.op_type in ELEMENTWISE and not graph.tensors[op.outputs[0]].shape]
    repeated = [op for op in graph.ops if "R" in str(plan.strategies[op.name])]
    assert [op for op in repeated if op.op_type in ELEMENTWISE] == scalars
    assert {op.op_type for op in repeated} <= {*ELEMENTWISE, "Transpose", "Unsqueeze"}, "weights have no batch"


def test_section_4_5_leaves_plans_of_products_and_takes_others() -> None:
    """One cut is searched exactly, and so costs no less with fewer ways; on products it costs the same."""
    for name, is_dearer in (("mlp-4x8192", False), ("lenet-5", True)):
        graph = zoo.build(name)
        ops = opdefs.standard().bind_all(graph)
        every, fewer = (
            decide(graph, ops, SearchRequest(2, strategy=strategy)).cost for strategy in ("soybean", "soybean-general")
        )
        assert fewer > every if is_dearer else fewer == every, name
