"""Weights that a file has among its inputs: named by patterns, or told by defaults and names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from drawn import random32 as random
from planner import api
from planner.errors import UnsupportedError, UsageError
from planner.graph.reading.from_onnx import read_model
from stock_runtime import run

WEIGHTS = {"fc1.weight": random((4, 3), 1), "fc1.bias": random((3,), 2), "W": random((3, 2), 3)}
TEXT = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[5, 4] x, int64[2] size, float gain, float[4, 3] "fc1.weight", float[3] "fc1.bias", float[3, 2] W)
        => (float[5, 2] y) {
        h = MatMul (x, "fc1.weight")  a = Add (h, "fc1.bias")  r = Relu (a)  f = Reshape (r, size)
        z = MatMul (f, W)  y = Mul (z, gain)
    }"""
SIZE = {"size": np.array([5, 3]), "gain": np.array(2.0, np.float32)}


def saved(folder: Path, defaults: dict[str, np.ndarray], text: str = TEXT) -> Path:
    model = parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in defaults.items())
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


def built(model: Path, **options: object) -> api.GradResult:
    return api.grad(model, loss="mse", optimizer="sgd", lr=0.1, output=model.parent / "t.onnx", **options)


def rows(result: api.GradResult) -> dict[str, str]:
    return {row.name: f"{row.verdict}: {row.why}" for row in result.parameters}


def test_all_initializers_kept_as_inputs(tmp_path: Path) -> None:
    """torch.onnx.export(keep_initializers_as_inputs=True): sizes and scalars are inputs as well."""
    result = built(saved(tmp_path, WEIGHTS | SIZE))
    assert result.inputs == ("x", "target", "learning_rate")
    assert rows(result) == {
        "fc1.weight": "trained: read by MatMul; an input of the file, held as a constant",
        "fc1.bias": "trained: read by Add; an input of the file, held as a constant",
        "W": "trained: read by MatMul; an input of the file, held as a constant",
        "gain": "trained: a scalar, read by Mul; an input of the file, held as a constant",
    }  # fmt: skip
    plain = tmp_path / "plain"
    plain.mkdir()
    text = TEXT.replace(', int64[2] size, float gain, float[4, 3] "fc1.weight", float[3] "fc1.bias", float[3, 2] W', "")
    other = built(saved(plain, WEIGHTS | SIZE, text))
    feeds = {"x": random((5, 4), 4), "target": random((5, 2), 5), "learning_rate": np.array(0.1, np.float32)}
    made, wanted = (run(onnx.load(one.output), feeds) for one in (result, other))
    assert made.keys() == wanted.keys()
    assert sum(np.array_equal(made[name], wanted[name]) for name in wanted) == len(wanted) >= 4


def test_names_tell_where_some_have_defaults(tmp_path: Path) -> None:
    text = TEXT.replace("int64[2] size, ", "").replace("f = Reshape (r, size)", "f = Identity (r)")
    result = built(saved(tmp_path, {"W": WEIGHTS["W"]}, text.replace(", float[3, 2] W", "")))
    assert result.inputs == ("x", "gain", "target", "learning_rate")
    assert {name: said.split(";")[0] for name, said in rows(result).items()} == {
        "fc1.weight": "trained: read by MatMul", "fc1.bias": "trained: read by Add", "W": "trained: read by MatMul",
    }  # fmt: skip
    assert "an input of the file" not in rows(result)["W"]
    step = read_model(result.output)
    assert {pair.current for pair in step.state} == WEIGHTS.keys()
    assert step.initial["fc1.weight"] is None
    np.testing.assert_array_equal(step.initial["W"], WEIGHTS["W"])


def test_patterns_say_it(tmp_path: Path) -> None:
    text = TEXT.replace("fc1.weight", "V").replace("fc1.bias", "c").replace("int64[2] size, ", "")
    model = saved(tmp_path, {}, text.replace("f = Reshape (r, size)", "f = Identity (r)"))
    with pytest.raises(UnsupportedError, match="depends on no parameter") as error:
        built(model)
    assert error.value.hint.endswith("if its weights are inputs, --params PATTERN says which")
    result = built(model, params=["[VW]", "c"])
    assert result.inputs == ("x", "gain", "target", "learning_rate")
    assert {row.name: row.evidence for row in result.parameters} == {
        "V": ("readers", "input"), "c": ("readers", "input"), "W": ("readers", "name", "input"),
    }  # fmt: skip
    with pytest.raises(UsageError, match="fit no input") as error:
        built(saved(tmp_path, {}), params=["fc2.*", "size"])
    assert error.value.facts == ("--params 'fc2.*' fits nothing", "--params 'size' fits 'size', of INT64")


def test_a_flat_step_keeps_its_inputs(tmp_path: Path) -> None:
    """Its weights are inputs, named as such: it is a step all the same, and says so."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
        g (float[5, 4] x, float[4, 3] "fc.weight", float rate) => (float loss, float[4, 3] "fc.weight.next") {
            h = MatMul (x, "fc.weight")  loss = ReduceMean <keepdims = 0> (h)  n = Neg ("fc.weight")
            s = Mul (n, rate)  "fc.weight.next" = Add ("fc.weight", s)
        }"""
    with pytest.raises(UnsupportedError, match="is a training step already"):
        built(saved(tmp_path, {}, text))
