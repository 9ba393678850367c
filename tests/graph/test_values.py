"""Inputs that are given a value before anything is planned are constants, and what they decide is decided."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from planner.errors import ModelError, UnsupportedError, UsageError
from planner.graph.core.model import DType, Graph, Tensor
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import graph_from_proto
from planner.graph.reading.values import fixed_inputs, values_of
from planner.tdl.descriptions import Descriptions

Read = Callable[..., Graph]

SAMPLES = """g (float[1, 6] x, int64 sr) => (float[1, N] y) <int64 fast = {16000}, int64[1] b = {0}, int64[1] e = {3},
    int64[1] axis = {1}> {
    c = Equal(sr, fast)
    y = If (c) <then_branch = t () => (float[1, N] p) { p = Slice(x, b, e, axis) },
                else_branch = f () => (float[1, N] q) { q = Abs(x) }>
}"""  # fmt: skip


@pytest.mark.parametrize(("rate", "op_type", "size"), [("16000", "Slice", 3), ("8000", "Abs", 6)])
def test_a_scalar_decides_the_branch(rate: str, op_type: str, size: int, read: Read) -> None:
    graph = read(SAMPLES, values={"sr": rate})
    assert [op.op_type for op in graph.ops] == [op_type]
    assert graph.inputs == ("x",)
    assert graph.tensors["y"].shape == (1, size)
    assert values_of(graph.notes) == (("sr", rate),)
    assert values_of(graph_from_proto(to_model(graph)).notes) == (("sr", rate),)


def test_without_it_the_hint_names_the_input(read: Read) -> None:
    """As the gradient needs it; and as a plan does, to which ops without a description are told otherwise."""
    with pytest.raises(UnsupportedError) as error:
        read(SAMPLES)
    assert error.value.hint == "decide it before the plan is made: --value sr=NUMBER"
    with pytest.raises(UnsupportedError) as error:
        read(SAMPLES, operators=Descriptions({}))
    assert error.value.hint.startswith("decide it before the plan is made: --value sr=NUMBER\nor ")


def test_nobody_states_an_image(read: Read) -> None:
    with pytest.raises(UnsupportedError) as error:
        read(
            """g (float[1, 9] x) => (float[1, 9] y) <float zero = {0.0}> {
                s = ReduceSum <keepdims = 0> (x)
                c = Greater(s, zero)
                y = If (c) <then_branch = t () => (float[1, 9] p) { p = Neg(x) },
                            else_branch = f () => (float[1, 9] q) { q = Abs(x) }>
            }"""
        )
    assert error.value.hint == ""


def test_values_that_ops_read_are_folded(read: Read) -> None:
    graph = read(
        "g (float[2] x, float s, float t) => (float[2] y) { u = Add(s, t)  y = Mul(x, u) }",
        values={"s": "1.5", "t": "2"},
    )
    assert [op.op_type for op in graph.ops] == ["Mul"]
    assert graph.constants["u"] == 3.5
    assert graph.folded == {"u"}, "so that it is not taken for a weight"


def test_a_default_is_overruled(read: Read) -> None:
    graph = read("g (float[2] x, float s) => (float[2] y) <float s = {4.0}> { y = Mul(x, s) }", values={"s": "0.5"})
    assert graph.constants["s"] == 0.5
    assert "s" not in graph.initial


INPUTS = {
    "n": Tensor("n", (), DType.INT64),
    "small": Tensor("small", (), DType.INT8),
    "row": Tensor("row", (2, 2), DType.FLOAT32),
    "half": Tensor("half", (1,), DType.FLOAT16),
    "flags": Tensor("flags", (3,), DType.BOOL),
}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("n", "-3", np.array(-3, np.int64)),
        ("row", "1,2, 3,4.5", np.array([[1, 2], [3, 4.5]], np.float32)),
        ("row", "-inf", np.full((2, 2), -np.inf, np.float32)),
        ("half", "0.5", np.array([0.5], np.float16)),
        ("flags", "true", np.array([True, True, True])),
        ("flags", "true,0,False", np.array([True, False, False])),
    ],
)
def test_numbers(name: str, text: str, expected: np.ndarray) -> None:
    (found,) = fixed_inputs({name: text}, INPUTS).values()
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("name", "text", "fact"),
    [
        ("n", "16k", "'n': '16k' is no int64"),
        ("n", "1.5", "'n': '1.5' is no int64"),
        ("n", "1" * 30, f"'n': '{'1' * 30}' is no int64"),
        ("small", "300", "'small': '300' is no int8"),
        ("row", "nan", "'row': 'nan' is no float32"),
        ("half", "1e9", "'half': '1e9' is no float16"),
        ("flags", "yes", "'flags': 'yes' is no bool"),
        ("row", "1,2,3", "'row': 3 numbers for 4 elements of [2, 2]"),
        ("rows", "1", "'rows' is no input; the model's inputs: n, small, row, half, flags"),
    ],
)
def test_what_is_no_number_is_refused(name: str, text: str, fact: str) -> None:
    with pytest.raises(UsageError) as error:
        fixed_inputs({name: text}, INPUTS)
    assert error.value.facts == (fact,)


def test_a_note_of_another_form_is_refused() -> None:
    for note in ("[]", "{", '{"a": 1}'):
        with pytest.raises(ModelError):
            values_of({"tofu.values": note})
