"""What is decided when a model is read: branches of an If, flags of a Compress, opsets that are only a stamp."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper

import stock_runtime
from planner.errors import ModelError, UnsupportedError
from planner.graph.core.model import Graph
from planner.graph.files.protos import MAX_OPSET
from planner.graph.folding.foreign import EVERY_OPERATOR
from planner.graph.reading.from_onnx import graph_from_proto
from planner.graph.reading.load import _READ_AGAIN

Read = Callable[..., Graph]
Parse = Callable[..., onnx.ModelProto]

BRANCHES = """g (float[4] x, float[4] b) => (float[4] y, float[4] z) <bool c = {%d}> {
    h = Abs (x)
    y, z = If (c) <then_branch = t () => (float[4] a, float[4] b2) <float[4] w = {1.0, 2.0, 3.5, 4.0}>
                   { r = Relu (h) a = Add (r, w) b2 = Neg (r) },
               else_branch = e () => (float[4] h, float[4] k) { k = Mul (h, b) }>
}"""


def types(graph: Graph) -> list[str]:
    return [op.op_type for op in graph.ops]


def test_an_if_that_is_known_is_the_branch_that_it_takes(read: Read) -> None:
    graph = read(BRANCHES % 1, operators=EVERY_OPERATOR, state_pairs=())
    assert types(graph) == ["Abs", "Relu", "Add", "Neg"]
    add = graph.ops[2]
    weight = graph.constants[add.inputs[1]]
    assert weight is not None
    assert weight.tolist() == [1.0, 2.0, 3.5, 4.0]
    assert graph.ops[1].inputs == ("h",)
    assert [graph.producer[name].op_type for name in graph.outputs] == ["Add", "Neg"]


def test_a_branch_may_hand_on_what_is_outside_of_it(read: Read) -> None:
    graph = read(BRANCHES % 0, operators=EVERY_OPERATOR, state_pairs=())
    assert sorted(types(graph)) == ["Abs", "Identity", "Mul"]
    assert graph.producer["y"].inputs == ("h",)
    assert graph.producer["z"].inputs == ("h", "b")


def test_two_outputs_may_be_one_tensor_and_names_may_return(read: Read) -> None:
    """Both Ifs call their inner tensors r: each is a tensor of its own."""
    graph = read(
        """g (float[4] x) => (float[4] p, float[4] q, float[4] s) <bool c = {1}> {
            p, q = If (c) <then_branch = t () => (float[4] r, float[4] r2) { r = Relu (x) r2 = Abs (r) },
                           else_branch = e () => (float[4] u, float[4] v) { u = Abs (x) v = Neg (x) }>
            s = If (c) <then_branch = t2 () => (float[4] r) { q2 = Neg (x) r = Relu (q2) },
                        else_branch = e2 () => (float[4] u) { u = Abs (x) }>
        }""",
        operators=EVERY_OPERATOR,
        state_pairs=(),
    )
    assert types(graph) == ["Relu", "Abs", "Neg", "Relu"]
    assert [graph.producer[name].op_type for name in graph.outputs] == ["Relu", "Abs", "Relu"]


def test_an_if_inside_of_an_if(read: Read) -> None:
    graph = read(
        """g (float[4] x) => (float[4] y) <bool c = {1}, bool d = {0}> {
            y = If (c) <
                then_branch = t () => (float[4] a) {
                    i = Neg (x)
                    a = If (d) <then_branch = tt () => (float[4] k) { k = Relu (i) },
                                else_branch = te () => (float[4] k2) { k2 = Abs (i) }>
                },
                else_branch = e () => (float[4] b) { b = Abs (x) }>
        }""",
        operators=EVERY_OPERATOR,
        state_pairs=(),
    )
    assert types(graph) == ["Neg", "Abs"]
    assert graph.producer["y"].inputs == graph.ops[0].outputs


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_compress_by_known_flags_takes_known_positions(read: Read, axis: int | None) -> None:
    stated = "" if axis is None else f"<axis = {axis}>"
    rows = {None: "2", 0: "2, 3", -1: "4, 2"}[axis]
    graph = read(
        f"g (float[4, 3] x) => (float[{rows}] y) <bool[3] f = {{0, 1, 1}}> {{ y = Compress {stated} (x, f) }}",
        state_pairs=(),
    )
    assert types(graph) == (["Reshape", "Slice"] if axis is None else ["Slice"])
    starts, ends, *_ = (graph.constants[name] for name in graph.ops[-1].inputs[1:])
    assert (starts, ends) == (np.array([1]), np.array([3]))


def model(op_type: str, opset: int, dtype: str = "float32", **attributes: int) -> onnx.ModelProto:
    elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x, y = (helper.make_tensor_value_info(name, elem_type, [2, 3]) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node(op_type, ["x"], ["y"], **attributes)], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def test_an_operator_that_did_not_change_needs_another_stamp_only() -> None:
    old = graph_from_proto(model("Not", 1, "bool"), state_pairs=())
    assert (old.opset, types(old)) == (21, ["Not"])
    new = graph_from_proto(model("Relu", 28), state_pairs=())
    assert (new.opset, types(new)) == (MAX_OPSET, ["Relu"])


def test_an_operator_that_takes_more_dtypes_than_at_the_runtimes_opset() -> None:
    graph = graph_from_proto(model("Celu", 28, "float16"), state_pairs=())
    assert (graph.opset, types(graph)) == (MAX_OPSET, ["Celu"])


def mod(opset: int, dtype: str, **attributes: int) -> onnx.ModelProto:
    elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    info = [helper.make_tensor_value_info(name, elem_type, [13, 13]) for name in "aby"]
    graph = helper.make_graph([helper.make_node("Mod", ["a", "b"], ["y"], **attributes)], "g", info[:2], info[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_a_remainder_of_floats_by_the_sign_of_the_divisor(dtype: str) -> None:
    """Since opset 28, which the runtime does not take: NumPy's, zeros' signs and infinities included."""
    numbers = np.array([0.0, -0.0, 1, -1, 2.5, -2.5, 7, -7, 0.1, -0.1, np.inf, -np.inf, np.nan], dtype)
    b, a = np.meshgrid(numbers, numbers)
    found = stock_runtime.run(graph_from_proto(mod(28, dtype)), {"a": a, "b": b})["y"]
    with np.errstate(all="ignore"):
        expected = np.mod(a, b)
    np.testing.assert_array_equal(found, expected)
    is_number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[is_number], np.signbit(expected)[is_number])


def test_remainders_that_are_as_they_were() -> None:
    assert types(graph_from_proto(mod(28, "int32"))) == ["Mod"]
    assert types(graph_from_proto(mod(28, "float32", fmod=1))) == ["Mod"]
    with pytest.raises(ModelError, match="since opset 28"):
        graph_from_proto(mod(26, "float32"))


def test_what_only_a_later_version_takes_and_nothing_executes_is_refused() -> None:
    info = [helper.make_tensor_value_info(name, onnx.TensorProto.INT32, [2, 3]) for name in "xsy"]
    graph = helper.make_graph(
        [helper.make_node("BitShift", ["x", "s"], ["y"], direction="LEFT")], "g", info[:2], info[2:]
    )
    with pytest.raises(ModelError, match="contradict"):
        graph_from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 28)], ir_version=10))


def test_every_operator_that_changed_was_read_or_is_refused() -> None:
    """A later ONNX's next version of an operator is on no list: this test says then that its text is to be read."""
    later = {(schema.name, schema.since_version) for schema in onnx.defs.get_all_schemas()
             if not schema.domain and schema.since_version > MAX_OPSET}  # fmt: skip
    new = {"CausalConvWithState", "LinearAttention", "SwiGLU"}
    assert {name for name, _ in later - _READ_AGAIN} == new | {"Optional", "OptionalGetElement", "OptionalHasElement"}


def test_an_operator_that_did_change_is_refused() -> None:
    """SpaceToDepth got its attribute ``mode`` with opset 28."""
    info = [helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", [1, 1, 4, 4]), ("y", [1, 4, 2, 2]))]
    node = helper.make_node("SpaceToDepth", ["x"], ["y"], blocksize=2, mode="CRD")
    graph = helper.make_graph([node], "g", info[:1], info[1:])
    with pytest.raises(UnsupportedError, match="cannot be converted to 26"):
        graph_from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 28)]), state_pairs=())
