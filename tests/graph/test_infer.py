"""Shapes where ONNX's own inference is wrong, held against what the runtime makes."""

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import stock_runtime
from planner.errors import ModelError
from planner.graph.core.model import DType, Op, Tensor
from planner.graph.folding.known import KnownGraph
from planner.graph.folding.known_forms import sizes_for
from planner.graph.reading.from_onnx import graph_from_proto


@pytest.mark.parametrize("onesided", [None, 0, 1])
@pytest.mark.parametrize("windowed", [True, False])
def test_the_bins_of_a_spectrum(onesided: int | None, windowed: bool) -> None:
    stated = {} if onesided is None else {"onesided": onesided}
    reads = ["x", "step", "window"] if windowed else ["x", "step", "", "length"]
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("STFT", reads, ["y"], **stated)],
            "spectrum",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 16, 1])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [
                helper.make_tensor("step", TensorProto.INT64, [], [4]),
                helper.make_tensor("length", TensorProto.INT64, [], [8]),
                helper.make_tensor("window", TensorProto.FLOAT, [8], np.ones(8, np.float32)),
            ],
        ),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    made = stock_runtime.run(model, {"x": np.ones((2, 16, 1), np.float32)})["y"]
    assert graph_from_proto(model).tensors["y"].shape == made.shape


@pytest.mark.parametrize("scale", [5 / 3, 0.3, 1 / 3, 1.1, 2.0, 0.75])
@pytest.mark.parametrize("opset", [13, 21])
def test_a_resize_by_scales(scale: float, opset: int) -> None:
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")],
            "resize",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 9, 30])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [helper.make_tensor("scales", TensorProto.FLOAT, [4], [1, 1, scale, scale])],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=8,
    )
    made = stock_runtime.run(model, {"x": np.ones((1, 1, 9, 30), np.float32)})["y"]
    assert graph_from_proto(model).tensors["y"].shape == made.shape


def test_a_resize_of_which_the_runtime_says_two_sizes_states_its_sizes() -> None:
    def known(scales: list[float]) -> KnownGraph:
        tensors = {"x": Tensor("x", (9, 12), DType.FLOAT32), "scales": Tensor("scales", (2,), DType.FLOAT32)}
        return KnownGraph(tensors, {}, {"scales": np.array(scales, np.float32)}, frozenset(), 21, 21)

    op = Op("op", "Resize", ("x", "", "scales"), ("y",), (("mode", "linear"),))
    form = sizes_for(op, known([5 / 3, 0.75]))
    assert form is not None
    constants, (resize,) = form
    assert resize.inputs[:3] == ("x", "", "")
    assert constants[resize.inputs[3]].tolist() == [15, 9]
    assert sizes_for(op, known([1.5, 0.75])) is None


@pytest.mark.parametrize(("opset", "entries"), [(18, 2), (20, 2), (21, 6)])
def test_group_normalization_by_group_and_by_channel(opset: int, entries: int) -> None:
    """Until opset 21, scale and bias have an entry for each group: deprecated there, and executed all the same."""
    info = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [2, 6, 4]), ("s", [entries]), ("b", [entries]), ("y", [2, 6, 4]))
    ]
    node = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2)
    model = helper.make_model(
        helper.make_graph([node], "groups", info[:3], info[3:]),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=8,
    )
    graph = graph_from_proto(model)
    rng = np.random.default_rng(3)
    feeds = {name: rng.standard_normal(graph.tensors[name].shape).astype(np.float32) for name in "xsb"}
    np.testing.assert_array_equal(stock_runtime.run(graph, feeds)["y"], stock_runtime.run(model, feeds)["y"])
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_value = 8 - entries
    with pytest.raises(ModelError, match=rf"its input 1 is \[{8 - entries}\], and must be \[{entries}\]"):
        graph_from_proto(model)


def drawn_pool(op_type: str, opset: int, rng: np.random.Generator) -> ModelProto:
    """A pool that rounds up, over 1 to 3 dims."""
    rank = int(rng.integers(1, 4))
    kernel = rng.integers(1, 5, rank)
    stated: dict[str, Any] = {"kernel_shape": kernel, "strides": rng.integers(1, 5, rank), "ceil_mode": 1}
    stated["pads"] = rng.integers(0, np.tile(kernel, 2))
    if op_type != "AveragePool" or opset >= 19:
        stated["dilations"] = rng.integers(1, 3, rank)
    if op_type == "AveragePool":
        stated["count_include_pad"] = int(rng.integers(2))
    listed = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in stated.items()}
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, *rng.integers(5, 10, rank).tolist()])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node(op_type, ["x"], ["y"], **listed)], "pool", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7)


@pytest.mark.parametrize(
    ("op_type", "opset"),
    [
        *(("MaxPool", opset) for opset in (10, 12, 13, 21, 22)),
        *(("AveragePool", opset) for opset in (10, 12, 13, 18, 19, 21, 22)),
        *(("LpPool", opset) for opset in (18, 21, 22)),
    ],
)
def test_windows_that_begin_beyond_the_input_are_none(op_type: str, opset: int) -> None:
    """Shapes and values, as the model's own opset and the one that it is read as have them."""
    rng, missed = np.random.default_rng(opset), 0
    for _ in range(6):
        model = drawn_pool(op_type, opset, rng)
        x = rng.standard_normal([dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim])
        try:
            expected = stock_runtime.run(model, {"x": x.astype(np.float32)}, log_level=stock_runtime.NO_ERRORS)["y"]
        except Exception:  # noqa: BLE001 -- windows that are larger than the input and its pads
            missed += 1
            continue
        graph = graph_from_proto(model)
        assert graph.tensors["y"].shape == expected.shape
        found = stock_runtime.run(graph, {"x": x.astype(np.float32)})["y"]
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert missed < 4
