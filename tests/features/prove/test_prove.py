"""What a partitioned program computes is what its model computes, shown without running it."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from click.testing import CliRunner

from planner import api
from planner.artifacts.program import Fetch
from planner.commands.main import tofu
from planner.descriptions import in_force
from planner.features.prove.proof.calls import Calls
from planner.features.prove.proof.expression import Num
from planner.features.prove.proof.index import Space
from planner.features.prove.proof.matching import Matching
from planner.features.prove.proof.placing import MismatchError
from planner.features.prove.proof.result import Proof
from planner.features.prove.proof.whole import described
from planner.features.zoo.models import mlp
from planner.graph.core.model import DType, Op, TensorAttribute
from planner.graph.files.to_onnx import write_model
from planner.tdl.node_view import NodeView
from prove_mutants import HALO, HALO_PINS, KINDS, Case, changes_a_value, mutants


@pytest.fixture(scope="module")
def halo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its plan on 3 workers, cut along the height."""
    folder = tmp_path_factory.mktemp("halo")
    onnx.save(onnx.parser.parse_model(HALO), folder / "net.onnx")
    return api.plan(folder / "net.onnx", gpus=3, effort="quick", pin=HALO_PINS, out=folder / "plan").directory


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training step's plan on 4 workers."""
    folder = tmp_path_factory.mktemp("step")
    write_model(mlp(3, 16, 12), folder / "mlp.onnx")
    return api.plan(folder / "mlp.onnx", gpus=4, effort="quick", out=folder / "plan").directory


@pytest.mark.parametrize("name", ["halo", "step"])
def test_a_plan_is_proven(name: str, request: pytest.FixtureRequest) -> None:
    proof = api.prove(request.getfixturevalue(name))
    assert proof.is_proven, proof.fault
    assert proof.fetches
    assert proof.buffers > proof.functions > 0


@pytest.mark.parametrize("name", ["halo", "step"])
def test_a_mutant_that_changes_a_value_is_never_called_equal(name: str, request: pytest.FixtureRequest) -> None:
    """What is called equal is executed, and gives what the model gives."""
    case = Case.of(request.getfixturevalue(name))
    drawn = mutants(case, np.random.default_rng(1))
    kinds = set()
    for _ in range(len(KINDS)):
        kind, mutant = next(drawn)
        proof = case.proof(mutant)
        if proof is None or not proof.is_proven:
            kinds.add(kind)
        else:
            assert not changes_a_value(case, mutant), kind
    assert len(kinds) > len(KINDS) // 2


def test_a_contribution_that_is_left_out_is_named(step: Path) -> None:
    """The fetch that puts the sum together says what it is given, and of which op it is."""
    case = Case.of(step)
    worker = next(
        worker_program for worker_program in case.loaded.program.workers if any(map(_joins, worker_program.steps))
    )
    joining = next(candidate for candidate in worker.steps if _joins(candidate))
    assert isinstance(joining, Fetch)
    pieces = tuple(replace(piece, sources=piece.sources[1:]) for piece in joining.pieces)
    assert all(piece.sources for piece in pieces)
    fetched_bytes = sum(
        piece.region.elements * 4 for piece in pieces for source in piece.sources if source.worker != worker.worker
    )
    shortened = replace(joining, pieces=pieces, predicted_bytes=fetched_bytes)
    changed = replace(
        worker, steps=tuple(shortened if candidate is joining else candidate for candidate in worker.steps)
    )
    workers = tuple(changed if program is worker else program for program in case.loaded.program.workers)
    proof = case.proof(replace(case.loaded, program=replace(case.loaded.program, workers=workers)))
    assert proof is not None
    assert proof.fault is not None
    assert proof.fault.is_counterexample
    tensor = worker.buffers[joining.target].tensor
    assert tensor in proof.fault.holds
    assert "a part" in proof.fault.holds
    assert tensor in proof.fault.op


def _joins(step: object) -> bool:
    return isinstance(step, Fetch) and step.reducer is not None


def test_the_command_says_yes_by_its_exit_code(step: Path) -> None:
    result = CliRunner().invoke(tofu, ["prove", str(step), "--json"], standalone_mode=False)
    assert result.return_value == 0
    assert json.loads(result.stdout)["is_proven"] is True


WRONG = {
    "the lower bound is the upper one": (
        "(float[4,16] x) => (float[4,16] y) { z = Constant <value = float {0.5}> ()  y = Clip(x, z) }",
        {"x": "S(0)"},
        "{ z = Constant <value = float {0.5}> ()  o0 = Clip(i0, , z) }",
    ),
    "a node that its description refuses": (
        "(float[4,16] x) => (float[4,16] y) { z = Constant <value = float {0.5}> ()  y = Clip(x, z) }",
        {"x": "S(0)"},
        "{ z = Constant <value = float {0.5}> ()  o0 = Clip(z, i0) }",
    ),
    "a row of zeros above rows that are equal": (
        """(float[16] b, float[8,16] x) => (float[8,16] y) {
          sh = Constant <value = int64[2] {8, 16}> ()  e = Expand(b, sh)  y = Mul(e, x) }""",
        {"x": "S(0)", "e": "S(0)"},
        """{ sh = Constant <value = int64[2] {4, 16}> ()  t = Expand(i0, sh)
          pads = Constant <value = int64[4] {1, 0, 0, 0}> ()  p = Pad(t, pads)
          s = Constant <value = int64[1] {0}> ()  z = Constant <value = int64[1] {4}> ()  o0 = Slice(p, s, z, s) }""",
    ),
    "a mean over padding that is data": (
        "(float[2,4,8,8] x) => (float[2,4,8,8] y) { y = AveragePool <kernel_shape = [3,3], pads = [1,1,1,1]> (x) }",
        {"x": "S(1)"},
        """{ pads = Constant <value = int64[8] {0,0,1,1,0,0,1,1}> ()  p = Pad(i0, pads)
          o0 = AveragePool <kernel_shape = [3,3]> (p) }""",
    ),
    "a mean beyond the border that is data": (
        """(float[2,4,8,8] x) => (float[2,4,4,4] y) {
          y = AveragePool <kernel_shape = [3,3], strides = [2,2], ceil_mode = 1> (x) }""",
        {"x": "S(1)"},
        """{ pads = Constant <value = int64[8] {0,0,0,0,0,0,1,1}> ()  p = Pad(i0, pads)
          o0 = AveragePool <kernel_shape = [3,3], strides = [2,2]> (p) }""",
    ),
    "a mean beyond the border that is padding": (
        """(float[2,4,8,8] x) => (float[2,4,4,4] y) {
          y = AveragePool <kernel_shape = [3,3], strides = [2,2], ceil_mode = 1, count_include_pad = 1> (x) }""",
        {"x": "S(1)"},
        """{ o0 = AveragePool
          <kernel_shape = [3,3], strides = [2,2], ceil_mode = 1, count_include_pad = 1, pads = [0,0,1,1]> (i0) }""",
    ),
}
"""A model, its pins, and what a worker computes instead of the model's first op."""


@pytest.mark.parametrize("name", WRONG)
def test_a_body_that_computes_something_else_is_not_proven(name: str, tmp_path: Path) -> None:
    proof = _of_another_body(*WRONG[name], tmp_path)
    assert not proof.is_proven


RIGHT = {
    "filters that repeat, cut by channels": (
        """(float[2,4,4,4] x, float[4,8192] v) => (float[2,8,3,3] y, float[4,8192] z) {
          w = Constant <value = float[8,1,2,2] {1,0,0,0,0,1,0,0,1,0,0,0,0,1,0,0,1,0,0,0,0,1,0,0,1,0,0,0,0,1,0,0}> ()
          c = Conv <group = 4> (x, w)  y = Relu(c)  z = Relu(v) }""",
        {"x": "S(1)", "y": "S(1)"},
    ),
    "a tensor and a part of it, read by one op": (
        """(float[4,8] x, float[4,8192] v) => (float[4,8] y, float[4,8192] z) {
          a = Constant <value = int64[1] {7}> ()  b = Constant <value = int64[1] {8}> ()
          d = Constant <value = int64[1] {1}> ()  r = Relu(x)  s = Slice(r, a, b, d)  y = Sub(s, r)
          z = Relu(v) }""",
        {"x": "S(0)", "y": "S(0)"},
    ),
}
"""Models with their pins, of which a part looks like another; the long input has room for segments of several ops."""


@pytest.mark.parametrize("name", RIGHT)
def test_a_plan_whose_parts_look_alike_is_proven(name: str, tmp_path: Path) -> None:
    model, pins = RIGHT[name]
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> net {model}'), tmp_path / "net.onnx")
    proof = api.prove(api.plan(tmp_path / "net.onnx", gpus=2, pin=pins, out=tmp_path / "plan").directory)
    assert proof.is_proven, proof.fault


def test_a_part_that_is_told_by_a_constant_which_repeats_is_not_called_wrong(tmp_path: Path) -> None:
    """The worker's rows are right: they are equal to the first ones."""
    rows = "Constant <value = float[4,2] {1, 2, 3, 4, 1, 2, 3, 4}> ()"
    model = f"(float[1,2] b) => (float[4,2] y) {{ c = {rows}  y = Add(b, c) }}"
    body = "{ c = Constant <value = float[2,2] {1, 2, 3, 4}> ()  t = Add(i0, c)  o0 = Identity(t) }"
    fault = _of_another_body(model, {"y": "S(0)"}, body, tmp_path).fault
    assert fault is None or not fault.is_counterexample


def _of_another_body(model: str, pins: dict[str, str], body: str, folder: Path) -> Proof:
    """What is proven of a plan on 2 workers, which itself is proven, once its functions of one input are others."""
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> net {model}'), folder / "net.onnx")
    case = Case.of(api.plan(folder / "net.onnx", gpus=2, effort="quick", pin=pins, out=folder / "plan").directory)
    plain = case.proof()
    assert plain is not None
    assert plain.is_proven, plain.fault
    nodes = onnx.parser.parse_function(f'<domain: "d", opset_import: ["": 21]> f (i0) => (o0) {body}').node
    changed, models = 0, []
    for model_of_worker in case.loaded.models:
        bodies = {key: deepcopy(function) for key, function in model_of_worker.bodies.items()}
        for function in bodies.values():
            if list(function.input) == ["i0"]:
                changed += 1
                del function.node[:], function.value_info[:]
                function.node.extend(nodes)
        models.append(replace(model_of_worker, bodies=bodies))
    assert changed
    proof = case.proof(replace(case.loaded, models=tuple(models)))
    assert proof is not None
    return proof


def test_an_array_of_an_attribute_counts_with_every_byte() -> None:
    arrays = np.zeros((2, 2000), np.float32)
    arrays[1, 1000] = 1
    tags = []
    for array in arrays:
        op = Op("relu", "Relu", ("x",), ("y",), (("table", TensorAttribute(array)),))
        node = NodeView(op, ((4,),), ((4,),), (None,), input_dtypes=(DType.FLOAT32,), output_dtypes=(DType.FLOAT32,))
        [expression] = described(node, in_force(None, "replicate")[0].description("", "Relu"))
        assert expression is not None
        tags.append(expression.tag("Relu"))
    assert tags[0] != tags[1]


@pytest.mark.parametrize(
    ("dtype", "one", "two", "is_equal"),
    [
        (DType.FLOAT16, 70000.0, 70001.0, False),
        (DType.FLOAT32, 1 / 9, float(np.float32(1 / 9)), True),
        (DType.FLOAT32, 1.0, 1.0001, False),
        (None, 1.0, 1.0 + 1e-9, False),
    ],
)
def test_numbers_are_equal_if_they_are_finite_and_round_to_one(
    dtype: DType | None, one: float, two: float, is_equal: bool
) -> None:
    matching = Matching(Space(), dtype)
    if is_equal:
        deed = matching.placed(Num(one), (), Num(two), ())
        assert (deed.lo, deed.partial) == ((), None)
    else:
        with pytest.raises(MismatchError):
            matching.placed(Num(one), (), Num(two), ())


@pytest.mark.parametrize("name", ["halo", "step"])
def test_a_call_at_another_place_is_found_as_if_it_were_followed(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case.of(request.getfixturevalue(name))
    drawn = mutants(case, np.random.default_rng(2))
    proofs = [case.proof()] + [case.proof(next(drawn)[1]) for _ in range(24)]
    case = replace(case, calls=Calls(case.calls.reference))
    drawn = mutants(case, np.random.default_rng(2))
    monkeypatch.setattr("planner.features.prove.proof.calls._MOST_ALIKE", 0)
    followed = [case.proof()] + [case.proof(next(drawn)[1]) for _ in range(24)]
    assert [proof and proof.fault for proof in proofs] == [proof and proof.fault for proof in followed]
    assert proofs[0] is not None
    assert followed[0] is not None
    assert proofs[0].functions < followed[0].functions
