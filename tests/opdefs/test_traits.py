"""What is said of operators is said once: the tables agree with the descriptions, and a new operator is in none."""

from __future__ import annotations

from pathlib import Path

from planner import opdefs
from planner.features.ops.cases.case import bind_case, by_type
from planner.features.ops.cases.examples import all_cases
from planner.graph.core import traits
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.search.decide import decide
from planner.search.request import SearchRequest
from planner.tdl.bind import BoundOp
from planner.tdl.expr import Access
from structure import mentions, op_type_tables

ROOT = Path(__file__).parents[2]
PARAMETERS_BY_CHANNEL = {"BatchNormalization", "DequantizeLinear", "QuantizeLinear"}
QUANTISED = {"ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"}
CAPPED = """
from planner.tdl.builder import Sum, call, op

@op("Capped", domain="my.domain")
def capped(node, X, bound):
    return lambda *i: call("Capped", X[i], bound[i[-1]])

@op("Blended", domain="my.domain")
def blended(node, A, B):
    return lambda i, j: Sum(lambda k: A[i, k] * B[j, k])
"""


def described() -> dict[str, BoundOp]:
    """An op of each of ONNX's own operators, with its description."""
    descriptions = opdefs.standard()
    first = {name: cases[0] for name, cases in by_type(all_cases()).items() if not cases[0].domain}
    return {name: bind_case(case, descriptions)[0] for name, case in first.items()}


def test_the_tables_say_what_the_descriptions_say() -> None:
    ops = described()
    element_wise = {name for name, op in ops.items() if op.analysis.is_elementwise and op.analysis.read_slots}
    # A mask is laid over the elements by Dropout and Trilu, and Expand repeats them.
    assert element_wise - {"Dropout", "Expand", "Trilu"} - PARAMETERS_BY_CHANNEL == traits.ELEMENT_WISE
    assert traits.BROADCASTING < traits.ELEMENT_WISE
    products = {name for name, op in ops.items() if op.analysis.product is not None}
    squares = {"ReduceL2", "ReduceSumSquare"}
    assert products - QUANTISED - squares == traits.PRODUCTS | traits.CONVOLUTIONS
    moved = {name for name, op in ops.items() if isinstance(op.description.trace(op.node)[0].value, Access)}
    by_data = {"ReverseSequence", "Trilu"}
    resized = {"CenterCropPad", "Resize", "Upsample"}
    assert moved - resized - {"Dropout"} == traits.MOVING - by_data
    assert all(traits.carried(name, 1) for name in moved - resized - {"Dropout"})


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


def test_an_operator_of_onnx_is_named_where_it_is_described_differentiated_and_tried() -> None:
    assert mentions(ROOT, "Mish") == [
        "planner/features/ops/cases/compute.py",
        "planner/graph/core/traits.py",
        "planner/training/rules/activations.py",
    ]
