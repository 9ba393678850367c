"""Worker models: valid ONNX, and lossless."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from planner.artifacts.program import Arena
from planner.artifacts.worker_model import SEGMENTS, WorkerModels, read_worker_model
from planner.errors import ModelError


@pytest.fixture(params=["reduction", "training", "halo"])
def case(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def test_round_trip(case: Any) -> None:
    assert case.program.workers
    for program in case.program.workers:
        model = WorkerModels(case.bodies, opset=21, plan_digest="abc").write(program, case.constants)
        onnx.checker.check_model(model, full_check=True)
        assert model.ir_version <= 13
        read = read_worker_model(ModelProto.FromString(model.SerializeToString()))
        assert read.program == program
        assert read.plan_digest == "abc"
        assert {name: body.SerializeToString() for name, body in read.bodies.items()} == {
            name: case.bodies[name].SerializeToString() for name in read.bodies
        }
        for name in program.fixed:
            np.testing.assert_array_equal(read.constants[name], case.constants[name])
            assert read.constants[name].dtype == case.constants[name].dtype


def test_the_memory_plan_is_in_the_file(training: Any) -> None:
    program = training.program.workers[0]
    offsets = {name: 64 * number for number, name in enumerate(program.buffers)}
    placed = replace(program, arena=Arena(64 * len(offsets), offsets, 128))
    model = WorkerModels(training.bodies, opset=21).write(placed, training.constants)
    assert read_worker_model(model).program == placed
    next(entry for entry in model.metadata_props if entry.key == "tofu.arena").value = "[]"
    with pytest.raises(ModelError, match="is no worker model"):
        read_worker_model(model)


def test_every_buffer_has_a_type_in_the_file(training: Any) -> None:
    program = training.program.workers[0]
    graph = WorkerModels(training.bodies, opset=21).write(program, training.constants).graph
    typed = [value.name for value in (*graph.input, *graph.output, *graph.value_info)]
    typed += [tensor.name for tensor in graph.initializer]
    assert sorted(typed) == sorted(program.buffers)


def test_a_stranger_is_no_worker_model() -> None:
    with pytest.raises(ModelError, match="is no worker model"):
        read_worker_model(ModelProto())


def test_a_worker_model_of_another_version_is_refused(training: Any) -> None:
    model = WorkerModels(training.bodies, opset=21).write(training.program.workers[0], training.constants)
    (entry,) = (entry for entry in model.opset_import if entry.domain == SEGMENTS)
    entry.version += 1
    with pytest.raises(ModelError, match=rf"is of another version: {entry.version} of {SEGMENTS}, not") as caught:
        read_worker_model(model)
    assert "tofu build" in caught.value.hint


def test_a_lacking_function_is_named(training: Any) -> None:
    model = WorkerModels(training.bodies, opset=21).write(training.program.workers[0], training.constants)
    del model.functions[:]
    with pytest.raises(ModelError, match="functions that it does not have") as caught:
        read_worker_model(model)
    assert caught.value.facts == ("step", "update")


def test_a_node_that_is_no_step(training: Any) -> None:
    model = WorkerModels(training.bodies, opset=21).write(training.program.workers[0], training.constants)
    model.graph.node.add(op_type="Relu", name="stranger")
    with pytest.raises(ModelError, match=r"node 'stranger' \(Relu\), which is no step"):
        read_worker_model(model)


@pytest.mark.parametrize("where", ["attribute", "subgraph attribute", "subgraph initializer"])
def test_no_tensor_has_external_data(reduction: Any, where: str) -> None:
    """ONNX Runtime would read it from the working directory: a file of whoever runs the plan."""
    program = reduction.program.workers[0]
    model = WorkerModels(reduction.bodies, opset=21).write(program, reduction.constants)
    assert read_worker_model(model).program == program
    tensor = onnx.numpy_helper.from_array(np.zeros(4, np.float32), "t")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="notes.bin")
    constant = onnx.helper.make_node("Constant", [], ["c"], "hidden", value=tensor)
    graph = onnx.helper.make_graph([constant], "inner", [], [], initializer=[])
    if where == "subgraph initializer":
        graph = onnx.helper.make_graph([], "inner", [], [], initializer=[tensor])
    inner = onnx.helper.make_node("If", ["b"], ["y"], "branch", then_branch=graph)
    model.functions[0].node.append(constant if where == "attribute" else inner)
    with pytest.raises(ModelError, match="has external data, which no worker model may have") as caught:
        read_worker_model(model)
    holder = "initializer 't'" if where == "subgraph initializer" else "attribute 'value' of Constant 'hidden'"
    assert caught.value.facts == (holder,)
