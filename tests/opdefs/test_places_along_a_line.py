"""Resizes of any ratio and mode, their gradients, and lookups of known places along a line: rows at borders move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from fast_suite import chosen, examples
from planner import api, opdefs
from planner.graph.core.model import DType, Graph, Op, Tensor
from planner.opdefs.lookup import strip_of

CHANNELS, COLUMNS = 4, 24
FORMS: dict[str, tuple[int, int, dict[str, Any], int]] = {
    "nearest": (32, 64, {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}, 2),
    "nearest by an uneven ratio": (40, 61, {"nearest_mode": "ceil", "coordinate_transformation_mode": "asymmetric"}, 2),
    "nearest beside the middle": (32, 64, {"coordinate_transformation_mode": "tf_half_pixel_for_nn"}, 2),
    "linear": (32, 64, {"mode": "linear"}, 2),
    "linear between corners": (32, 64, {"mode": "linear", "coordinate_transformation_mode": "align_corners"}, 2),
    "linear by an uneven ratio": (63, 125, {"mode": "linear"}, 2),
    "linear, smaller": (64, 25, {"mode": "linear"}, 2),
    "cubic": (32, 64, {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel"}, 4),
    "cubic by an uneven ratio": (
        40, 61, {"mode": "cubic", "coordinate_transformation_mode": "align_corners", "exclude_outside": 1}, 4,
    ),
    "antialiased": (64, 25, {"mode": "linear", "antialias": 1}, 8),
}  # fmt: skip
"""Rows before and after, attributes, and how many rows a border of a convolution's kernel and a row's taps are."""


TRAINED = ("linear between corners", "cubic by an uneven ratio")


def resized(form: str, folder: Path) -> Path:
    """Rows of an image are resized between two convolutions."""
    rows, made, stated, _ = FORMS[form]
    random = np.random.default_rng(0)
    weights = {"a": (CHANNELS, 3, 3, 3), "b": (3, CHANNELS, 3, 3)}
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "a"], ["h"], pads=[1] * 4),
            helper.make_node("Resize", ["h", "", "", "sizes"], ["m"], **stated),
            helper.make_node("Conv", ["m", "b"], ["y"], pads=[1] * 4),
        ], "resized",
        [helper.make_tensor_value_info("x", 1, [1, 3, rows, COLUMNS])],
        [helper.make_tensor_value_info("y", 1, [1, 3, made, COLUMNS])],
        [numpy_helper.from_array(random.normal(size=shape).astype(np.float32), name)
         for name, shape in weights.items()]
        + [numpy_helper.from_array(np.array([1, CHANNELS, made, COLUMNS], np.int64), "sizes")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, folder / "resized.onnx")
    return folder / "resized.onnx"


@pytest.mark.parametrize(
    ("form", "workers"),
    chosen(
        [(form, workers) for form in FORMS for workers in (2, 3, 4)],
        fast=[("linear between corners", 2)],
        night=[
            (form, workers) for form in FORMS for workers in (2, 4) if (form, workers) != ("linear between corners", 2)
        ],
    ),
)
def test_rows_at_the_borders_move(form: str, workers: int, tmp_path: Path) -> None:
    result = api.plan(resized(form, tmp_path), gpus=workers, out=tmp_path / "p")
    # The kernel of the second convolution reads a row more on either side, of a hidden row as of a resized one; parts
    # of 40 rows on 3 workers are a row off those of 61.
    most = (workers - 1) * (FORMS[form][3] + 4) * CHANNELS * COLUMNS * 4
    assert 0 < result.plan.moved_bytes <= most
    assert api.run(tmp_path / "p", verify=True).verified
    assert api.prove(tmp_path / "p").is_proven


@pytest.mark.parametrize(
    ("form", "workers"),
    chosen(
        [(form, workers) for form in TRAINED for workers in (2, 3, 4)],
        fast=[],
        night=[(form, workers) for form in TRAINED for workers in (2, 4)],
    ),
)
def test_gradients_move_rows_at_the_borders(form: str, workers: int, tmp_path: Path) -> None:
    step = tmp_path / "step.onnx"
    api.grad(resized(form, tmp_path), loss="mse", optimizer="sgd", lr=0.1, output=step)
    result = api.plan(step, gpus=workers, out=tmp_path / "p")
    rows = (workers - 1) * 2 * (FORMS[form][3] + 6) * CHANNELS * COLUMNS * 4
    weights = 2 * (workers - 1) * 2 * CHANNELS * 27 * 4
    assert result.plan.moved_bytes <= rows + weights
    assert api.run(tmp_path / "p", verify=True).verified
    assert api.prove(tmp_path / "p").is_proven


@examples(60)
@given(
    size=st.integers(24, 200), count=st.integers(8, 200), window=st.integers(1, 4), seed=st.integers(0, 1 << 30),
    is_backwards=st.booleans(),
)  # fmt: skip
def test_a_strip_holds_all_places(size: int, count: int, window: int, seed: int, is_backwards: bool) -> None:
    random = np.random.default_rng(seed)
    line = np.linspace(0, size - 1, count)[:: -1 if is_backwards else 1, None]
    places = np.clip(np.floor(line + random.integers(0, window, (count, 2))).astype(int), 0, size - 1)
    strip = strip_of(places, size)
    assert strip is not None
    along = np.moveaxis(places, strip.dim, 0)
    for i, read in enumerate(along):
        start = strip.slope * i + strip.first
        assert all(start <= int(place) <= start + strip.width for place in np.ravel(read))
    assert strip.width <= min(16, size // 2)


def test_places_in_no_order_are_a_lookup() -> None:
    assert strip_of(np.random.default_rng(0).permutation(64), 64) is None


@pytest.mark.parametrize("op_type", ["Gather", "Resize"])
def test_a_small_file_of_large_sizes_takes_no_memory(op_type: str) -> None:
    many = 2**33
    indices = np.broadcast_to(np.int64(1), (many,))
    known = indices if op_type == "Gather" else np.array([many], np.int64)
    inputs = ("x", "i") if op_type == "Gather" else ("x", "", "", "i")
    tensors = {"x": Tensor("x", (4,), DType.FLOAT32), "y": Tensor("y", (many,), DType.FLOAT32)}
    tensors["i"] = Tensor("i", known.shape, DType.INT64)
    op = Op("op", op_type, inputs, ("y",))
    graph = Graph("large", tensors, (op,), ("x",), ("y",), {"i": known}, frozenset("i"), opset=21)
    [bound] = opdefs.standard().bind_all(graph)
    assert bound.extents
