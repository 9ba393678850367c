"""The graph as read is held against its file, in the stock runtime."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

from planner import api
from planner.api.door import held_against_file
from planner.errors import DifferenceError, TofuError
from planner.graph.core.model import Graph
from planner.graph.reading import inline
from planner.graph.reading.from_onnx import graph_from_proto
from planner.graph.rewriting.canonical import Canonical
from planner.printing.door import door_fact
from planner.records import plain, plain_record
from planner.runtime.judge import door
from planner.runtime.judge.door import DoorVerdict, ReadGraph, check_door

TEXT = """
<ir_version: 10, opset_import: ["" : 20, "loc" : 1]>
g (float[4,6] x) => (float[4,6] y, float[4,6] z) {
   h = MatMul (x, w)
   a = loc.act (h)
   t = Transpose <perm = [1, 0]> (a)
   b = Transpose <perm = [1, 0]> (t)
   y = Mul (b, two)
   z = Exp (x)
}
<domain: "loc", opset_import: ["" : 20]>
act <alpha: float = 0.5> (x) => (y) { y = LeakyRelu <alpha: float = @alpha> (x) }
"""


def a_model() -> ModelProto:
    model = parser.parse_model(TEXT)
    weights = np.random.default_rng(0).standard_normal((6, 6)).astype(np.float32)
    two = np.array(2, np.float32)
    model.graph.initializer.extend([numpy_helper.from_array(weights, "w"), numpy_helper.from_array(two, "two")])
    return model


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(a_model().SerializeToString())
    return path


def held(change: Callable[[Graph], Graph] = lambda graph: graph, model: ModelProto | None = None) -> DoorVerdict:
    model = a_model() if model is None else model
    graph = graph_from_proto(model, state_pairs=())
    x = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)
    inputs = dict.fromkeys(graph.inputs, x)
    read = ReadGraph(change(graph), inputs, lambda name: np.zeros(()))
    return check_door("model.onnx", model.SerializeToString(), read)


def with_attribute(op_type: str, **attributes: object) -> Callable[[Graph], Graph]:
    def change(graph: Graph) -> Graph:
        found = tuple(sorted(attributes.items()))
        ops = tuple(replace(op, attributes=found) if op.op_type == op_type else op for op in graph.ops)  # type: ignore[arg-type]
        return replace(graph, ops=ops)

    return change


def test_a_right_graph_is_what_its_file_says() -> None:
    found = held()
    assert found == DoorVerdict("model.onnx", 2)
    assert found.error() is None
    assert door_fact(found)[1] == "2 outputs equal ONNX Runtime's on model.onnx"


def test_a_state_goes_before_its_initial_value_in_the_file() -> None:
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20]>
        g (float[4,6] x, float[6,6] w) => (float[4,6] y, float[6,6] w_next) { y = MatMul (x, w)  w_next = Neg (w) }"""
    )
    rng = np.random.default_rng(0)
    first, later, x = (rng.standard_normal(shape).astype(np.float32) for shape in ((6, 6), (6, 6), (4, 6)))
    model.graph.initializer.append(numpy_helper.from_array(first, "w"))
    graph = graph_from_proto(model, state_pairs=(("w", "w_next"),))
    assert set(graph.inputs) == {"x", "w"}
    for state in (first, later):
        read = ReadGraph(graph, {"x": x, "w": state}, lambda name: pytest.fail(name))
        found = check_door("m.onnx", model.SerializeToString(), read)
        assert found == DoorVerdict("m.onnx", tensors=2)


def test_the_first_tensor_that_differs_is_named() -> None:
    found = held(with_attribute("LeakyRelu", alpha=0.01))
    assert found.difference is not None
    assert (found.difference.form, found.difference.tensor) == ("as read", "a")
    assert found.difference.op.startswith("loc.act")
    error = found.error()
    assert error is not None
    assert "first in 'a' (loc.act" in error.facts[0]
    assert plain(found)["difference"]["tensor"] == "a"


def test_a_wrong_constant_is_found_at_its_reader() -> None:
    found = held(lambda graph: replace(graph, constants={**graph.constants, "two": np.array(2.01, np.float32)}))
    assert found.difference is not None
    assert found.difference.tensor == "y"


def test_the_canonical_form_is_judged_too(monkeypatch: pytest.MonkeyPatch) -> None:
    right = door.canonical

    def wrong(graph: Graph) -> Canonical:
        form = right(graph)
        return replace(form, graph=with_attribute("LeakyRelu", alpha=0.01)(form.graph))

    monkeypatch.setattr(door, "canonical", wrong)
    found = held()
    assert found.difference is not None
    assert (found.difference.form, found.difference.tensor) == ("in canonical form", "a")


def test_a_default_that_is_lost_is_seen_by_grad_and_by_run(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, right = tmp_path / "plan", file.read_bytes()
    api.plan(file, gpus=2, out=plan)
    ran = api.run(plan, verify=True)
    assert ran.verified
    assert plain_record(ran)["model_file"] == {"file": "model.onnx", "results": 2, "not_done": "", "difference": None}
    made = api.grad(file, loss="mse", loss_input="y", optimizer="sgd", verify=True, output=tmp_path / "train.onnx")
    assert plain_record(made)["model_file"]["results"] == 2
    file.write_bytes(b"other")
    ran = api.run(plan, verify=True)
    assert ran.verified
    assert ran.door is not None
    assert ran.door.not_done.endswith("model.onnx is another file by now")
    file.unlink()
    assert api.run(plan, verify=True).door == DoorVerdict("model.onnx", not_done=f"{file} is not there")
    file.write_bytes(right)
    monkeypatch.setattr(inline, "with_defaults", lambda model, functions, max_bytes: model)
    with pytest.raises(DifferenceError, match="computes something else"):
        api.grad(file, loss="mse", loss_input="y", optimizer="sgd", verify=True, output=tmp_path / "other.onnx")
    assert not (tmp_path / "other.onnx").exists()
    wrong = tmp_path / "wrong"
    api.plan(file, gpus=2, out=wrong)
    ran = api.run(wrong, verify=True)
    assert ran.verified is False
    assert "first in 'a'" in str(ran.difference())
    assert all(comparison.is_same for comparison in ran.comparisons)


def test_what_cannot_be_held_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = a_model()
    drawn.graph.node.append(helper.make_node("RandomNormalLike", ["x"], ["noise"]))
    assert held(model=drawn).not_done == "it draws random numbers (RandomNormalLike)"
    foreign = a_model()
    foreign.graph.node[5].op_type = "Unheard"
    foreign.graph.node[5].domain = "loc"
    content = foreign.SerializeToString()
    x = np.zeros((4, 6), np.float32)
    found = check_door("f", content, ReadGraph(graph_from_proto(a_model()), {"x": x}, lambda name: np.zeros(())))
    assert found.not_done.startswith("the stock runtime does not load it: ")
    monkeypatch.setattr(door, "MOST_BYTES", 100)
    assert held().not_done.startswith("its weights and inputs are more than")
    assert held_against_file(tmp_path).not_done == "it is no file of one model"
    assert door_fact(held())[1].startswith("not done for model.onnx: its weights")


def test_weights_in_other_files_and_constants_that_are_folded_are_compared(tmp_path: Path) -> None:
    model = a_model()
    weights = numpy_helper.to_array(model.graph.initializer[0])
    (tmp_path / "w.bin").write_bytes(weights.tobytes())
    held_outside = TensorProto(name="w", dims=(6, 6), data_type=1, data_location=TensorProto.EXTERNAL)
    held_outside.external_data.add(key="location", value="w.bin")
    model.graph.initializer[0].CopyFrom(held_outside)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert held_against_file(tmp_path / "m.onnx") == DoorVerdict("m.onnx", 2)
    (tmp_path / "w.bin").unlink()
    assert held_against_file(tmp_path / "m.onnx").not_done.startswith("weights cannot be read from")


def test_a_plan_of_before_names_no_file(file: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    api.plan(file, gpus=2, out=plan)
    manifest = json.loads((plan / "manifest.json").read_text())
    assert manifest.pop("source")[1] == str(file)
    (plan / "manifest.json").write_text(json.dumps(manifest))
    ran = api.run(plan, verify=True)
    assert ran.verified
    assert ran.door == DoorVerdict("", not_done="the plan does not record its file")
    (plan / "manifest.json").write_text(json.dumps({**manifest, "source": ["a", "b"]}))
    with pytest.raises(TofuError, match="is no file with its digest"):
        api.run(plan)
