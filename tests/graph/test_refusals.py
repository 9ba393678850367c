"""Bad files and bad graphs: one clear error each, quickly, whatever the stock checker says of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from fast_suite import examples
from planner import opdefs
from planner.errors import ModelError, TofuError, UnsupportedError
from planner.graph.core.model import Graph
from planner.graph.reading.from_onnx import graph_from_proto, read_model
from planner.graph.reading.inline import MAX_OPS

Read = Callable[..., Graph]
Parse = Callable[..., onnx.ModelProto]

RELU = "g (float[4] x) => (float[4] y) { y = Relu(x) }"


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as raised:
        read_model(path)
    assert raised.value.exit_code == 2
    return str(raised.value)


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    hint = f"hint: see which files are there: ls {tmp_path}"
    assert refusal(tmp_path / "none.onnx") == f"{tmp_path}/none.onnx: no such file\n{hint}"
    assert refusal(tmp_path) == f"{tmp_path}: is a directory, not an ONNX file"
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe") == f"{tmp_path}/pipe: is not a regular file"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04 a zip file", "is not an ONNX model, or is truncated"),
        (b"just some text, with no protobuf in it", "is not an ONNX model, or is truncated"),
        (b"\x98\x06\x01", "is not an ONNX model (no IR version"),
        (b"\x08\x0a", "has no graph; the file may be truncated"),
    ],
)
def test_bytes_that_are_no_model(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "m.onnx").write_bytes(data)
    assert said in refusal(tmp_path / "m.onnx")


def test_every_truncation_is_refused(tmp_path: Path, parse: Parse) -> None:
    data = parse(RELU).SerializeToString()
    assert len(data) > 11
    for end in range(len(data)):
        (tmp_path / "m.onnx").write_bytes(data[:end])
        if end == len(data) - 11:  # what is cut off is the second operator set, which the graph does not use
            continue
        assert str(tmp_path) in refusal(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("g (float[4] x) => (float[4] y) { y = Relu(z) }", "the Relu that makes 'y' reads 'z', which nothing makes"),
        (
            "g (float[4] x) => (float[4] y) { y = Relu(z) z = Relu(x) }",
            "the Relu that makes 'y' reads 'z' before it is made (ONNX wants execution order)",
        ),
        ("g (float[4] x) => (float[4] y) { y = Relu(x) y = Abs(x) }", "makes 'y', which is defined already"),
        ("g (float[4] x) => (float[4] x) { x = Relu(x) }", "makes 'x', which is defined already"),
        ("g (float[4] x, float[4] x) => (float[4] y) { y = Relu(x) }", "two inputs are named 'x'"),
        ("g (float[4] x) => (float[4] y, float[4] y) { y = Relu(x) }", "two outputs are named 'y'"),
        ("g (float[4] x) => (float[4] z) { y = Relu(x) }", "nothing makes output 'z'"),
        ("g (float[4] x) => () { y = Relu(x) }", "the graph has no output"),
    ],
)
def test_names(parse: Parse, text: str, said: str) -> None:
    with pytest.raises(ModelError) as raised:
        graph_from_proto(parse(text))
    assert raised.value.what == "the graph is not well-formed"
    assert any(said in fact for fact in raised.value.facts), raised.value.facts


def edited(model: onnx.ModelProto, edit: Callable[[onnx.ModelProto], object]) -> onnx.ModelProto:
    edit(model)
    return model


def _size(model: onnx.ModelProto, size: int) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = size


def _initializers(model: onnx.ModelProto, *tensors: TensorProto) -> None:
    model.graph.initializer.extend(tensors)


def _short(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(TensorProto(name="W", dims=[4], data_type=1, raw_data=b"\0" * 12))


def _unfilled(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(TensorProto(name="W", dims=[2**20, 2**20], data_type=1, float_data=[1.0]))


def _float4(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT4E2M1


def _outside(model: onnx.ModelProto) -> None:
    tensor = TensorProto(name="W", dims=[4], data_type=1, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="../../etc/passwd")
    model.graph.initializer.append(tensor)


ONE = helper.make_tensor("W", TensorProto.FLOAT, [4], [1.0, 2.0, 3.0, 4.0])


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda model: _size(model, -2), "input 'x' has a negative size (-2)"),
        (lambda model: _size(model, 2**50), "input 'x' has 1125899906842624 elements, more than 2**48"),
        (
            lambda model: model.opset_import.add(domain="ai.onnx", version=20),
            "the default one twice (versions 21 and 20)",
        ),
        (lambda model: model.opset_import.pop(0), "imports no version of ONNX's default operator domain"),
        (lambda model: _initializers(model, ONE, ONE), "two initializers named 'W'"),
        (lambda model: _initializers(model, TensorProto(data_type=1)), "an initializer without a name"),
        (
            lambda model: _initializers(model, TensorProto(name="W", dims=[-1], data_type=1)),
            "initializer 'W' has a negative size (-1)",
        ),
        (_short, "initializer 'W' has 12 bytes of data; its shape [4] of float32 needs 16"),
        (_outside, "initializer 'W' has its data at '../../etc/passwd', which is not inside the model's folder"),
        (_unfilled, "initializer 'W' has data that does not fill its shape [1048576, 1048576] of float32"),
        (
            lambda model: setattr(model, "ir_version", 15),
            "the model is of IR version 15; the newest that can be read is 14",
        ),
        (lambda model: model.graph.ClearField("node"), "the graph has no nodes"),
        (lambda model: model.opset_import.add(domain="x", version=-1), "version -1 of operator domain 'x' is imported"),
        (
            lambda model: setattr(model.opset_import[0], "version", 2**40),
            f"version {2**40} of operator domain 'ai.onnx'",
        ),
        (lambda model: setattr(model.opset_import[0], "version", 99), "cannot be converted to 26"),
        (lambda model: setattr(model.opset_import[0], "version", 5), "the oldest that can be converted is 7"),
    ],
)
def test_values_that_cannot_be(parse: Parse, edit: Callable[[onnx.ModelProto], object], said: str) -> None:
    with pytest.raises(ModelError) as raised:
        graph_from_proto(edited(parse(RELU), edit))
    assert said in str(raised.value)


def test_dtypes_that_no_plan_holds(parse: Parse) -> None:
    with pytest.raises(UnsupportedError) as raised:
        graph_from_proto(edited(parse(RELU), _float4))
    assert raised.value.facts == ("input 'x' is of FLOAT4E2M1",)


def test_dictionaries_of_probabilities_come_of_an_option_of_the_exporter(parse: Parse) -> None:
    """As skl2onnx writes a classifier, unless it is told otherwise."""
    model = parse("g (float[4, 2] x) => (seq(float[2]) p) { p = ai.onnx.ml.ZipMap <classlabels_int64s = [0, 1]> (x) }")
    with pytest.raises(UnsupportedError) as raised:
        graph_from_proto(model)
    assert "output 'p': a sequence" in raised.value.facts
    assert "options={'zipmap': False}" in raised.value.hint


def test_forms_that_cannot_be_planned_are_listed_at_once(parse: Parse) -> None:
    model = parse(
        """g (float[4] x, bool c, seq(float[4]) s) => (float[4] y, float[4] z) {
            [branch] y = If (c) <then_branch = t () => (float[4] a) { a = Relu(x) },
                        else_branch = e () => (float[4] b) { b = Abs(x) }>
            i = Constant <value_int = 0> ()
            z = SequenceAt(s, i)
        }"""
    )
    model.training_info.add()
    model.graph.sparse_initializer.add().values.name = "S"
    model.graph.initializer.append(helper.make_tensor("T", TensorProto.STRING, [1], [b"a"]))
    with pytest.raises(UnsupportedError) as raised:
        graph_from_proto(model)
    assert raised.value.what == "the model uses forms of ONNX that cannot be planned"
    assert set(raised.value.facts) == {
        "op 'branch' (If): control flow (a subgraph as attribute)",
        "the SequenceAt that makes 'z': sequences, optionals and strings",
        "initializer 'S': a sparse tensor",
        "initializer 'T': strings",
        "input 's': a sequence",
        "the model carries training information (TrainingInfoProto)",
    }


def nested(depth: int) -> str:
    functions = [
        f'<domain: "local", opset_import: ["" : 21, "local" : 1]> f{level} (x) => (y) '
        f"{{ a = local.f{level + 1}(x)  y = local.f{level + 1}(a) }}"
        for level in range(depth)
    ]
    last = f'<domain: "local", opset_import: ["" : 21]> f{depth} (x) => (y) {{ y = Relu(x) }}'
    return "\n".join(["g (float[4] x) => (float[4] y) { y = local.f0(x) }", *functions, last])


def test_functions_that_double_are_refused_before_they_are_expanded(read: Read) -> None:
    """Expanded, they would fill any memory."""
    with pytest.raises(ModelError) as raised:
        read(nested(40))
    assert f"{2**40} ops" in raised.value.what
    assert f"at most {MAX_OPS} ops" in raised.value.what


def test_functions_are_inlined(read: Read) -> None:
    graph = read(nested(5))
    assert [op.op_type for op in graph.ops] == ["Relu"] * 32
    assert len({op.name for op in graph.ops}) == 32


@pytest.mark.parametrize("last", ["f0", "f1", "f2"])
def test_recursion_is_refused(read: Read, last: str) -> None:
    functions = "\n".join(
        f'<domain: "local", opset_import: ["" : 21, "local" : 1]> {name} (x) => (y) {{ y = local.{callee}(x) }}'
        for name, callee in (("f0", "f1"), ("f1", "f2"), ("f2", last))
    )
    with pytest.raises(ModelError, match=r"local function 'local\.f\d' calls itself, directly or through others"):
        read(f"g (float[4] x) => (float[4] y) {{ y = local.f0(x) }}\n{functions}")


def test_control_flow_inside_a_function_is_found(read: Read) -> None:
    function = """<domain: "local", opset_import: ["" : 21]> f (x, c) => (y) {
        y = If (c) <then_branch = t () => (a) { a = Relu(x) }, else_branch = e () => (b) { b = Abs(x) }>
    }"""
    with pytest.raises(UnsupportedError, match="If"):
        read(f"g (float[4] x, bool c) => (float[4] y) {{ y = local.f(x, c) }}\n{function}")


def test_a_default_of_another_shape(parse: Parse) -> None:
    model = parse("g (float[4] x, float[3] W) => (float[4] y) { y = Relu(x) }")
    model.graph.initializer.append(ONE)
    with pytest.raises(ModelError, match="the default value of input 'W'"):
        graph_from_proto(model)


def test_what_is_empty_is_known(read: Read) -> None:
    graph = read("g (float[4] x, float[0] e) => (float[4] y, float[0] n) { y = Concat <axis = 0> (x, e) n = Relu (e) }")
    join, hand_on = graph.ops
    assert (join.op_type, hand_on.op_type) == ("Concat", "Identity")
    for name in (join.inputs[1], hand_on.inputs[0]):
        constant = graph.constants[name]
        assert constant is not None
        assert constant.shape == (0,)
    assert not graph.consumers["e"]


def test_a_split_loses_its_empty_outputs(read: Read) -> None:
    graph = read(
        "g (float[4] x) => (float[3] a, float[1] b, float[0] n) <int64[3] s = {3, 0, 1}>"
        " { a, n, b = Split <axis = 0> (x, s) }"
    )
    split = next(op for op in graph.ops if op.op_type == "Split")
    assert split.outputs == ("a", "b")
    sizes = graph.constants[split.inputs[1]]
    assert sizes is not None
    assert sizes.tolist() == [3, 1]


def test_an_op_that_makes_elements_of_none(read: Read) -> None:
    graph = read(
        "g (float[2, 0] x, float[0, 3] W, float[3] b) => (float[2, 3] y) { y = Gemm (x, W, b) }", state_pairs=()
    )
    with pytest.raises(UnsupportedError, match="makes elements of none") as raised:
        opdefs.standard().bind_all(graph)
    assert raised.value.facts == ("'x.empty': [2, 0]", "'W.empty': [0, 3]")


def test_a_constant_may_be_empty(read: Read) -> None:
    graph = read(
        "g (float[1, 1, 2, 2] x) => (float[1, 1, 4, 4] y) <float[0] roi = {}, float[4] s = {1.0, 1.0, 2.0, 2.0}>"
        " { y = Resize (x, roi, s) }"
    )
    assert graph.tensors["roi"].elements == 0


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("tofu.state", "not json", "metadata tofu.state is not JSON"),
        ("tofu.state", '["x", "y"]', "metadata tofu.state is not a list of pairs of tensor names"),
        ("tofu.state", '[["x", "q"]]', "'q' is not an output of the model"),
        ("tofu.state", '[["x", "z"]]', "'x' is [4] of float32, but 'z' is [2, 2] of float32"),
        ("tofu.folded", '{"a": 1}', "metadata tofu.folded is not a list of tensor names"),
    ],
)
def test_metadata_of_our_own_is_checked(parse: Parse, key: str, value: str, said: str) -> None:
    model = parse(
        "g (float[4] x) => (float[4] y, float[2, 2] z) <int64[2] s = {2, 2}> { y = Relu(x) z = Reshape(x, s) }"
    )
    model.metadata_props.add(key=key, value=value)
    with pytest.raises(ModelError) as raised:
        graph_from_proto(model)
    assert said in str(raised.value)
    assert raised.value.exit_code == 2


SMALL = onnx.parser.parse_model(
    """<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
    g (float[2, 4] x, float[4] b = {1.0, 2.0, 3.0, 4.0}) => (float[2, 4] y)
    <float[4, 4] w = {1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0}> {
        h = local.dense <alpha = 2.0> (x, w, b)
        s = Shape(h)
        r = Reshape(h, s)
        y = Softmax <axis = -1> (r)
    }
    <domain: "local", opset_import: ["" : 21]> dense <alpha> (x, w, b) => (y) {
        h = MatMul(x, w)
        a = Constant <value_float: float = @alpha> ()
        m = Mul(h, a)
        y = Add(m, b)
    }"""
).SerializeToString()


@examples(200)
@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_files_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, damage: list[tuple[int, int]]
) -> None:
    data = np.frombuffer(SMALL, np.uint8).copy()
    for position, value in damage:
        data[position] = value
    path = tmp_path_factory.getbasetemp() / "damaged.onnx"
    path.write_bytes(data.tobytes())
    with contextlib.suppress(TofuError):
        assert isinstance(read_model(path), Graph)
