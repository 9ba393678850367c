"""ONNX's own operator test cases through tofu, and the harness that tries them on cases made here."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pytest
from onnx import TensorProto, helper

from conformance import Conformance, Refusal, Stock, conformance, print_conformance, try_case
from onnx_node_cases import OnnxCase, differences, onnx_cases, stock_outputs
from planner import opdefs
from planner.tdl.builder import NodeView, TensorArg, call, op
from planner.tdl.descriptions import Descriptions

STANDARD = opdefs.standard()
PASSED_BY_THE_RUNTIME, PASSED, CUT, STRATEGIES = 1699, 1614, 1502, 1401
IN_STEPS = 70
"""As measured with onnx 1.23 and ONNX Runtime 1.31, for two workers."""


def case(
    op_type: str,
    inputs: Sequence[np.ndarray],
    expected: np.ndarray,
    *,
    opset: int = 26,
    ir_version: int = 10,
    **attributes: object,
) -> OnnxCase:
    """A case of one op, as the ``onnx`` package makes them."""
    names = [f"x{number}" for number in range(len(inputs))]
    values = [*zip(names, inputs, strict=True), ("y", expected)]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in values
    ]
    graph = helper.make_graph([helper.make_node(op_type, names, ["y"], **attributes)], "case", infos[:-1], infos[-1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
    return OnnxCase("case", model, dict(zip(names, inputs, strict=True)), (expected,), 1e-3, 1e-7)


def numbers(*shape: int) -> np.ndarray:
    return np.linspace(-2, 3, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def test_a_right_case_is_cut_and_its_other_strategies_are_run() -> None:
    x, w = numbers(4, 6), numbers(6, 5)
    outcome = try_case(case("MatMul", [x, w], x @ w), STANDARD)
    assert outcome.is_passed
    assert outcome.is_cut
    assert outcome.in_steps == 9  # cut along i, j or k, and along each of these in two steps
    assert outcome.strategies == 2 + outcome.in_steps  # of i, j and k, the search takes one
    assert outcome.why_not_cut == ""


def test_a_case_that_the_runtime_fails_is_not_tried() -> None:
    x = numbers(4)
    assert try_case(case("Relu", [x], np.full(4, 7, np.float32)), STANDARD).stock is Stock.DIFFERS
    newer = case("SwiGLU", [x, x], x, opset=28, ir_version=14)
    assert try_case(newer, STANDARD).stock is Stock.REFUSES


def test_a_wrong_description_differs() -> None:
    @op("CumSum")
    def wrong(node: NodeView, X: TensorArg, axis: TensorArg) -> object:
        """Claims that elements are independent."""
        return lambda *i: call("CumSum", X[i])

    x = numbers(6)
    outcome = try_case(case("CumSum", [x, np.array(0)], np.cumsum(x)), Descriptions([wrong]))
    assert not outcome.is_passed
    assert not outcome.is_cut
    assert "output 'y': differs" in outcome.differences[0]


def test_a_parameter_becomes_a_constant_and_is_named() -> None:
    outcome = try_case(case("Reshape", [numbers(4, 6), np.array([6, 4])], numbers(6, 4)), STANDARD)
    assert outcome.is_passed
    assert outcome.constants == ("x1",)


def test_what_cannot_be_cut_says_why() -> None:
    matrix = numbers(4, 4) + np.eye(4, dtype=np.float32)
    outcome = try_case(case("Det", [matrix], np.array(np.linalg.det(matrix), np.float32)), STANDARD)
    assert outcome.is_passed
    assert not outcome.is_cut
    assert outcome.why_not_cut == "every index variable has too few values to be split"


def of_data_shape() -> OnnxCase:
    """Boxes that are left over: nothing decides how many before they are compared."""
    boxes, scores = np.array([[[0, 0, 1, 1], [0, 0, 2, 2]]], np.float32), np.array([[[0.9, 0.8]]], np.float32)
    return case("NonMaxSuppression", [boxes, scores, np.array([1])], np.array([[0, 0, 0]]))


def test_refusals_are_told_by_the_model() -> None:
    single = case("Relu", [numbers(1)], np.zeros(1, np.float32))
    assert try_case(single, STANDARD).refusal is Refusal.ONE_ELEMENT
    assert try_case(of_data_shape(), STANDARD).refusal is Refusal.DATA_SHAPE
    where = try_case(case("NonZero", [numbers(3)], np.array([[0, 1, 2]])), STANDARD)
    assert (where.refusal, where.is_passed, where.constants) == (None, True, ("x0",))  # of a constant it is known
    nobody = try_case(case("Relu", [numbers(4)], np.maximum(numbers(4), 0)), Descriptions([]))
    assert nobody.refusal is None
    assert "no description" in nobody.error
    assert not Conformance(2, (nobody,)).is_right


@pytest.mark.parametrize(
    "kind", ["FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "BFLOAT16", "FLOAT16"]
)
def test_narrow_floats(kind: str) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(getattr(TensorProto, kind))
    x = numbers(7, 3).astype(dtype)
    outcome = try_case(case("Cast", [x], x.astype(np.float32), opset=21, to=TensorProto.FLOAT), STANDARD)
    assert (outcome.stock, outcome.is_passed, outcome.is_cut) == (Stock.PASSES, True, True)


@pytest.mark.parametrize("kind", ["INT4", "UINT4", "INT2", "UINT2"])
def test_integers_of_less_than_a_byte(kind: str) -> None:
    """Tiles of 4 and 3 elements: the second begins within a byte of the packed form."""
    dtype = helper.tensor_dtype_to_np_dtype(getattr(TensorProto, kind))
    x = np.array([0, 1, 1, 0, 1, 1, 0], np.float32)
    narrow = case("Cast", [x], x.astype(dtype), opset=25, ir_version=13, to=getattr(TensorProto, kind))
    wide = case("Cast", [x.astype(dtype)], x, opset=25, ir_version=13, to=TensorProto.FLOAT)
    for cast in (narrow, wide):
        outcome = try_case(cast, STANDARD)
        assert (outcome.stock, outcome.is_passed, outcome.is_cut) == (Stock.PASSES, True, True)


def test_pads_of_zero_are_not_put_back_into_a_pool() -> None:
    """Cut along its kernel, this pool has pads that are not below the kernel size."""
    x = np.arange(25, dtype=np.uint8).reshape(1, 1, 5, 5)
    attributes = {"kernel_shape": [5, 5], "pads": [2, 2, 2, 2]}
    (expected,) = stock_outputs(case("MaxPool", [x], x, **attributes))
    assert isinstance(expected, np.ndarray)
    outcome = try_case(case("MaxPool", [x], expected, **attributes), STANDARD)
    assert outcome.is_passed, outcome.differences
    assert outcome.strategies >= 2


def test_the_depth_of_one_hot_keeps_its_dtype() -> None:
    indices, depth = np.array([0, 7, 8]), np.array(12, np.float32)
    values = np.array([2, 5], np.int32)
    expected = np.where(np.eye(12)[indices] > 0, 5, 2).astype(np.int32)
    outcome = try_case(case("OneHot", [indices, depth, values], expected), STANDARD)
    assert outcome.is_passed, outcome.differences
    assert outcome.is_cut


def test_a_zero_point_of_one_element_needs_no_axis() -> None:
    x = numbers(5)
    quantised = case(
        "QuantizeLinear", [x, np.array(2, np.float32), np.array([1], np.uint8)], (np.rint(x / 2) + 1).astype(np.uint8)
    )
    outcome = try_case(quantised, STANDARD)
    assert outcome.is_passed, outcome.error
    assert outcome.is_cut


def test_a_result_without_elements_takes_no_segment() -> None:
    x = numbers(3, 4, 5)
    outcome = try_case(case("Shape", [x], np.zeros(0, np.int64), start=2, end=1), STANDARD)
    assert outcome.is_passed, outcome.error


def test_differences_name_shape_dtype_and_size() -> None:
    relu = case("Relu", [numbers(4)], np.maximum(numbers(4), 0))
    assert differences(relu, [np.maximum(numbers(4), 0)]) == ()
    assert differences(relu, [np.zeros((2, 2), np.float32)]) == ("output 'y': has shape [2, 2], not [4]",)
    assert differences(relu, [np.zeros(4)]) == ("output 'y': is of float64, not float32",)
    assert differences(relu, [np.zeros(4, np.float32)]) == ("output 'y': differs by up to 3.00e+00",)
    assert differences(relu, [np.full(4, np.nan, np.float32)]) != ()


def test_the_table_says_what_became_of_cases() -> None:
    x = numbers(4)
    cases = [
        case("Relu", [x], np.maximum(x, 0)),
        case("Relu", [x], x),
        of_data_shape(),
        case("Relu", [numbers(1)], np.zeros(1, np.float32)),
    ]
    result = conformance(STANDARD, cases)
    assert {stock: len(result.with_stock(stock)) for stock in Stock} == {
        Stock.PASSES: 3,
        Stock.REFUSES: 0,
        Stock.DIFFERS: 1,
    }
    assert (len(result.passed), len(result.cut), result.is_right) == (1, 1, True)
    assert {reason: len(names) for reason, names in result.refused().items() if names} == {
        Refusal.DATA_SHAPE: 1,
        Refusal.ONE_ELEMENT: 1,
    }
    text = io.StringIO()
    print_conformance(result, text)
    assert "the stock runtime passes            3" in text.getvalue()
    assert f"{Refusal.DATA_SHAPE.value}  " in text.getvalue()


@pytest.fixture(scope="module")
def whole() -> Conformance:
    return conformance(STANDARD, onnx_cases())


@pytest.mark.slow
def test_all_cases_of_the_onnx_package(whole: Conformance) -> None:
    """Every case that the stock runtime passes is as expected on two workers, or refused for a reason on the list."""
    assert [(outcome.name, outcome.differences) for outcome in whole.differing] == []
    assert [(outcome.name, outcome.error) for outcome in whole.failed] == []
    assert len(whole.outcomes) >= 1884
    assert len(whole.passed) + sum(map(len, whole.refused().values())) == len(whole.with_stock(Stock.PASSES))


@pytest.mark.slow
def test_as_many_pass_and_are_cut_as_were_measured(whole: Conformance) -> None:
    assert len(whole.with_stock(Stock.PASSES)) >= PASSED_BY_THE_RUNTIME
    assert len(whole.passed) >= PASSED
    assert len(whole.cut) >= CUT
    assert whole.strategies - whole.in_steps >= STRATEGIES
    assert whole.in_steps >= IN_STEPS
