"""What `tofu profile` measures, and plans that stand on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from planner import api, opdefs
from planner.algebra.tiling import Tiling
from planner.cost.seconds.parts import different_parts
from planner.errors import UsageError
from planner.features.ops.strategies import enumerate_strategies
from planner.features.zoo.models import build
from planner.graph.files.to_onnx import write_model
from planner.graph.rewriting.canonical import canonical
from planner.machine.device_profile import load_profile
from planner.runtime.engine.gpu.devices import probe_cuda

MACHINE = """\
name: four
device: {memory: 1GiB}
levels: [{name: network, ways: 2, bandwidth: 1GB/s}, {name: link, ways: 2, bandwidth: 10GB/s, latency: 5us}]
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_model(build("mlp-2x24", batch=36), tmp_path / "m.onnx")
    (tmp_path / "four.yaml").write_text(MACHINE)
    return tmp_path


def test_without_workers_ops_are_measured_whole() -> None:
    result = api.profile(Path("m.onnx"))
    assert result.output == Path("m.profile.yaml")
    assert load_profile(result.output) == result.profile
    ops = opdefs.standard().bind_all(canonical(build("mlp-2x24", batch=36)).graph)
    wanted = {(part.signature, part.shapes) for op in ops for part in different_parts(op, Tiling((), ()))}
    assert {(op.signature, op.shapes) for op in result.profile.ops} == wanted
    assert result.model_unmeasured == 0
    assert result.model_seconds > 0
    assert result.profile.device.kind == "cpu"


def test_for_workers_every_basic_strategy_is_there() -> None:
    profile = api.profile(Path("m.onnx"), gpus=6, out=Path("six.yaml")).profile
    assert load_profile(Path("six.yaml")) == profile
    measured = {(op.signature, op.shapes) for op in profile.ops}
    for op in opdefs.standard().bind_all(canonical(build("mlp-2x24", batch=36)).graph):
        for ways in (3, 6):  # 6 is cut in 3, then in 2
            for candidate in enumerate_strategies(op, ways):
                assert candidate.veto or {
                    (part.signature, part.shapes) for part in different_parts(op, candidate.strategy)
                } <= (measured)


@pytest.mark.slow
def test_plans_for_a_topology_are_measured_to_the_last_op(capsys: pytest.CaptureFixture[str]) -> None:
    """The topology says nothing of its devices' speed: without the profile there was no plan for the least time."""
    with pytest.raises(UsageError, match="does not say how fast its devices compute"):
        api.plan(Path("m.onnx"), topology="four.yaml", objective="time", out=Path("p"))
    api.profile(Path("m.onnx"), topology="four.yaml", out=Path("t.yml"))
    for objective in ("bytes", "time"):
        plan = api.plan(
            Path("m.onnx"),
            topology="four.yaml",
            objective=objective,  # type: ignore[arg-type]
            profile=Path("t.yml"),
            effort="quick",
            out=Path(objective),
        ).plan
        assert plan.estimate is not None
        assert plan.estimate.sources is not None
        assert plan.estimate.sources.roofline_ops == 0
        if objective == "bytes":
            assert plan.estimate.sources.scaled_ops == 0
        # Nothing is said of seconds: so small an op may be measured as none beside what a call takes.
        assert plan.estimate.sources.ops > 0
        assert api.explain(Path(objective)).plan.estimate == plan.estimate
    rows = api.compare(Path("time")).rows
    sources_of = [row.sources for row in rows if row.moved_bytes is not None]
    assert all(sources is not None and sources.roofline_ops == 0 for sources in sources_of)


def test_what_is_too_large_is_named_and_not_measured() -> None:
    result = api.profile(Path("m.onnx"), memory="5KiB")
    assert {op.signature.op for op in result.profile.ops} == {"Mul"}, "two matrices of 24 by 24 fit"
    assert result.model_unmeasured == sum(op.op_type != "Mul" for op in build("mlp-2x24", batch=36).ops)
    reasons = {op.reason for op in result.profile.unmeasured if op.signature.op == "Gemm"}
    assert reasons == {"its tensors take 9.0 KiB, and 5.0 KiB may be taken"}


MINE = """\
from planner.tdl.builder import op

@op("Scale", domain="mine")
def scale(node, x):
    return lambda i, j: x[i, j]
"""


def test_an_operator_that_nothing_here_executes_is_named_and_stands_by_the_roofline() -> None:
    Path("mine.py").write_text(MINE)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [32, 32]) for name in "xyz"]
    nodes = [helper.make_node("Exp", ["x"], ["y"]), helper.make_node("Scale", ["y"], ["z"], domain="mine")]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
    graph = helper.make_graph(nodes, "g", values[:1], values[2:], value_info=values[1:2])
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), "mine.onnx")
    model, mine = Path("mine.onnx"), Path("mine.py")
    api.plan(model, gpus=2, opdefs=mine, models=False, out=Path("own"))
    result = api.profile(Path("own"), topology="four.yaml", out=Path("mine.yaml"))
    assert {op.signature.op for op in result.profile.ops} == {"Exp"}
    assert {op.signature.op for op in result.profile.unmeasured} == {"mine.Scale"}
    assert result.model_unmeasured == 1
    with pytest.raises(UsageError, match=r"the profile has no mine\.Scale like one of the model"):
        api.plan(model, topology="four.yaml", opdefs=mine, profile=Path("mine.yaml"), out=Path("p"))
    Path("fast.yaml").write_text(MACHINE.replace("1GiB", "1GiB, memory_bandwidth: 10GB/s"))
    options: dict[str, Any] = {"opdefs": mine, "profile": Path("mine.yaml"), "objective": "bytes"}
    planned = api.plan(model, topology="fast.yaml", out=Path("p"), **options)
    estimate = planned.plan.estimate
    assert estimate is not None
    assert estimate.sources is not None
    assert (estimate.sources.measured_ops, estimate.sources.roofline_ops) == (1, 1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"out": Path("m.txt")}, "a profile is written as .yaml, .yml"),
        ({"out": Path("nowhere/m.yaml")}, "there is no folder nowhere"),
        ({"memory": "4Gib"}, "unknown unit"),
        ({"topology": "four.yaml", "gpus": 5}, "has 4 devices, and 5 GPUs are asked for"),
        ({"device": "cuda", "custom_ops": (Path("x.so"),)}, "libraries are for --device cpu"),
    ],
)
def test_what_cannot_be_done_is_refused_before_it_is_begun(options: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says.replace(".", r"\.")):
        api.profile(Path("m.onnx"), **options)  # type: ignore[arg-type]
    assert not list(Path().glob("*.profile.yaml"))


def test_without_a_gpu_there_is_no_profile_of_one() -> None:
    if not probe_cuda().missing:
        pytest.skip("there is a GPU")
    with pytest.raises(UsageError, match="no GPU can be used"):
        api.profile(Path("m.onnx"), device="cuda")


def test_a_profile_needs_a_topology() -> None:
    api.profile(Path("m.onnx"))
    with pytest.raises(UsageError, match="times are estimated for a topology, and there is none"):
        api.plan(Path("m.onnx"), gpus=2, profile=Path("m.profile.yaml"))
