"""Models as ONNX Runtime's optimizers write them: planned, run in parts, equal to the uncut model in ONNX Runtime.

``tests/tools/optimized_models.py`` made the files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from fast_suite import spread
from planner import api

MODELS = Path(__file__).parents[1] / "models" / "optimized"
BATCH, POSITIONS, WORDS = 2, 8, 48
Arrays = Mapping[str, np.ndarray]
WORKERS = [2, 3, pytest.param(4, marks=pytest.mark.slow)]


def stock(model: onnx.ModelProto, given: Arrays) -> dict[str, np.ndarray]:
    """What ONNX Runtime makes of a model, uncut and as the file is."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [value.name for value in model.graph.output]
    return dict(zip(names, session.run(names, dict(given)), strict=True))


def held_against_the_runtime(
    file: Path, given: Arrays, workers: int, folder: Path, *, own_precision: tuple[str, ...] = (), **options: object
) -> None:
    """Plans a file, runs it, and compares all outputs with the uncut model's."""
    options.setdefault("effort", "quick")
    api.plan(file, gpus=workers, out=folder / "plan", **options)  # type: ignore[arg-type]
    np.savez(folder / "given.npz", **given)
    ran = api.run(folder / "plan", inputs=folder / "given.npz", verify=True, result=folder / "made.npz")
    assert ran.verified, ran.comparisons
    assert ran.no_reference == ""
    assert ran.own_precision == own_precision
    assert ran.moved_bytes == ran.predicted_bytes
    made = np.load(folder / "made.npz")
    for name, expected in stock(onnx.load(file), given).items():
        assert made[name].shape == expected.shape
        np.testing.assert_allclose(made[name], expected, rtol=0, atol=2e-5 * np.abs(expected).max())


def words(model: str) -> dict[str, np.ndarray]:
    """Words, the second sample shorter than the first."""
    mask = np.ones((BATCH, POSITIONS), np.int64)
    mask[1, 5:] = 0
    given = {"input_ids": np.random.default_rng(1).integers(0, WORDS, (BATCH, POSITIONS)), "attention_mask": mask}
    return given if model == "gpt2" else {**given, "token_type_ids": np.arange(POSITIONS)[None].repeat(BATCH, 0) // 5}


def image(size: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(BATCH, 3, size, size)).astype(np.float32)


GIVEN = {
    "bert": lambda: words("bert"),
    "gpt2": lambda: words("gpt2"),
    "vit": lambda: {"pixel_values": image(16)},
    "residual": lambda: {"x": image(9)},
}


@pytest.mark.parametrize(("model", "workers"), spread(GIVEN, [2, 3, 4], one_of=3))
def test_a_model_of_the_optimizer_is_what_it_was(model: str, workers: int, tmp_path: Path) -> None:
    held_against_the_runtime(MODELS / f"{model}.onnx", GIVEN[model](), workers, tmp_path)


@pytest.mark.parametrize("workers", WORKERS)
def test_attention_is_cut_between_heads(workers: int, tmp_path: Path) -> None:
    model = onnx.load(MODELS / "bert.onnx")
    attended = [node.output[0] for node in model.graph.node if node.op_type == "Attention"]
    assert len(attended) == 2
    pins = dict.fromkeys(attended, "S(2,8)")
    held_against_the_runtime(MODELS / "bert.onnx", words("bert"), workers, tmp_path, pin=pins)


@pytest.mark.parametrize("name", GIVEN)
def test_a_gradient_passes_what_the_optimizer_makes(name: str, tmp_path: Path) -> None:
    """All trained weights along a direction, against differences of the loss by ONNX Runtime's own kernels."""
    model, given = onnx.load(MODELS / f"{name}.onnx"), GIVEN[name]()
    (first, *_), rng = model.graph.output, np.random.default_rng(4)
    weighs = rng.normal(size=stock(model, given)[first.name].shape).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weighs, "weighs"))
    model.graph.node.append(helper.make_node("Mul", [first.name, "weighs"], ["weighed"]))
    model.graph.node.append(helper.make_node("ReduceSum", ["weighed"], ["loss"], keepdims=0))
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("loss", onnx.TensorProto.FLOAT, []))
    onnx.save(model, tmp_path / "loss.onnx")
    api.grad(
        tmp_path / "loss.onnx", loss="output:loss", optimizer="sgd", freeze=["weighs"], output=tmp_path / "step.onnx"
    )
    step = onnx.load(tmp_path / "step.onnx")
    initial = {value.name: numpy_helper.to_array(value) for value in step.graph.initializer}
    notes = {entry.key: entry.value for entry in step.metadata_props}
    in_file = {value.name for value in model.graph.initializer}
    made = stock(step, {**given, "learning_rate": np.array(1.0, np.float32)})
    directions, along = {}, 0.0
    for weight, following in json.loads(notes["tofu.state"]):
        if weight not in in_file:
            continue  # a third of an Attention's weights
        directions[weight] = rng.normal(size=initial[weight].shape).astype(np.float32)
        along += float(((initial[weight] - made[following]).astype(np.float64) * directions[weight]).sum())
    assert directions
    losses = []
    for size in (1e-3, -1e-3):
        moved = onnx.ModelProto.FromString(model.SerializeToString())
        for value in moved.graph.initializer:
            if value.name in directions:
                array = numpy_helper.to_array(value) + size * directions[value.name]
                value.CopyFrom(numpy_helper.from_array(array.astype(np.float32), value.name))
        losses.append(float(stock(moved, given)["loss"]))
    assert along == pytest.approx((losses[0] - losses[1]) / 2e-3, rel=0.02, abs=0.02)


@pytest.mark.parametrize("workers", WORKERS)
def test_normalisations_in_a_model_older_than_onnxs_own(workers: int, tmp_path: Path) -> None:
    draw = np.random.default_rng(0).normal
    shapes = {"scale": (12,), "shift": (12,), "w": (12, 12)}
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 14, "com.microsoft" : 1]>
        g (float[2, 5, 12] x, float[12] scale, float[12] shift, float[12, 12] w) => (float[2, 5, 12] y) {
            n = LayerNormalization <axis = -1, epsilon = 0.001> (x, scale, shift)
            p = com.microsoft.FusedMatMul <transB = 1, alpha = 0.5> (n, w)
            m, d = SimplifiedLayerNormalization <axis = -1> (p, scale)
            y, mean, deviation, sum = com.microsoft.SkipLayerNormalization (m, x, scale, shift, shift)
        }
    """)
    given = {"x": draw(size=(2, 5, 12)), **{name: draw(size=shape) for name, shape in shapes.items()}}
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    wanted = {name: array.astype(np.float32) for name, array in given.items()}
    held_against_the_runtime(tmp_path / "model.onnx", wanted, workers, tmp_path)
