"""Graphs written as ONNX: round trips, values that were not loaded, and files that are whole or not there."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import TensorProto

from planner.errors import ModelError, UsageError
from planner.graph.core.check import check_graph
from planner.graph.core.model import Attribute, DType, Graph, Op, StatePair, Tensor, TensorAttribute
from planner.graph.files.protos import op_of
from planner.graph.files.to_onnx import op_to_node, to_model, write_model
from planner.graph.reading.from_onnx import graph_from_proto, read_model

Read = Callable[..., Graph]

integers = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(width=32, allow_nan=False)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
arrays = st.sampled_from(sorted(DType, key=lambda dtype: dtype.value)).flatmap(
    lambda dtype: hnp.arrays(
        np.int8 if dtype is not DType.BOOL else np.bool_, hnp.array_shapes(min_dims=0, min_side=0, max_side=3)
    ).map(lambda array: TensorAttribute(array.astype(dtype.array_dtype)))
)
values: st.SearchStrategy[Attribute] = st.one_of(
    integers,
    floats,
    texts,
    arrays,
    st.lists(integers, max_size=4).map(tuple),
    st.lists(floats, min_size=1, max_size=4).map(tuple),
    st.lists(texts, min_size=1, max_size=4).map(tuple),
)


@given(st.dictionaries(texts.filter(bool), values, max_size=4), texts, texts)
def test_an_op_survives_the_node(attributes: dict[str, Attribute], name: str, domain: str) -> None:
    op = Op(name, "Any", ("a", "", "b"), ("c",), tuple(sorted(attributes.items(), key=lambda item: item[0])), domain)
    node = onnx.NodeProto.FromString(op_to_node(op).SerializeToString())
    assert op_of(node, name) == (replace(op, domain="") if domain == "ai.onnx" else op)


def test_empty_lists_get_the_type_of_the_schema() -> None:
    node = op_to_node(Op("p", "Constant", (), ("y",), (("value_floats", ()), ("value_strings", ()))))
    assert [attribute.type for attribute in node.attribute] == [onnx.AttributeProto.FLOATS, onnx.AttributeProto.STRINGS]
    onnx.checker.check_node(op_to_node(Op("t", "Transpose", ("x",), ("y",), (("perm", ()),))))


def test_states_notes_and_initial_values_come_back(read: Read) -> None:
    graph = read(
        """g (float[2] x, float[2] W = {1.0, 2.0}) => (float loss, float[2] n) {
            n = Add(W, x)
            loss = ReduceSum <keepdims = 0> (x)
        }""",
        state_pairs=[],
    )
    graph = replace(graph, state=(StatePair("W", "n"),), notes={"tofu.batch": "8"})
    model = to_model(graph)
    assert model.producer_name == "tofu"
    assert [tensor.name for tensor in model.graph.initializer] == ["W"]
    assert [value.name for value in model.graph.input] == ["x", "W"]
    again = graph_from_proto(model)
    assert again.state == graph.state
    assert again.notes == {"tofu.batch": "8"}
    np.testing.assert_array_equal(again.initial["W"], [1.0, 2.0])  # type: ignore[arg-type]
    assert again.constants == {}


def test_no_state_is_remembered_as_none(read: Read) -> None:
    text = (
        "g (float[2] x, float[2] W) => (float loss, float[2] n) { n = Add(W, x) loss = ReduceSum <keepdims = 0> (x) }"
    )
    assert graph_from_proto(to_model(read(text, state_pairs=[]))).state == ()


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """A model with 128 GiB of external weights, in a file of which nothing but the name exists."""
    side = 2**17
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[2, {side}] x, float[{side}, {side}] V) => (float[2, {side}] y) {{
            h = MatMul(x, W)
            y = MatMul(h, V)
        }}"""
    )
    for index, name in enumerate("WV"):
        tensor = model.graph.initializer.add(name=name, dims=[side, side], data_type=TensorProto.FLOAT)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "w.bin"), ("offset", str(index * 2**36)), ("length", str(2**36))):
            tensor.external_data.add(key=key, value=value)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    return tmp_path / "m.onnx"


def test_external_weights_are_not_loaded_and_referred_to_again(external: Path) -> None:
    graph = read_model(external)
    assert graph.constants == {"W": None}
    assert graph.initial == {"V": None}
    assert graph.tensors["W"].size_bytes == 2**36
    write_model(graph, external.parent / "again.onnx")
    again = onnx.load(external.parent / "again.onnx", load_external_data=False)
    assert {
        tensor.name: {entry.key: entry.value for entry in tensor.external_data} for tensor in again.graph.initializer
    } == {
        "W": {"location": "w.bin", "offset": "0", "length": str(2**36)},
        "V": {"location": "w.bin", "offset": str(2**36), "length": str(2**36)},
    }
    back = read_model(external.parent / "again.onnx")
    assert (back.constants, back.initial, back.ops, back.notes) == (
        graph.constants,
        graph.initial,
        graph.ops,
        graph.notes,
    )


def test_without_a_reference_they_are_declared_as_inputs(external: Path) -> None:
    graph = replace(read_model(external), notes={})
    model = to_model(graph)
    assert [value.name for value in model.graph.input] == ["x", "V", "W"]
    assert not model.graph.initializer
    assert json.loads({entry.key: entry.value for entry in model.metadata_props}["tofu.unloaded"]) == ["W"]
    onnx.checker.check_model(model, full_check=True)
    back = graph_from_proto(model)
    assert back.inputs == ("x", "V")
    assert (back.constants, back.initial) == (graph.constants, graph.initial)


def test_values_beyond_protobuf_are_refused(read: Read) -> None:
    graph = read("g (float[4] x) => (float[4] y) { y = Relu(x) }")
    big = Tensor("big", (2**16, 2**16), DType.FLOAT32)
    op = Op("mm", "Identity", ("big",), ("z",))
    graph = replace(
        graph,
        tensors={**graph.tensors, "big": big, "z": replace(big, name="z")},
        ops=(*graph.ops, op),
        constants={"big": np.broadcast_to(np.float32(0), big.shape)},
    )
    check_graph(graph)
    with pytest.raises(ModelError, match=f"carries {2**34} bytes of values, more than the 2 GiB"):
        to_model(graph)


def test_a_file_is_whole_or_not_there(read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = read("g (float[4] x) => (float[4] y) { y = Relu(x) }")
    target = tmp_path / "m.onnx"
    write_model(graph, target)
    first = target.read_bytes()
    write_model(graph, target)
    assert target.read_bytes() == first
    with pytest.raises(UsageError, match="cannot be written: No such file or directory"):
        write_model(graph, tmp_path / "none" / "m.onnx")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UsageError, match="cannot be written: No space left on device"):
        write_model(graph, target)
    assert target.read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_older_and_newer_opsets_are_converted(read: Read) -> None:
    old = read("g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Softmax <axis = 1> (x) }", opset=9, ir=4)
    assert old.opset == 21
    assert [op.op_type for op in old.ops] == ["Flatten", "Softmax", "Reshape"]
    new = read("g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }", opset=28, ir=14)
    assert new.opset == 26
    assert to_model(new).ir_version <= 13
    assert read("g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }", opset=23).opset == 23


def test_before_ir_version_4_initializers_are_no_inputs(read: Read) -> None:
    text = "g (float[2] x, float[2] W = {1.0, 2.0}) => (float[2] y) { y = Add(x, W) }"
    assert read(text, ir=3, opset=13).inputs == ("x",)
    assert read(text, ir=3, opset=13).constants.keys() == {"W"}
    assert read(text, ir=4, opset=13).inputs == ("x", "W")


def test_op_names_are_unique_and_stable(read: Read) -> None:
    graph = read(
        """g (float[2] x) => (float[2] y) {
            [a] s = Relu(x)
            [a] t = Abs(s)
            u = Exp(t)
            [a] y = Neg(u)
        }"""
    )
    assert [op.name for op in graph.ops] == ["a", "a.t", "Exp.u", "a.y"]
