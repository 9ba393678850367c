"""ONNX Runtime's own CUDA provider, over stand-ins for CUDA's libraries: what it takes, and what a step calls."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cuda_checks
import cuda_stand_in
import five_models
from fast_suite import by_night
from planner import api
from planner.features.zoo.models import build, mlp
from planner.graph.files.to_onnx import write_model
from planner.runtime.engine.gpu.devices import LIBRARIES

pytestmark = [
    pytest.mark.gpu_emulation,
    pytest.mark.skipif(
        bool(cuda_stand_in.missing_tool()), reason=f"nothing to build stand-ins with: {cuda_stand_in.missing_tool()}"
    ),
]

MODELS = Path(__file__).parents[1] / "models"
TEN = (
    *("mlp-5x300", "cnn-5x2048-6", "lenet-5", "alexnet"),
    *("lstm", "gpt-block", "resnet50", "bert", "world/hf-llama.onnx", "world/speech-gru.onnx"),
)


def planned(name: str, workers: int, folder: Path) -> Path:
    """A plan of one of the five networks, of the zoo, or of a model file."""
    if name in five_models.WRITERS:
        return five_models.planned(name, workers, folder)
    if name.endswith(".onnx"):
        model = MODELS / name
    else:
        model = folder / f"{name}.onnx"
        write_model(build(name), model)
    directory = folder / f"{model.stem}.tofu{workers}"
    api.plan(model, gpus=workers, effort="quick", out=directory)
    return directory


@pytest.mark.parametrize(
    ("name", "workers", "gpus"),
    [("lstm", 2, 2), ("gpt-block", 4, 2), pytest.param("lenet-5", 2, 1, marks=pytest.mark.slow)],
)
def test_a_step_waits_for_nobody_and_copies_nothing(name: str, workers: int, gpus: int, tmp_path: Path) -> None:
    """LSTMs with both directions on a GPU each, others on shared ones; each launch on its worker's stream."""
    found = cuda_checks.run("steady", planned(name, workers, tmp_path), gpus)
    assert found["workers"] == workers
    calls = found["calls"]
    waits = {name: count for name, count in calls.items() if "ynchronize" in name or "copy and wait" in name}
    assert waits == {"cudaStreamSynchronize": workers}, "each worker waits once, at the end"
    assert not [name for name in calls if "lloc" in name or "Free" in name]
    assert not [name for name in calls if "host" in name]
    assert {stream for stream, _ in found["launches"]} == set(found["streams"])
    assert {stream for stream, _ in found["copies"]} <= set(found["streams"])
    assert sum(count for _, count in found["launches"]) > found["segments"] / 2


def test_sessions_of_a_gpu_with_one_worker_share_an_arena(tmp_path: Path) -> None:
    plan = planned("gpt-block", 4, tmp_path)
    own, shared = (cuda_checks.run("steady", plan, gpus) for gpus in (2, 4))
    assert shared["sessions"] == own["sessions"] > 100
    assert shared["allocations"] < own["allocations"] - 100
    assert shared["allocated_bytes"] < own["allocated_bytes"]


def test_the_child_alone_touches_a_gpu(small_plan: Path) -> None:
    """It finds out what there is, answers what the sessions take, and runs."""
    found = cuda_checks.run("supervised", small_plan, gpus=2)
    assert "trying the GPUs" in found["doing"]
    assert found["moved"] == [found["predicted"]] * 2
    assert found["sessions"] > 0
    assert found["on_cpu"] == []
    assert [device for device, _ in found["beside"]] == [0, 1]
    assert all(size > 0 for _, size in found["beside"])
    assert not found["is_cuda_here"]


def test_an_op_on_the_cpu_reads_what_is_there_now() -> None:
    """What is bound is copied in each run, on the worker's stream, and not once when it is bound."""
    found = cuda_checks.run("on-cpu")
    assert found["on_cpu"] == ["Cosh of float32", "Sinh of float32"]
    np.testing.assert_allclose(found["found"], found["wanted"], rtol=1e-5)
    assert len(set(found["found"])) == 3
    assert found["device"] == [1, 1], "there and back once, for both ops"
    assert [stream for stream, _ in found["copies"]] == [found["stream"]]


@pytest.mark.slow
def test_the_hosts_time_is_measured(small_plan: Path) -> None:
    """In threads, in processes, and alone: each takes some time."""
    bench = Path(__file__).parents[2] / "bench" / "host_time.py"
    command = [sys.executable, str(bench), "--plan", str(small_plan), "--rounds", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    (row,) = (line for line in done.stdout.splitlines() if line.startswith("│"))
    name, workers, *numbers = (cell.strip() for cell in row.strip("│ ").split("│"))
    assert (name, workers, len(numbers)) == (small_plan.name, "2", 5)
    assert all(float(number) > 0 for number in numbers)


def test_functions_of_a_plan_are_taken(tmp_path: Path) -> None:
    found = cuda_checks.run("functions", planned("gpt-block", 2, tmp_path))
    assert found["counts"]["functions"] > 40
    assert found["counts"]["accepted"] == found["counts"]["functions"], found


@pytest.mark.parametrize(("workers", "name"), by_night([2, 8], TEN, one_of=2))
def test_functions_of_ten_models_are_taken(name: str, workers: int, tmp_path: Path) -> None:
    found = cuda_checks.run("functions", planned(name, workers, tmp_path))
    assert found["counts"]["functions"] > 0
    assert not found["refused"]
    assert not found["on_cpu"]


@pytest.mark.slow
def test_the_table_of_kernels_says_what_the_provider_does() -> None:
    """ONNX's own cases of single ops: taken as the table says, and changed ones are taken with the same numbers."""
    found = cuda_checks.run("onnx-cases")
    assert found["table"]["alike"] > 800
    assert not found["table"]["unlike"]
    assert found["forms"]["compared"] > 400
    assert not found["forms"]["refused"]
    assert not found["forms"]["other numbers"]


def run_on_cuda(plan: Path, *, without: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """``tofu run --device cuda``, where CUDA's libraries are stand-ins."""
    environment = cuda_stand_in.environment(cuda_stand_in.build(), without=without)
    command = [sys.executable, "-m", "planner", "run", str(plan), "--device", "cuda"]
    return subprocess.run(command, env=environment | variables, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def small_plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    write_model(mlp(2, 8, 8), folder / "mlp.onnx")
    api.plan(folder / "mlp.onnx", gpus=2, out=folder / "plan")
    return folder / "plan"


@pytest.mark.parametrize(("library", "source"), LIBRARIES)
def test_a_library_that_is_not_there_is_named(library: str, source: str, small_plan: Path) -> None:
    done = run_on_cuda(small_plan, without=library)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("error:") == 1
    said = " ".join(done.stderr.split())
    assert f"{library}: file too short" in said
    assert [other for other, _ in LIBRARIES if f"{other}:" in said] == [library]
    assert f"install {source}" in said


def test_a_driver_that_is_too_old_is_told(small_plan: Path) -> None:
    done = run_on_cuda(small_plan, STAND_IN_CUDA="12080")
    assert done.returncode == 2
    assert "the driver is made for CUDA 12, and ONNX Runtime is built with CUDA 13" in " ".join(done.stderr.split())


def test_a_gpu_that_does_not_compute_is_not_used(small_plan: Path) -> None:
    """The stand-ins load, find a GPU and make sessions; only their numbers tell that there is none."""
    done = run_on_cuda(small_plan)
    assert done.returncode == 2
    assert "GPU 0:" in done.stderr
    assert "Conv" in done.stderr


def test_an_op_without_a_kernel_is_told_before_anything_starts(tmp_path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 8]) for name in "xy"]
    nodes = [helper.make_node("Relu", ["x"], ["z"]), helper.make_node("Acosh", ["z"], ["y"])]
    model = helper.make_model(
        helper.make_graph(nodes, "g", value[:1], value[1:]), opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )
    onnx.save(model, tmp_path / "model.onnx")
    api.plan(tmp_path / "model.onnx", gpus=2, out=tmp_path / "plan")
    found: dict[str, Any] = cuda_checks.run("functions", tmp_path / "plan")
    assert found["on_cpu"] == ["Acosh of float32"]
    assert not found["refused"]
    assert json.dumps(found)
