"""Parameters that a file holds once per sample are trained as one; what only looks like them is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from command_line import ROOT
from drawn import random
from planner import api
from planner.commands import main as cli
from planner.errors import UnsupportedError
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import to_model
from planner.graph.reading.from_onnx import read_model
from planner.training.build import build_training_graph
from planner.training.parameters.infer import infer_parameters
from planner.training.parameters.per_sample import decided

node = helper.make_node
MODELS = ROOT / "tests" / "models"
OPTIONS: dict[str, Any] = {"loss": "mse", "optimizer": "sgd", "learning_rate": 1.0}
ROW, TABLE = random((1, 1, 8), 2), random((1, 4, 8), 3)


def net(*nodes: Any) -> list[Any]:
    """Two products, between which "h" [2, 4, 8] becomes "m"."""
    return [node("MatMul", ["x", "w"], ["h"]), *nodes, node("MatMul", ["m", "v"], ["y"])]


FORMS = {
    "concat": (net(node("Concat", ["c", "h"], ["m"], axis=1)), ROW, 0),
    "add": (net(node("Add", ["h", "c"], ["m"])), TABLE, 0),
    "mul": (net(node("Mul", ["c", "h"], ["m"])), ROW, 0),
    "both": (net(node("Add", ["h", "c"], ["a"]), node("Concat", ["a", "c"], ["m"], axis=1)), TABLE, 0),
    "after positions": (
        net(node("Add", ["c", "p"], ["t"]), node("Concat", ["t", "h"], ["m"], axis=1)), ROW, 0,
    ),
    "transposed": (
        net(node("Transpose", ["c"], ["t"], perm=[1, 0, 2]), node("Concat", ["t", "h"], ["m"], axis=1)), ROW, 1,
    ),
    "samples in dim 1": (
        net(
            node("Transpose", ["h"], ["u"], perm=[1, 0, 2]), node("Concat", ["c", "u"], ["q"], axis=0),
            node("Transpose", ["q"], ["m"], perm=[1, 0, 2]),
        ),
        ROW, 1,
    ),
}  # fmt: skip


def made(forward_model: Callable, nodes: list[Any], c: np.ndarray) -> Graph:
    read = {name for one in nodes for name in one.input}
    others = {"w": random((8, 8), 4), "v": random((8, 3), 5), "p": random((1, 3, 8), 6)}
    constants = {"c": c, **{name: value for name, value in others.items() if name in read}}
    return forward_model(nodes, constants, {"x": random((2, 4, 8), 1)}).graph()


def of_form(forward_model: Callable, form: str) -> Graph:
    nodes, row, dim = FORMS[form]
    return made(forward_model, nodes, np.repeat(row, 2, dim))


def built(graph: Graph, batch: int | None = None) -> Graph:
    """The step; that "c" is trained is said, for of a table that a Mul reads it is not inferred."""
    held, parameters = decided(graph, "y", train=["c"])
    return build_training_graph(held, parameters=parameters, batch=batch, **OPTIONS)


def gradients(step: Graph, data: dict[str, np.ndarray], reference: Callable) -> dict[str, np.ndarray]:
    """By parameter: what a step at the rate 1 takes away."""
    found = reference(to_model(step), data)
    return {pair.current: step.initial[pair.current] - found[pair.following] for pair in step.state}


@pytest.mark.parametrize("form", FORMS)
def test_copies_are_one_parameter_whose_gradient_is_their_sum(
    form: str, forward_model: Callable, reference: Callable
) -> None:
    graph = of_form(forward_model, form)
    _, row, dim = FORMS[form]
    step = built(graph)
    apart = build_training_graph(graph, parameters=infer_parameters(graph, "y", train=["c"]), **OPTIONS)
    assert step.tensors["c"].shape == row.shape
    np.testing.assert_array_equal(step.initial["c"], row)
    assert apart.tensors["c"].shape[dim] == 2
    data = {name: random(step.tensors[name].shape, 7) for name in ("x", "target")}
    found, expected = gradients(step, data, reference), gradients(apart, data, reference)
    expected["c"] = expected["c"].sum(axis=dim, keepdims=True)
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        np.testing.assert_allclose(gradient, expected[name], rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("form", ["concat", "add", "mul", "both", "samples in dim 1"])
@pytest.mark.parametrize("batch", [1, 4])
def test_another_batch_trains_the_same(form: str, batch: int, forward_model: Callable, reference: Callable) -> None:
    """The loss is a mean over samples, so the gradient of a batch is the mean of the gradients of its samples."""
    graph = of_form(forward_model, form)
    step, one = (built(graph, count) for count in (batch, 1))
    assert step.tensors["c"].shape == FORMS[form][1].shape
    data = {name: random(step.tensors[name].shape, 7) for name in ("x", "target")}
    each = [
        gradients(one, {name: value[index : index + 1] for name, value in data.items()}, reference)
        for index in range(batch)
    ]
    for name, gradient in gradients(step, data, reference).items():
        mean = np.mean([found[name] for found in each], axis=0)
        np.testing.assert_allclose(gradient, mean, rtol=1e-9, atol=1e-12, err_msg=name)


def test_only_what_does_not_broadcast_reads_an_expand(forward_model: Callable) -> None:
    graphs = {form: decided(of_form(forward_model, form), "y", train=["c"])[0] for form in FORMS}
    counts = {form: sum(op.op_type == "Expand" for op in graph.ops) for form, graph in graphs.items()}
    assert counts == {form: int(form not in ("add", "mul")) for form in FORMS}


def why(graph: Graph) -> str:
    held, parameters = decided(graph, "y")
    assert held is graph
    (found,) = (one for one in parameters.decisions if one.name == "c")
    assert found.shape == graph.tensors["c"].shape
    assert found.verdict.value == "trained"
    return found.why


@pytest.mark.parametrize("form", ["concat", "add"])
def test_slices_that_differ_stay_apart_and_keep_the_batch(form: str, forward_model: Callable) -> None:
    nodes, row, dim = FORMS[form]
    values = np.repeat(row, 2, dim)
    values[1, 0, 3] = np.nextafter(values[1, 0, 3], 9)
    graph = made(forward_model, nodes, values)
    assert why(graph).endswith("one for each of 2 samples, trained apart: they differ")
    with pytest.raises(UnsupportedError) as raised:
        build_training_graph(graph, batch=4, **OPTIONS)
    assert "its parameter 'c' has a value for each sample" in raised.value.facts[0]


def test_samples_are_followed_through_every_described_operator(forward_model: Callable) -> None:
    nodes = [node("Einsum", ["x", "w"], ["h"], equation="ntd,de->nte"), *FORMS["concat"][0][1:]]
    _, parameters = decided(made(forward_model, nodes, np.repeat(ROW, 2, 0)), "y")
    (row,) = (row for row in parameters.decisions if row.name == "c")
    assert row.shape == (1, 1, 8)
    assert row.why.endswith("held once per sample, trained as one")


def test_bits_count_and_not_numbers(forward_model: Callable) -> None:
    values = np.repeat(ROW, 2, 0)
    values[:, 0, 0] = 0.0, -0.0
    assert why(made(forward_model, FORMS["concat"][0], values)).endswith("they differ")


def test_values_in_external_data_stay_apart_and_that_is_said(forward_model: Callable) -> None:
    graph = of_form(forward_model, "concat")
    graph = replace(graph, constants={**graph.constants, "c": None})
    assert why(graph).endswith("trained apart: external data, not known to be equal")


def test_zeros_may_be_a_table_of_positions(forward_model: Callable) -> None:
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Add", ["h", "pos_embed"], ["y"])]
    constants = {"w": random((8, 8), 4), "pos_embed": np.zeros((6, 8))}
    graph = forward_model(nodes, constants, {"x": random((6, 8), 1)}).graph()
    step = build_training_graph(graph, **OPTIONS)
    assert step.tensors["pos_embed"].shape == (6, 8)
    says = {one.name: one.why for one in decided(graph, "y")[1].decisions}
    assert says["pos_embed"].endswith("trained apart: one value throughout, so not known to be copies")


def test_copies_behind_an_operator_that_mixes_samples_stay_apart_and_that_is_said(forward_model: Callable) -> None:
    nodes = [node("MatMul", ["x", "w"], ["g"]), node("Softmax", ["g"], ["h"], axis=0), *FORMS["concat"][0][1:]]
    graph = made(forward_model, nodes, np.repeat(ROW, 2, 0))
    assert why(graph).endswith("trained apart: they are equal, but the samples cannot be followed to where it is read")
    assert "sample" not in why(made(forward_model, nodes, random((2, 1, 8), 2)))


OTHERS = {
    "matrix": (net(node("MatMul", ["h", "c"], ["m"])), np.repeat(random((1, 8, 8), 2), 2, 0)),
    "matrix of as many rows": (
        [node("Reshape", ["x", "shape"], ["h"]), node("MatMul", ["h", "c"], ["m"]), node("MatMul", ["m", "v"], ["y"])],
        np.repeat(random((1, 8), 2), 2, 0),
    ),
    "table": (
        [node("MatMul", ["x", "w"], ["h"]), node("ArgMax", ["h"], ["i"], axis=2, keepdims=0),
         node("Mod", ["i", "two"], ["j"]), node("Gather", ["c", "j"], ["m"]), node("MatMul", ["m", "v"], ["y"])],
        np.repeat(random((1, 8), 2), 2, 0),
    ),
    "read by a product as well": (
        net(node("Concat", ["c", "h"], ["a"], axis=1), node("Transpose", ["c"], ["t"], perm=[0, 2, 1]),
            node("MatMul", ["h", "t"], ["b"]), node("Slice", ["a", "start", "end", "one"], ["d"]),
            node("Add", ["b", "d"], ["m"])),
        np.repeat(ROW, 2, 0),
    ),
    "kernel": (
        [node("Conv", ["x", "c"], ["m"], pads=[1, 1]), node("Transpose", ["m"], ["y"], perm=[0, 2, 1])],
        np.repeat(random((1, 4, 3), 2), 2, 0),
    ),
    "positions": (net(node("Reshape", ["h", "four"], ["a"]), node("Add", ["a", "c"], ["m"])),
                  np.repeat(random((1, 8), 2), 2, 0)),
}  # fmt: skip
INTEGERS = {"shape": [4, 8, 2], "two": 2, "start": [0], "end": [4], "one": [1], "four": [2, 2, 2, 8]}


@pytest.mark.parametrize("case", OTHERS)
def test_what_is_no_copy_for_each_sample_stays(case: str, forward_model: Callable) -> None:
    """Each has dims of 2, as there are samples, and equal slices along them."""
    nodes, value = OTHERS[case]
    read = {name for one in nodes for name in one.input}
    others = {"w": random((8, 8), 4), "v": random((8, 3), 5)}
    constants = {name: np.array(number, np.int64) for name, number in INTEGERS.items() if name in read}
    parameters = {"c": value, **{name: array for name, array in others.items() if name in read}}
    graph = forward_model(nodes, parameters, {"x": random((2, 4, 8), 1)}, constants).graph()
    assert "sample" not in why(graph)
    assert build_training_graph(graph, **OPTIONS).tensors["c"].shape == value.shape


def run(step: Graph, data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    content = to_model(step).SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    state = {pair.current: step.initial[pair.current] for pair in step.state}
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {**state, "learning_rate": np.array(1, np.float32), **data}), strict=True))


def test_the_optimized_export_trains_what_the_raw_one_trains() -> None:
    steps = [build_training_graph(read_model(MODELS / "exports" / f"{name}.onnx"), **OPTIONS)
             for name in ("vit", "vit.raw")]  # fmt: skip
    names = ("expand", "m.vit.embeddings.cls_token")
    np.testing.assert_array_equal(*(step.initial[name] for step, name in zip(steps, names, strict=True)))
    data = {name: random(steps[0].tensors[name].shape, 7).astype(np.float32) for name in ("x", "target")}
    found, expected = (
        run(step, data)[f"{name}.next"] - step.initial[name] for step, name in zip(steps, names, strict=True)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [6, None])
@pytest.mark.parametrize("name", ["hf-vit", "hf-bert"])
def test_exports_are_planned_run_and_verified(name: str, batch: int | None, tmp_path: Path) -> None:
    model, step = MODELS / "world" / f"{name}.onnx", tmp_path / "train.onnx"
    result = api.grad(model, loss="softmax_cross_entropy", optimizer="sgd", batch=batch, output=step)
    (row,) = (one for one in result.parameters if "samples" in one.evidence)
    assert row.why.endswith("; held once per sample, trained as one")
    assert (row.name, row.shape) in (("expand", (1, 1, 16)), ("embedding_1", (1, 12, 16)))
    api.plan(step, gpus=2, effort="quick", out=tmp_path / "plan")
    ran = api.run(tmp_path / "plan", steps=1, verify=True)
    assert ran.verified, ran.difference()


def test_the_table_and_json_say_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["grad", str(MODELS / "exports" / "vit.onnx"), "--loss", "mse", "--optimizer", "sgd"]
    command += ["--output", str(tmp_path / "step.onnx")]
    assert cli.main(command) == 0
    assert "held once per sample, trained as one" in " ".join(capsys.readouterr().out.split())
    assert cli.main([*command, "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["parameters"]}
    assert rows["expand"] == {
        "name": "expand", "shape": [1, 1, 8], "verdict": "trained", "evidence": ["readers", "samples"],
        "why": "read by Concat; held once per sample, trained as one",
    }  # fmt: skip


def test_training_information_has_it_once(tmp_path: Path) -> None:
    model = MODELS / "exports" / "vit.onnx"
    for form in ("onnx", "training-info"):
        api.grad(model, loss="mse", optimizer="sgd", lr=1.0, form=form, output=tmp_path / f"{form}.onnx")
    api.grad(tmp_path / "training-info.onnx", output=tmp_path / "again.onnx")
    steps = [read_model(tmp_path / f"{name}.onnx") for name in ("onnx", "again")]
    assert [step.tensors["expand"].shape for step in steps] == [(1, 1, 8)] * 2
    data = {name: random(steps[0].tensors[name].shape, 7).astype(np.float32) for name in ("x", "target")}
    first, second = (run(step, data)["expand.next"] for step in steps)
    np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-7)
