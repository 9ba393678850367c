"""What the loss does not need does not stand in its way; a forward model without a loss is said to be one."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import numpy_helper, parser

from command_line import ROOT
from drawn import random32 as random
from planner import api
from planner.errors import ModelError, UnsupportedError, UsageError
from planner.records import plain_record

HEAD = """<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 1]>
    g (float[6, 4] x) => ({outputs}) <float[4, 3] W, float[3] b, int32[3] classes = {{5, 6, 7}}, int64[1] flat = {{-1}}>
    {{
        h = MatMul (x, W)  logits = Add (h, b)  best = ArgMax <axis = 1> (logits)
        found = ai.onnx.ml.ArrayFeatureExtractor (classes, best)  label = Reshape (found, flat)
        size = ReduceSum <keepdims = 0> (logits)
    }}"""
BOTH = "int32[6] label, float[6, 3] logits, float size"


def saved(folder: Path, outputs: str) -> Path:
    model = parser.parse_model(HEAD.format(outputs=outputs))
    weights = {"W": random((4, 3), 1), "b": random((3,), 2)}
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in weights.items())
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


def built(model: Path, **options: object) -> api.GradResult:
    wishes = {"loss": "softmax_cross_entropy", "optimizer": "sgd", "output": model.parent / "t.onnx", **options}
    return api.grad(model, **wishes)


def test_an_operator_that_other_outputs_need(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """scikit-learn's classifiers look their labels up with ArrayFeatureExtractor."""
    result = built(saved(tmp_path, BOTH), loss_input="logits")
    assert result.results == ("loss", "logits", "size")
    ((name, why),) = result.left_out
    assert name == "label"
    assert "nothing states the shapes of ai.onnx.ml.ArrayFeatureExtractor" in why
    api.show(result, Out(lines := []))
    text = "".join(lines)
    assert "left out, because the loss does not need them\n  label: 2 tensors have no static shape" in text
    assert max(map(len, text.splitlines()[1:])) <= 80
    assert plain_record(result)["left_out"] == {"label": why}
    schema = json.loads((ROOT / "planner" / "schemas" / "grad.json").read_text())
    assert "left_out" in schema["properties"]


class Out:
    """A file that is no terminal."""

    def __init__(self, lines: list[str]) -> None:
        self.write = lines.append

    def isatty(self) -> bool:
        return False

    def flush(self) -> None:
        """Nothing waits."""


def test_the_only_output_that_can_be_read_is_the_losss(tmp_path: Path) -> None:
    assert built(saved(tmp_path, "int32[6] label, float[6, 3] logits")).results == ("loss", "logits")


def test_what_the_loss_needs_is_refused_alone(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as error:
        built(saved(tmp_path, "float[6, 3] logits, int32[6] label"), loss_input="label")
    assert error.value.what.endswith("2 tensors have no static shape")


def test_a_batch_that_other_outputs_mix(tmp_path: Path) -> None:
    result = built(saved(tmp_path, "float[6, 3] logits, float size"), loss_input="logits", batch=8)
    assert result.results == ("loss", "logits")
    ((name, why),) = result.left_out
    assert (name, "reduces over the samples" in why) == ("size", True)
    assert {row.name: row.shape for row in result.data}["x"] == (8, 4)
    with pytest.raises(UnsupportedError, match="the batch cannot be changed"):
        built(saved(tmp_path, "float[6, 3] logits, float size"), loss="output:size", batch=8)


@pytest.mark.parametrize("outputs", ["float[6, 3] logits", "float[6, 4] back"])
def test_a_forward_model_without_a_loss(outputs: str, tmp_path: Path) -> None:
    """An autoencoder's output has the sizes of its data, and is no gradient of these."""
    model = parser.parse_model(HEAD.format(outputs=outputs).replace("size = ReduceSum <keepdims = 0> (logits)",
                                                                    "back = MatMul (logits, V)"))  # fmt: skip
    weights = {"W": random((4, 3), 1), "b": random((3,), 2), "V": random((3, 4), 3)}
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in weights.items())
    del model.graph.node[2:5]
    if outputs.endswith("logits"):
        del model.graph.node[2:]
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(UsageError, match=r"which loss is lowered\? it has no gradients of weights") as error:
        built(tmp_path / "m.onnx", loss=None)
    assert error.value.facts[0].startswith(f"'{outputs.split()[-1]}': [6, ")
    assert "--loss NAME: softmax_cross_entropy, nll, mse" in error.value.hint


def test_the_loss_looks_at_an_inner_tensor(tmp_path: Path) -> None:
    """A classifier may give back labels alone, of which nothing is differentiated."""
    result = built(saved(tmp_path, "int32[6] label"), loss_input="logits")
    assert result.results == ("loss", "logits")
    assert [name for name, _ in result.left_out] == ["label"]


def test_nll_of_probabilities(tmp_path: Path) -> None:
    """-p in the place of -log p is lowered as well, and is another loss."""
    text = HEAD.format(outputs="float[6, 3] p")
    text = text.replace("size = ReduceSum <keepdims = 0> (logits)", "s = Softmax (logits)  p = Identity (s)")
    model = parser.parse_model(text)
    weights = {"W": random((4, 3), 1), "b": random((3,), 2)}
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in weights.items())
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(UsageError, match="nll takes log-probabilities; output 'p' is of probabilities") as error:
        built(tmp_path / "m.onnx", loss="nll", loss_input="p")
    assert error.value.hint.endswith("--loss softmax_cross_entropy --loss-input logits takes its logits")
    assert built(tmp_path / "m.onnx", loss_input="logits").results == ("loss", "p", "logits")
