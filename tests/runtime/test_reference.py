"""The float64 twin: every op of our own against the stock runtime, and whole graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import reference_sweep
from planner.errors import ModelError
from planner.features.ops.cases.case import Case, Known, execute_case, ints, make
from planner.features.ops.cases.examples import all_cases
from planner.graph.core.model import DType, Graph, Op, Tensor, TensorAttribute, dtype_of_array
from planner.graph.reading.from_onnx import graph_from_proto, read_model
from planner.runtime.judge.compare import errors
from planner.runtime.judge.kernel_arguments import OtherFormError
from planner.runtime.judge.reference import NoReferenceError, Reference, work_elements
from planner.runtime.judge.whole import WholeModel
from planner.runtime.judge.windows import windows
from planner.runtime.values.state import starting_values

MODELS = Path(__file__).parents[1] / "models"
KINDS = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}
F = np.float32


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(F)


CASES: list[tuple[str, list[np.ndarray], dict[str, Any]]] = [
    ("Erf", [draw(4, 5)], {}),
    ("Erf", [np.array(0.5, F)], {}),
    ("Gelu", [draw(4, 5)], {}),
    ("Gelu", [draw(4, 5)], {"approximate": "tanh"}),
    ("LayerNormalization", [draw(3, 4, 5), draw(5), draw(5)], {}),
    ("LayerNormalization", [draw(3, 4, 5), draw(4, 5)], {"axis": 1, "epsilon": 0.1}),
    ("BatchNormalization", [draw(4, 3, 5), draw(3), draw(3), draw(3), draw(3) ** 2], {"epsilon": 0.01}),
    ("Gemm", [draw(3, 4), draw(4, 5), draw(5)], {"alpha": 0.5, "beta": 2.0}),
    ("Gemm", [draw(4, 3), draw(5, 4)], {"transA": 1, "transB": 1}),
    ("MatMul", [draw(2, 3, 4), draw(4, 5)], {}),
    ("GatherElements", [draw(3, 4), np.array([[0, -1], [3, 2]])], {"axis": 1}),
    ("GatherND", [draw(2, 3, 4), np.array([[0, -1], [1, 2]])], {}),
    ("GatherND", [draw(2, 3, 4), np.array([[2], [0]])], {"batch_dims": 1}),
    ("ScatterElements", [draw(3, 4), np.array([[0, -1], [3, 2]]), draw(2, 2)], {"axis": 1}),
    ("ScatterElements", [draw(3, 4), np.array([[0, 0], [-3, 2]]), draw(2, 2)], {"reduction": "add"}),
    ("ScatterND", [draw(3, 4), np.array([[[0], [2]]]), draw(1, 2, 4)], {}),
    ("ScatterND", [draw(3, 4), np.array([[0], [0], [2]]), draw(3, 4)], {"reduction": "add"}),
    ("ScatterND", [draw(3, 4), np.array([[0, 1], [0, 1]]), draw(2)], {"reduction": "max"}),
    ("Sigmoid", [100 * draw(4, 5)], {}),
    ("Softplus", [100 * draw(4, 5)], {}),
    ("LogSoftmax", [100 * draw(4, 5)], {}),
    ("LogSoftmax", [draw(4, 5, 2)], {"axis": 0}),
]


@pytest.mark.parametrize(("op_type", "arrays", "attributes"), CASES)
def test_against_the_stock_runtime(op_type: str, arrays: list[np.ndarray], attributes: dict[str, Any]) -> None:
    names = [f"i{position}" for position in range(len(arrays))]
    node = helper.make_node(op_type, names, ["o"], name="node", **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(name, KINDS[array.dtype.name], array.shape)
            for name, array in zip(names, arrays, strict=True)
        ],
        [helper.make_tensor_value_info("o", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (stock,) = session.run(None, dict(zip(names, arrays, strict=True)))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("o", TensorProto.FLOAT, stock.shape))
    reference = Reference(graph_from_proto(model, state_pairs=[]))
    ours = reference.step(dict(zip(names, arrays, strict=True)))["o"]
    assert reference.own_precision == ()
    assert ours.dtype == np.float64
    assert ours.shape == stock.shape
    np.testing.assert_allclose(ours, stock, rtol=2e-5, atol=1e-5)


def test_batch_statistics_against_the_evaluator() -> None:
    arrays = [array.astype(np.float64) for array in (draw(4, 3, 5), draw(3), draw(3), draw(3), draw(3) ** 2)]
    node = helper.make_node("BatchNormalization", list("xsbmv"), list("yNV"), training_mode=1, momentum=0.7, name="bn")
    feeds = dict(zip("xsbmv", arrays, strict=True))
    theirs = ReferenceEvaluator(node, opsets={"": 15}).run(None, feeds)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in feeds.items()]
    results = [helper.make_empty_tensor_value_info(name) for name in "yNV"]
    graph = helper.make_graph([node], "bn", values, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    ours = Reference(graph_from_proto(model, state_pairs=[])).step(feeds)
    assert len(theirs) == len(ours) == 3
    for name, wanted in zip("yNV", theirs, strict=True):
        np.testing.assert_allclose(ours[name], wanted, rtol=1e-6)


@pytest.mark.parametrize("name", ["mlp_grads_core", "cnn_bn_grads_core", "bert_step", "resnet50"])
def test_real_models(name: str) -> None:
    path = MODELS / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"tests/models/{name}.onnx is missing")
    graph = read_model(path)
    oracle = MODELS / "bert_oracle.npz"
    values = starting_values(graph, oracle if name == "bert_step" else None)
    exact = Reference(graph).step(values)
    whole = WholeModel(graph).step(values)
    assert list(exact) == list(whole) == list(graph.outputs)
    for tensor, array in whole.items():
        if graph.tensors[tensor].dtype.is_float:
            assert exact[tensor].dtype == np.float64
            # Next values of biases that have no gradient are noise around a zero.
            is_noise = np.abs(exact[tensor]).max() < 1e-15
            assert is_noise or errors(array, exact[tensor])[0] < 1e-4, tensor
            assert not is_noise or np.abs(array).max() < 1e-7, tensor


WRONG = [
    make("GlobalMaxPool", (2, 3, 7)),
    make("GlobalLpPool", (2, 3, 5, 4), p=1),
    make("LRN", (2, 7, 4, 3), size=3, alpha=0.5, beta=0.6, bias=1.5),
    make("LpNormalization", (4, 5, 6), axis=1, p=1),
    make("LpPool", (2, 4, 11), kernel_shape=(3,), strides=(3,), ceil_mode=1),
    make("AveragePool", (2, 4, 9, 7), kernel_shape=(3, 3), strides=(3, 3), ceil_mode=1),
    make("MaxPool", (1, 2, 7, 6), kernel_shape=(2, 2), strides=(1, 2), auto_pad="SAME_LOWER"),
    make("ConvTranspose", (2, 6, 3, 3), (6, 1, 2, 2), (6,), group=6),
    make("Mean", (5, 1, 7), (3, 1), (1,)),
    make("Pad", (6, 4), ints(-1, 2, -2, 0)),
    make("Resize", (1, 2, 9), None, Known(np.array([1, 1, 0.5], F)), coordinate_transformation_mode="align_corners"),
    make(
        "GRU", (5, 3, 2), (1, 12, 2), (1, 12, 4), None, Known(np.array([5, 2, 3], np.int32)), hidden_size=4, outputs=2
    ),
    make("LSTM", (5, 3, 2), (1, 16, 2), (1, 16, 4), hidden_size=4, clip=0.7, outputs=3),
    make("RNN", (5, 3, 2), (1, 4, 2), (1, 4, 4), hidden_size=4, activations=("Relu",), outputs=2),
]


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.op_type)
def test_where_the_evaluator_is_wrong_there_is_a_reference_of_our_own(case: Case) -> None:
    graph, arrays, stock = execute_case(case)
    assert reference_sweep.by_evaluator(graph, arrays, stock), "it is right by now"
    ours = Reference(graph).step(arrays)
    assert list(ours) == list(stock)
    for name, array in stock.items():
        assert ours[name].dtype == np.float64
        assert ours[name].shape == array.shape
        assert errors(array, ours[name])[0] < 1e-6


@pytest.mark.slow
def test_every_operator_in_float64() -> None:
    found = reference_sweep.sweep((*all_cases(), *reference_sweep.variants()))
    assert not found.wrong
    assert sum(found.looked_at.values()) > 2000
    assert len(found.looked_at) > 150


def test_what_nobody_computes_in_float64_the_runtime_computes() -> None:
    """The rest of the graph is exact all the same."""
    scale = np.full((1, 1, 1, 1), 1 / 3, F)
    graph = Graph(
        "g",
        {
            "x": Tensor("x", (2, 3, 6, 6), DType.FLOAT32),
            "boxes": Tensor("boxes", (2, 5), DType.FLOAT32),
            "scale": Tensor("scale", (1, 1, 1, 1), DType.FLOAT32),
            "p": Tensor("p", (2, 3, 2, 2), DType.FLOAT32),
            "y": Tensor("y", (2, 3, 2, 2), DType.FLOAT32),
        },
        (
            Op("pool", "MaxRoiPool", ("x", "boxes"), ("p",), (("pooled_shape", (2, 2)),)),
            Op("third", "Mul", ("p", "scale"), ("y",)),
        ),
        ("x", "boxes"),
        ("p", "y"),
        {"scale": scale},
    )
    reference = Reference(graph)
    values = {"x": draw(2, 3, 6, 6), "boxes": np.array([[0, 0, 0, 3, 4], [1, 1, 2, 5, 5]], F)}
    made = reference.step(values)
    np.testing.assert_array_equal(made["p"], WholeModel(graph).step(values)["p"])
    np.testing.assert_array_equal(made["y"], made["p"] * np.float64(F(1 / 3)))
    assert reference.own_precision == ("MaxRoiPool",)


def graph_of(*ops: Op, constants: dict[str, np.ndarray | None] | None = None, **shapes: tuple[int, ...]) -> Graph:
    """Float32 tensors; x is the input, the last op's outputs are the graph's."""
    tensors = {name: Tensor(name, shape, DType.FLOAT32) for name, shape in shapes.items()}
    for name, value in (constants or {}).items():
        if value is not None:
            tensors[name] = Tensor(name, value.shape, dtype_of_array(value))
    return Graph("g", tensors, ops, ("x",), ops[-1].outputs, constants or {})


def test_casts_fills_and_constants_are_widened() -> None:
    graph = graph_of(
        Op("c", "Cast", ("x",), ("a",), (("to", int(TensorProto.FLOAT)),)),
        Op("f", "ConstantOfShape", ("shape",), ("b",), (("value", TensorAttribute(np.array([0.1], F))),)),
        Op("z", "ConstantOfShape", ("shape",), ("d",)),
        Op("s1", "Add", ("a", "b"), ("e",)),
        Op("s2", "Add", ("e", "d"), ("g",)),
        Op("s3", "Add", ("g", "k"), ("y",)),
        constants={"shape": np.array([2]), "k": np.array([1e-9, 1.0], F)},
        x=(2,), a=(2,), b=(2,), d=(2,), e=(2,), g=(2,), y=(2,),
    )  # fmt: skip
    (made,) = Reference(graph).step({"x": np.array([1, 2], F)}).values()
    np.testing.assert_array_equal(made, np.array([1, 2]) + np.float64(F(0.1)) + np.array([F(1e-9), 1], np.float64))


def test_why_there_is_no_reference() -> None:
    product = graph_of(Op("m", "MatMul", ("x", "x"), ("y",)), x=(64, 64), y=(64, 64))
    assert work_elements(product) == 64 * 64 + 64**3 // 16
    with pytest.raises(NoReferenceError, match="would touch 2e\\+04 elements a step, more than 1e\\+04"):
        Reference(product, work_limit=10_000)
    with pytest.raises(NoReferenceError, match="GiB"):
        Reference(product, memory_limit_bytes=1000)
    noise = graph_of(Op("n", "RandomNormalLike", ("x",), ("y",)), x=(2,), y=(2,))
    with pytest.raises(NoReferenceError, match="draws random numbers"):
        Reference(noise)
    strange = graph_of(Op("n", "NoSuchOp", ("x",), ("y",)), x=(2,), y=(2,))
    with pytest.raises(NoReferenceError, match=r"op 'n' \(NoSuchOp\) cannot be evaluated"):
        Reference(strange).step({"x": np.zeros(2, F)})


def test_a_constant_that_was_not_loaded() -> None:
    graph = graph_of(Op("m", "Add", ("x", "k"), ("y",)), constants={"k": None}, x=(2,), y=(2,), k=(2,))
    for kind in (Reference, WholeModel):
        with pytest.raises(ModelError, match="external data") as caught:
            kind(graph)
        assert caught.value.facts == ("k",)


def test_outputs_that_no_op_makes() -> None:
    graph = Graph(
        "g",
        {"x": Tensor("x", (2,), DType.FLOAT32), "k": Tensor("k", (), DType.INT64)},
        (),
        ("x",),
        ("x", "k"),
        {"k": np.array(7)},
    )
    values = {"x": np.array([1, 2], F)}
    for kind in (Reference, WholeModel):
        made = kind(graph).step(values)
        assert made["k"] == 7
        np.testing.assert_array_equal(made["x"], [1, 2])


def test_a_window_larger_than_its_array_is_left_to_the_runtime() -> None:
    with pytest.raises(OtherFormError, match="a window of"):
        windows(np.zeros((1, 1, 2, 3)), (3, 3), (1, 1), (1, 1))
