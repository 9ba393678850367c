"""The verifier finds strategies that are missing, and says so in tables and JSON."""

from __future__ import annotations

import io
import json

import pytest

from planner import opdefs
from planner.errors import UsageError
from planner.features.ops import table as report
from planner.features.ops.allowed import GAPS, gap_reason
from planner.features.ops.cases.case import Case, Known, ints, make, qualified
from planner.features.ops.cases.examples import all_cases
from planner.features.ops.missing import missing_strategies
from planner.features.ops.page import operator_page
from planner.features.ops.verification import QUICK, verify_operator, verify_operators
from planner.records import plain_record
from planner.tdl.builder import Description, Ix, NodeView, Opaque, Sum, TensorArg, Val, at, call, op
from planner.tdl.descriptions import Descriptions


@op("Softmax")
def softmax_all_opaque(node: NodeView, X: TensorArg) -> object:
    return lambda i, j: Opaque("Softmax")(X[:, :])[i, j]


@op("MatMul")
def product_whose_sum_is_hidden(node: NodeView, A: TensorArg, B: TensorArg) -> object:
    return lambda m, n: call("hidden", Sum(lambda k: A[m, k] * B[k, n]))


@op("ReduceMax")
def maximum_all_opaque(node: NodeView, X: TensorArg, axes: TensorArg) -> object:
    return lambda i, j: Opaque("Max")(X[i, :])[j]


@op("Concat")
def join_along_one_opaque(node: NodeView, A: TensorArg, B: TensorArg) -> object:
    return lambda i, j: Opaque("Concat")(A[:, :], B[:, :])[i, j]


CONTROLS: list[tuple[Description, Case, str]] = [
    (softmax_all_opaque, make("Softmax", (4, 6)), "in0 S(0) -> out0 concatenated along 0"),
    (product_whose_sum_is_hidden, make("MatMul", (4, 6), (6, 5)), "in0 S(1), in1 S(0) -> out0 Sum"),
    (maximum_all_opaque, make("ReduceMax", (4, 6), ints(1)), "in0 S(1) -> out0 Max"),
    (join_along_one_opaque, make("Concat", (4, 3), (4, 5), axis=1), "in0 S(0), in1 S(0) -> out0 concatenated along 0"),
]


@pytest.mark.parametrize(
    ("description", "case", "gap"), CONTROLS, ids=[control[0].function.__name__ for control in CONTROLS]
)
def test_a_strategy_that_is_missing_is_found(description: Description, case: Case, gap: str) -> None:
    gaps = missing_strategies(case, Descriptions([description]))
    assert any(str(missing).endswith(gap) for missing in gaps), gaps


def test_nothing_is_missing_where_all_is_described() -> None:
    case = make("MatMul", (4, 6), (6, 5))
    assert missing_strategies(case, opdefs.standard()) == ()


def test_the_lookup_that_keeps_its_dim_whole_misses_the_vocabulary_split_of_gather_only_by_its_local_op() -> None:
    """Brute force runs the op itself, which cannot look up what a part has not: such gaps it does not see."""

    @op("Gather")
    def gather(node: NodeView, X: TensorArg, indices: TensorArg) -> object:
        def value(i: Ix, d: Ix) -> Val:
            return X[at(indices[i]), d]

        return value

    case = make("Gather", (6, 5), Known(ints(0, 5, 3).array, constant=False))
    assert missing_strategies(case, Descriptions([gather])) == ()


def test_findings_are_counted_and_printed() -> None:
    verification = verify_operator("Softmax", [make("Softmax", (4, 6))], Descriptions([softmax_all_opaque]), ways=QUICK)
    assert not verification.is_right
    assert verification.executed == 0
    result = verify_operators(opdefs.standard(), ["MatMul", "Softmax"], ways=QUICK)
    assert result.is_right
    assert [operator.op_type for operator in result.operators] == ["MatMul", "Softmax"]
    printed = json.loads(json.dumps(plain_record(result)))
    assert printed["executed"] == result.executed > 50
    text = io.StringIO()
    report.print_verification(result, text)
    assert "incorrect                0\n" in text.getvalue()


def test_the_page_of_an_operator() -> None:
    page = operator_page("Conv", opdefs.standard(), all_cases())
    lines = {line.name: line for line in page.examples[0].variables}
    assert lines["ci"].how == "reduced by Sum"
    assert lines["y0"].reads[0] == "in0 [:, :, 0:6] | [:, :, 4:9]  (halo: 2 of dim 2)"
    text = io.StringIO()
    report.print_page(page, text)
    assert "Sum_{ci, k0} X[b, ci, y0 + k0 - 1]" in text.getvalue()
    assert json.dumps(plain_record(page))


def test_the_page_of_an_operator_with_a_body_says_what_that_computes() -> None:
    page = operator_page("Hardmax", opdefs.standard(), all_cases())
    text = io.StringIO()
    report.print_page(page, text)
    assert "also cut      through simpler ops, where that costs less: 1 at the first place of the" in text.getvalue()
    assert operator_page("MatMul", opdefs.standard(), all_cases()).body == ""


def test_the_page_of_an_attention_shows_what_is_joined_along_its_keys() -> None:
    page = operator_page("Attention", opdefs.standard(), all_cases())
    assert page.parts_of == page.examples[0].case == "Attention(2x4x6x8,2x4x5x8,2x4x5x6)"
    parts = {part.name: part for part in page.parts}
    assert parts["scores"].reads == ("scaled", "turned")
    assert parts["weighted"].reads == ("exp", "in2")
    along_keys = {name: parts[name].joined for name in ("max", "sum", "weighted")}
    assert along_keys == {
        "max": ("Max along r0 of 5: 384 B",),
        "sum": ("Sum along r0 of 5: 384 B",),
        "weighted": ("Sum along k of 5: 2.3 kB",),
    }
    text = io.StringIO()
    report.print_page(page, text)
    assert "joined by 2 workers where it is split along that" in text.getvalue()
    assert operator_page("MatMul", opdefs.standard(), all_cases()).parts == ()


def test_an_unknown_operator_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="did you mean 'Softmax'"):
        operator_page("Softmx", opdefs.standard(), all_cases())
    with pytest.raises(UsageError, match="did you mean 'Conv'"):
        verify_operators(opdefs.standard(), ["Cnov"])


def test_every_exception_is_of_a_described_operator_and_says_why() -> None:
    described = {qualified(*key) for key in opdefs.standard().described}
    assert all(gap.op_type in described and gap.reason for gap in GAPS)
    assert gap_reason("Softmax", "anything") == ""
