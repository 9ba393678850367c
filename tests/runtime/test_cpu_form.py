"""Ops that are written in others for CPUs compute the same numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper

from planner.graph.decompositions import channel_blocks, cpu
from planner.graph.decompositions.channel_blocks import DOMAIN
from planner.graph.decompositions.registry import Purpose
from planner.runtime.engine.core.faster_ops import with_faster_ops
from planner.runtime.engine.core.sessions import SessionMaker, channels_in_a_block

Shapes = Sequence[tuple[int, ...]]


def model_of(op_type: str, shapes: Shapes, attributes: Mapping[str, Any], kind: int = TensorProto.FLOAT) -> ModelProto:
    """One op of operands of these shapes; its result's shape is inferred."""
    names = [f"x{number}" for number in range(len(shapes))]
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name, shape in zip(names, shapes, strict=True)]
    node = helper.make_node(op_type, names, ["y"], **attributes)
    graph = helper.make_graph([node], "one", inputs, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    del inferred.graph.value_info[:]
    return inferred


def compared(model: ModelProto) -> list[str]:
    """The op types of the model in its form for CPUs, after the same numbers have come out of both."""
    rng = np.random.default_rng(0)
    feeds = {
        value.name: rng.normal(size=[dim.dim_value for dim in value.type.tensor_type.shape.dim]).astype(np.float32)
        for value in model.graph.input
    }
    form = with_faster_ops(model, Purpose.CPU, channels_in_a_block())
    onnx.checker.check_model(form, full_check=True)
    maker = SessionMaker(1)
    whole, faster = (maker.session(each, is_judge=True).run(None, feeds)[0] for each in (model, form))
    assert whole.dtype == faster.dtype
    np.testing.assert_allclose(faster, whole, rtol=1e-4, atol=1e-4 * float(np.abs(whole).max(initial=1.0)))
    return [node.op_type for node in form.graph.node]


GRADIENTS: Mapping[str, tuple[Shapes, Mapping[str, Any]]] = {
    "3x3": (((32, 4, 8, 8), (24, 4, 8, 8)), {"pads": [1, 1, 1, 1]}),
    "3x3 of large images": (((16, 2, 20, 20), (8, 2, 20, 20)), {"pads": [1, 1, 1, 1]}),
    "3x3 with steps of two": (((16, 4, 17, 17), (8, 4, 8, 8)), {"dilations": [2, 2]}),
    "1x1 of large images": (((16, 4, 12, 12), (8, 4, 12, 12)), {}),
    "1x1 of small images": (((64, 4, 2, 2), (48, 4, 2, 2)), {}),
    "few channels": (((3, 4, 16, 16), (8, 4, 16, 16)), {"pads": [1, 1, 1, 1]}),
    "uneven pads": (((16, 3, 9, 7), (8, 3, 8, 9)), {"pads": [0, 2, 1, 1]}),
    "windows with steps": (((16, 3, 12, 12), (8, 3, 8, 8)), {"strides": [2, 2]}),
    "images of the filter's size": (((16, 4, 3, 3), (8, 4, 3, 3)), {"pads": [1, 1, 1, 1]}),
    "one dim": (((16, 3, 30), (8, 3, 28)), {}),
    "three dims": (((16, 2, 5, 6, 4), (8, 2, 4, 5, 4)), {}),
}  # fmt: skip
BY_BLOCKS: Mapping[str, tuple[str, Shapes, Mapping[str, Any]]] = {
    "7x7": ("Conv", ((2, 32, 9, 8), (32, 1, 7, 7)), {"pads": [3] * 4, "group": 32}),
    "channels that fill no block": ("Conv", ((2, 20, 9, 8), (20, 1, 3, 3), (20,)), {"pads": [0, 1, 2, 0], "group": 20}),
    "with steps": ("Conv", ((2, 16, 11, 9), (16, 1, 5, 3)), {"strides": [2, 1], "dilations": [1, 2], "group": 16}),
    "larger kernels": ("Conv", ((2, 8, 20, 20), (8, 1, 9, 9), (8,)), {"pads": [4, 5, 6, 7], "group": 8}),
    "one dim": ("Conv", ((2, 16, 30), (16, 1, 4)), {"pads": [3, 0], "group": 16}),
    "turned": (
        "ConvTranspose", ((2, 16, 9, 8), (16, 1, 5, 3)), {"pads": [2, 0, 1, 1], "dilations": [1, 2], "group": 16},
    ),
    "turned, one dim": ("ConvTranspose", ((2, 16, 30), (16, 1, 4)), {"pads": [3, 0], "group": 16}),
    "gradient": ("Conv", ((1, 24, 9, 8), (6, 4, 9, 8)), {"pads": [3] * 4, "group": 6}),
    "gradient, large images": ("Conv", ((1, 16, 20, 20), (4, 4, 20, 20)), {"pads": [3] * 4, "group": 4}),
    "gradient, several filters each": ("Conv", ((1, 12, 9, 9), (8, 3, 8, 7)), {"pads": [1, 0, 1, 0], "group": 4}),
    "gradient with steps": ("Conv", ((1, 12, 12, 12), (4, 3, 5, 5)), {"dilations": [2, 2], "group": 4}),
    "gradient, windows apart": ("Conv", ((1, 12, 12, 12), (4, 3, 8, 8)), {"strides": [2, 2], "group": 4}),
    "gradient of one dim": ("Conv", ((1, 12, 20), (4, 3, 18)), {"group": 4}),
    "many windows": ("Conv", ((2, 32, 24, 24), (16, 32, 3, 3), (16,)), {"pads": [1] * 4}),
    "many windows of few channels": ("Conv", ((2, 3, 66, 66), (16, 3, 3, 3)), {"strides": [2, 2], "dilations": [2, 2]}),
    "many windows, turned": ("ConvTranspose", ((2, 16, 24, 24), (16, 32, 3, 3)), {"pads": [1, 0, 1, 2]}),
}  # fmt: skip
"""By channel, but for those of many windows."""
OF_SMALL_IMAGES: Mapping[str, tuple[str, Shapes, Mapping[str, Any]]] = {
    "ConvTranspose": ("ConvTranspose", ((8, 6, 4, 3), (6, 5, 3, 3)), {"pads": [1, 1, 1, 1]}),
    "ConvTranspose, apart": ("ConvTranspose", ((8, 6, 3, 3), (6, 5, 3, 2)), {"dilations": [2, 1], "pads": [1, 0] * 2}),
    "ConvTranspose of 1x1": ("ConvTranspose", ((2, 6, 9, 9), (6, 5, 1, 1)), {}),
    "ConvTranspose of 1x1 with steps": (
        "ConvTranspose", ((2, 6, 5, 8), (6, 5, 1, 1)), {"strides": [2, 3], "output_padding": [1, 0]},
    ),
    "ConvTranspose of one dim": ("ConvTranspose", ((8, 6, 5), (6, 5, 3)), {}),
    "ConvTranspose with steps": (
        "ConvTranspose", ((8, 6, 4, 3), (6, 5, 3, 3)),
        {"strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 2]},
    ),
    "ConvTranspose, windows apart": ("ConvTranspose", ((8, 6, 3, 3), (6, 5, 2, 2)), {"strides": [3, 2]}),
    "ConvTranspose, taps beyond": (
        "ConvTranspose", ((8, 6, 2, 5), (6, 5, 3, 1)), {"dilations": [3, 1], "pads": [3, 2] * 2},
    ),
    "Conv": ("Conv", ((8, 6, 4, 4), (5, 6, 3, 3), (5,)), {"pads": [1, 1, 1, 1]}),
    "Conv with steps": (
        "Conv", ((8, 6, 7, 6), (5, 6, 3, 2)), {"pads": [2, 0, 1, 1], "strides": [2, 3], "dilations": [1, 2]},
    ),
    "Conv of one dim": ("Conv", ((8, 6, 9), (5, 6, 3)), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_filters_are_products(name: str) -> None:
    shapes, attributes = GRADIENTS[name]
    ops = compared(model_of("Conv", shapes, attributes))
    assert "MatMul" in ops
    assert "Conv" not in ops


@pytest.mark.parametrize("name", BY_BLOCKS)
def test_channels_lie_together_in_blocks(name: str) -> None:
    op_type, shapes, attributes = BY_BLOCKS[name]
    model = model_of(op_type, shapes, attributes)
    compared(model)
    for block in (8, 16):
        form = with_faster_ops(model, Purpose.CPU, block)
        assert {entry.domain for entry in form.opset_import} == {"", DOMAIN}
        assert [node.domain for node in form.graph.node if "Conv" in node.op_type] == [DOMAIN]
    assert with_faster_ops(model, Purpose.CPU) is model  # a processor that has no blocks


@pytest.mark.parametrize("name", OF_SMALL_IMAGES)
def test_convolutions_of_small_images_are_products_of_all_samples(name: str) -> None:
    op_type, shapes, attributes = OF_SMALL_IMAGES[name]
    assert op_type not in compared(model_of(op_type, shapes, attributes))


@pytest.mark.parametrize(
    ("op_type", "shapes", "attributes"),
    [
        ("Conv", ((2, 4, 16, 16), (4, 4, 3, 3)), {}),  # its windows are many
        ("Conv", ((8, 6, 10, 10), (5, 6, 3, 3)), {"pads": [1, 1, 1, 1]}),  # more than its kernel has elements
        ("Conv", ((2, 32, 8, 8), (32, 1, 1, 1)), {"group": 32}),
        ("Conv", ((2, 18, 8, 8), (18, 1, 3, 3)), {"group": 18}),
        ("Conv", ((8, 4, 4, 4), (4, 2, 3, 3)), {"group": 2, "pads": [1, 1, 1, 1]}),
        ("Conv", ((3, 4, 64, 64), (8, 4, 32, 32)), {"pads": [3, 3, 2, 2], "dilations": [2, 2]}),  # rows of 3 elements
        ("ConvTranspose", ((8, 6, 9, 9), (6, 5, 3, 3)), {"strides": [2, 2]}),
        ("ConvTranspose", ((8, 16, 9, 9), (16, 1, 3, 3)), {"strides": [2, 2], "group": 16}),
        ("ConvTranspose", ((8, 6, 4, 4), (6, 2, 1, 1)), {"group": 2}),
        ("ConvTranspose", ((1, 6, 9, 9), (6, 2, 1, 1)), {"strides": [2, 2], "pads": [4] * 4}),  # of the images' size
        ("ConvTranspose", ((2, 3, 4, 4), (3, 2, 1, 1)), {"output_shape": [5, 5], "strides": [2, 2]}),
        ("Gemm", ((40, 1024), (40, 600)), {"transA": 1}),  # little is turned
        ("Gemm", ((520, 600), (600, 520)), {}),
        ("Gemm", ((600, 520), (640, 600)), {"transA": 1, "transB": 1}),
        ("Gemm", ((600, 520), (600, 520)), {"transA": 1, "alpha": 2.0}),
        ("Gemm", ((600, 520), (600, 520), (520,)), {"transA": 1}),
        ("Einsum", ((4, 3, 5), (4, 6)), {"equation": "abc,ad->bd"}),
        ("Add", ((512, 2, 1, 1), (1, 2, 1, 1)), {}),
        ("Einsum", ((4, 4), (4, 4)), {"equation": "ii,jk->jk"}),
    ],
)
def test_what_would_not_be_faster_stays(op_type: str, shapes: Shapes, attributes: Mapping[str, Any]) -> None:
    assert compared(model_of(op_type, shapes, attributes)) == [op_type]


@given(
    samples=st.integers(1, 20),
    channels=st.integers(1, 5),
    kernels=st.integers(1, 5),
    kind=st.sampled_from(["of one group", "by channel", "one channel each", "in blocks"]),
    dims=st.lists(
        st.tuples(st.integers(1, 7), st.integers(1, 5), st.integers(1, 2), st.integers(1, 2), st.integers(0, 2)),
        min_size=1,
        max_size=2,
    ),
)
def test_drawn_convolutions_compute_the_same(
    samples: int, channels: int, kernels: int, kind: str, dims: list[tuple[int, int, int, int, int]]
) -> None:
    sizes, kernel, strides, dilations, pads = zip(*dims, strict=True)
    spans = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    sizes = tuple(max(size, span) for size, span in zip(sizes, spans, strict=True))
    own, group = channels, 1
    with pytest.MonkeyPatch.context() as patch:
        if kind == "by channel":
            group, channels, own = kernels, kernels * channels, channels
        elif kind == "one channel each":
            group, channels, kernels, own = 4 * channels, 4 * channels, 4 * channels, 1
        elif kind == "in blocks":
            channels, kernels = 16 * channels, 16 * kernels
            own = channels
            patch.setattr(channel_blocks, "_LEAST_WINDOWS", 1)
            patch.setattr(cpu, "_SMALL_IMAGE", 1)
            patch.setattr(cpu, "_FEW_COLUMNS", 1)
        stated = {"strides": strides, "dilations": dilations, "pads": pads * 2, "group": group}
        compared(model_of("Conv", ((samples, channels, *sizes), (kernels, own, *kernel)), stated))
        whole = [(size - 1) * stride + span for size, stride, span in zip(sizes, strides, spans, strict=True)]
        if all(2 * pad < size for pad, size in zip(pads, whole, strict=True)):
            wide = kernels // group
            compared(model_of("ConvTranspose", ((samples, channels, *sizes), (channels, wide, *kernel)), stated))


@pytest.mark.parametrize("equation", ["acbe,adbe->abcd", "acbe,aecd->abcd", "abd,cd->abc", "acd,ace->de", "ab,cb->ca"])
def test_equations_of_products_are_products(equation: str) -> None:
    sizes = dict(zip("abcde", (2, 3, 4, 5, 6), strict=True))
    terms = equation.partition("->")[0].split(",")
    shapes = [tuple(sizes[letter] for letter in term) for term in terms]
    assert "Einsum" not in compared(model_of("Einsum", shapes, {"equation": equation}))


@pytest.mark.parametrize(("rows", "columns"), [(520, 600), (600, 520)])
def test_the_smaller_operand_of_a_turned_product_is_turned_before(rows: int, columns: int) -> None:
    attributes = {"transA": 1, "beta": 0.0}
    form = with_faster_ops(model_of("Gemm", ((560, rows), (560, columns)), attributes), Purpose.CPU)
    turned, *_ = (node for node in form.graph.node if node.op_type == "Transpose")
    assert turned.input[0] == ("x0" if rows < columns else "x1")
    assert "MatMul" in compared(model_of("Gemm", ((560, rows), (560, columns)), attributes))


@pytest.mark.parametrize("op_type", ["Add", "Div", "Mul", "Sub", "Max"])
def test_numbers_times_what_ends_in_single_elements_take_a_list(op_type: str) -> None:
    for shapes in (((), (32, 16, 1, 1)), ((32, 16, 1, 1), (1,)), ((1, 1, 1, 1), (32, 16, 1, 1))):
        assert "Reshape" in compared(model_of(op_type, shapes, {}))
    comparison = model_of("Greater", ((32, 16, 1), ()), {})
    assert "Reshape" in [node.op_type for node in with_faster_ops(comparison, Purpose.CPU).graph.node]


def test_a_judge_has_the_ops_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("Conv", *GRADIENTS["3x3"])
    seen: list[bytes] = []
    maker = SessionMaker(1)

    def recorded(text: bytes, *_: object, **__: object) -> None:
        seen.append(text)

    monkeypatch.setattr(maker._runtime, "InferenceSession", recorded)
    maker.session(model, is_judge=True)
    maker.session(model)
    judged, run = (onnx.load_from_string(text) for text in seen)
    assert [node.op_type for node in judged.graph.node] == ["Conv"]
    assert "Conv" not in [node.op_type for node in run.graph.node]
