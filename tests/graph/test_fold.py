"""What is folded, what is not, and what is said of shapes that stay unknown."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from planner.errors import ModelError, UnsupportedError, UsageError
from planner.graph.core.model import DType, Graph, Tensor
from planner.graph.reading.from_onnx import graph_from_proto

Read = Callable[..., Graph]
Parse = Callable[..., onnx.ModelProto]


def kinds(graph: Graph) -> list[str]:
    return [op.op_type for op in graph.ops]


def test_shape_arithmetic_disappears(read: Read) -> None:
    graph = read(
        """g (float[6, 4] x) => (float[a, b] y) <int64[1] zero = {0}, int64[1] two = {2}> {
            s = Shape(x)
            rows = Gather(s, zero)
            half = Div(rows, two)
            rest = Constant <value_ints = [-1]> ()
            shape = Concat <axis = 0> (half, rest)
            y = Reshape(x, shape)
        }"""
    )
    assert kinds(graph) == ["Reshape"]
    assert graph.tensors["y"] == Tensor("y", (3, 8), DType.FLOAT32)
    assert graph.folded == {"shape"}
    np.testing.assert_array_equal(graph.constants["shape"], [3, -1])  # type: ignore[arg-type]
    assert graph.constants.keys() == {"shape"}


def test_weights_are_not_folded_through(read: Read) -> None:
    graph = read(
        """g (float[2, 2] x) => (float[2, 2] y) <float[2, 2] W = {1.0, 2.0, 3.0, 4.0}> {
            t = Transpose(W)
            y = MatMul(x, t)
        }"""
    )
    assert kinds(graph) == ["Transpose", "MatMul"]
    assert graph.folded == frozenset()


def test_a_scalar_weight_takes_part_in_known_arithmetic_but_stands_alone_otherwise(read: Read) -> None:
    graph = read(
        """g (float[2] x) => (float[2] y, float[2] z) <float s = {4.0}> {
            two = Constant <value_float = 2.0> ()
            m = Mul(s, two)
            y = Mul(x, m)
            e = Exp(s)
            z = Mul(x, e)
        }"""
    )
    assert kinds(graph) == ["Mul", "Exp", "Mul"]
    assert graph.folded == {"m"}


def test_a_float_fill_is_a_folded_constant_of_any_size(read: Read) -> None:
    graph = read(
        """g (float[2048, 2048] x) => (float[2048, 2048] y) {
            s = Shape(x)
            zero = Constant <value_float = 0.0> ()
            fill = Expand(zero, s)
            y = Add(x, fill)
        }"""
    )
    fill = graph.constants["fill"]
    assert graph.folded == {"fill"}
    assert fill is not None
    assert fill.shape == (2048, 2048)
    assert fill.strides == (0, 0)
    assert not fill.flags.writeable


def test_large_results_stay_ops(read: Read) -> None:
    graph = read(
        """g (int64[2000000] x) => (int64[2000000] y) {
            a = Constant <value_int = 0> ()
            b = Constant <value_int = 2000000> ()
            c = Constant <value_int = 1> ()
            r = Range(a, b, c)
            y = Add(x, r)
        }"""
    )
    assert kinds(graph) == ["Range", "Add"]
    assert graph.tensors["r"].shape == (2000000,)


def test_random_numbers_are_not_folded(read: Read) -> None:
    graph = read("g (float[2] x) => (float[2] y) { r = RandomNormal <shape = [2]> ()  y = Add(x, r) }")
    assert kinds(graph) == ["RandomNormal", "Add"]


def test_cast_like_looks_at_a_dtype_only(read: Read) -> None:
    graph = read(
        """g (float[2] x, int64[2] i) => (float[2] y, float[2] z) {
            one = Constant <value_int = 1> ()
            f = CastLike(one, x)
            y = Add(x, f)
            g = CastLike(i, x)
            h = CastLike(g, x)
            z = Add(x, h)
        }"""
    )
    assert kinds(graph) == ["Add", "Cast", "Add"]
    assert graph.ops[1].attribute("to") == onnx.TensorProto.FLOAT
    assert graph.ops[2].inputs == ("x", "g")
    assert graph.constants["f"] == np.float32(1)


def test_identities_go_but_outputs_keep_their_names(read: Read) -> None:
    graph = read(
        """g (float[2] x) => (float[2] y, float[2] c, float[2] x2) <float[2] W = {1.0, 2.0}> {
            a = Identity(x)
            b = Identity(a)
            w = Identity(W)
            s = Add(b, w)
            y = Identity(s)
            c = Constant <value = float[2] {5.0, 6.0}> ()
            x2 = Identity(b)
        }"""
    )
    assert [(op.op_type, op.inputs, op.outputs) for op in graph.ops] == [
        ("Add", ("x", "W"), ("s",)),
        ("Identity", ("s",), ("y",)),
        ("Identity", ("x",), ("x2",)),
        ("Identity", ("c.value",), ("c",)),
    ]
    assert not graph.folded


def test_a_constant_output_that_ops_read_is_made_after_them(read: Read) -> None:
    graph = read(
        """g (float[2] x) => (float[2] y, float[2] W) <float[2] W = {1.0, 2.0}> { y = Add(x, W) }""",
    )
    assert [op.inputs for op in graph.ops] == [("x", "W.value"), ("W.value",)]
    assert graph.outputs == ("y", "W")
    assert graph.folded == frozenset()


def test_dead_ops_go_with_what_they_cannot_tell(read: Read) -> None:
    graph = read(
        """g (float[4] x) => (float[4] y) <float[4] unused = {1.0, 2.0, 3.0, 4.0}> {
            n = NonZero(x)
            m = Mystery(n)
            y = Relu(x)
        }"""
    )
    assert kinds(graph) == ["Relu"]
    assert graph.constants == {}
    assert graph.tensors.keys() == {"x", "y"}


def test_what_the_file_says_of_tensors_must_be_what_they_are(read: Read) -> None:
    with pytest.raises(ModelError, match="states other tensors than its ops make") as raised:
        read("g (float[4, 3] x) => (float[9, 9] y) <float[7] t, int64[4, 3] u> { t = Relu(x) u = Abs(t) y = Relu(u) }")
    assert raised.value.facts == (
        "'u': stated int64 [4, 3], made float32 [4, 3]",
        "'y': stated float32 [9, 9], made float32 [4, 3]",
    )


@pytest.mark.parametrize("shape", ["1, 3", "7", "4, 3, 1"])
def test_shapes_of_inner_tensors_that_were_left_behind_do_not_matter(read: Read, shape: str) -> None:
    graph = read(f"g (float[4, 3] x) => (float[4, 3] y) <float[{shape}] t> {{ t = Relu(x)  y = Relu(t) }}")
    assert graph.tensors["t"].shape == (4, 3)


def test_sizes_that_are_given_go_before_what_the_file_says(parse: Parse) -> None:
    model = parse("g (float[n, 3] x) => (float[1, 3] y) <float[1, 3] t> { t = Relu(x)  y = Relu(t) }")
    graph = graph_from_proto(model, dims={"n": 4})
    assert graph.tensors["t"].shape == graph.tensors["y"].shape == (4, 3)


def test_an_operator_that_onnx_cannot_infer(read: Read) -> None:
    graph = read("g (float[2, 3, 4, 4] x) => (float[a, b, c, d] y) { y = MeanVarianceNormalization(x) }")
    assert graph.tensors["y"].shape == (2, 3, 4, 4)


def test_symbolic_dims_are_bound_by_name(parse: Parse) -> None:
    model = parse("g (float[batch, time, 4] x) => (float[batch, time, 4] y) { y = Relu(x) }")
    graph = graph_from_proto(model, dims={"batch": 3, "time": 5})
    assert graph.tensors["y"].shape == (3, 5, 4)
    with pytest.raises(ModelError) as raised:
        graph_from_proto(model, dims={"batch": 3})
    assert str(raised.value) == (
        "1 input has no static shape\n  input 'x': [3, time, 4]\nhint: give sizes to the symbolic dims: --dim time=N"
    )
    with pytest.raises(UsageError) as misspelt:
        graph_from_proto(model, dims={"bacth": 3})
    assert str(misspelt.value) == (
        "the model has no symbolic dim named 'bacth'\n  its symbolic dims: batch, time\nhint: did you mean 'batch'?"
    )
    with pytest.raises(UsageError, match="no symbolic dim named 'N'") as unlike:
        graph_from_proto(model, dims={"N": 3})
    assert unlike.value.hint == "--dim batch=N --dim time=N"
    with pytest.raises(UsageError, match="a dim must be at least 1: batch=0"):
        graph_from_proto(model, dims={"batch": 0})


def test_a_dim_without_a_name_is_bound_by_position(parse: Parse) -> None:
    model = parse("g (float[?, 4] x) => (float[?, 4] y) { y = Relu(x) }")
    with pytest.raises(ModelError, match=r"--dim 'x\[0\]=N'"):
        graph_from_proto(model)
    assert graph_from_proto(model, dims={"x[0]": 2}).tensors["y"].shape == (2, 4)


def test_a_size_of_minus_one_is_an_unknown_one(parse: Parse) -> None:
    """Older exporters write it so, and ONNX Runtime reads it so."""
    model = parse("g (float[?, 4] x) => (float[?, 4] y) { y = Relu(x) }")
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = -1
    with pytest.raises(ModelError, match=r"--dim 'x\[0\]=N'"):
        graph_from_proto(model)
    assert graph_from_proto(model, dims={"x[0]": 2}).tensors["y"].shape == (2, 4)


def test_tensors_without_a_static_shape_are_listed(read: Read) -> None:
    chain = " ".join(f"t{i + 1} = Relu(t{i})" for i in range(30))
    with pytest.raises(ModelError) as raised:
        read(f"g (float[4] x) => (float[n] t30) {{ i = NonZero(x)  t0 = GatherND(x, j)  {chain} }}".replace(
            "t0 =", "j = Transpose(i) t0 ="))  # fmt: skip
    error = raised.value
    assert error.what == "33 tensors have no static shape"
    assert error.facts[0] == "'i': depends on data that is known only at run time (NonZero 'NonZero.i')"
    assert error.facts[1] == "'j': computed from such a tensor"
    assert error.shown_facts[-1] == "… and 13 more"
    assert len(error.shown_facts) == 21
    assert type(error) is ModelError


def test_unknown_operators_are_listed_at_once(read: Read) -> None:
    with pytest.raises(UnsupportedError) as raised:
        read("g (float[4] x) => (float[4] y) { a = Foo(x)  b = local.Bar(x)  c = Relu(a)  y = Add(b, c) }")
    assert raised.value.facts == (
        "op 'Foo.a': no operator Foo at opset 21",
        "op 'Bar.b': no operator Bar of domain 'local'",
    )


def test_contradictions_are_listed_at_once(read: Read) -> None:
    with pytest.raises(ModelError) as raised:
        read(
            """g (float[4, 16] x, float[3, 3] m) => (float[60] a, float[4, 3] b) <int64[1] s = {60}> {
                a = Reshape(x, s)
                b = MatMul(x, m)
            }"""
        )
    assert raised.value.what == "ops of the model contradict what they read"
    assert (
        raised.value.facts[0] == "op 'Reshape.a' (Reshape): cannot reshape [4, 16] (64 elements) to [60] (60 elements)"
    )
    assert raised.value.facts[1].startswith("op 'MatMul.b' (MatMul):")
    assert "dimension" in raised.value.facts[1]
