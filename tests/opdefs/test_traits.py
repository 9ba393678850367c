"""What is said of operators is said once: the tables agree with the descriptions, and a new operator is in none."""

from __future__ import annotations

from pathlib import Path

from planner import opdefs
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.search.decide import decide
from planner.search.request import SearchRequest
from structure import mentions, op_type_tables

ROOT = Path(__file__).parents[2]
CAPPED = """
from planner.tdl.builder import Sum, call, op

@op("Capped", domain="my.domain")
def capped(node, X, bound):
    return lambda *i: call("Capped", X[i], bound[i[-1]])

@op("Blended", domain="my.domain")
def blended(node, A, B):
    return lambda i, j: Sum(lambda k: A[i, k] * B[j, k])
"""


def test_rooms_keep_few_tables_of_their_own() -> None:
    tables = [table for table in op_type_tables(ROOT) if not table.is_registry]
    assert len(tables) <= 12, [f"{table.place} {table.name}" for table in tables]


def test_a_new_operator_is_known_by_its_description_alone(tmp_path: Path) -> None:
    file = tmp_path / "my_ops.py"
    file.write_text(CAPPED)
    descriptions = opdefs.standard(*opdefs.load_file(file).descriptions)
    shapes = {"x": (64, 32), "w": (48, 32), "h": (64, 48), "bound": (48,), "c": (64, 48), "v": (16, 48), "y": (64, 16)}
    ops = (
        Op("first", "Blended", ("x", "w"), ("h",), domain="my.domain"),
        Op("cap", "Capped", ("h", "bound"), ("c",), domain="my.domain"),
        Op("second", "Blended", ("c", "v"), ("y",), domain="my.domain"),
    )
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in shapes.items()}
    graph = Graph("new", tensors, ops, ("x", "w", "bound", "v"), ("y",), {})
    plan = decide(graph, descriptions.bind_all(graph), SearchRequest(4))
    bound = {op.op.name: op for op in plan.ops}
    assert bound["cap"].analysis.is_elementwise
    assert bound["first"].analysis.product is not None
    assert not bound["first"].analysis.is_elementwise
    assert all(str(tiling) != "R/4" for tiling in plan.tilings.values() if tiling)
    assert mentions(ROOT, "Capped") == mentions(ROOT, "Blended") == []


def test_an_element_wise_operator_of_onnx_is_named_where_it_is_described_and_differentiated() -> None:
    assert mentions(ROOT, "Mish") == [
        "planner/graph/core/traits.py",
        "planner/training/rules/activations.py",
    ]
