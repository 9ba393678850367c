"""Plans run end to end: numbers, bytes, verification, and each way in which a plan can be wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from planner import api
from planner.artifacts import plan_folder
from planner.artifacts.plan_folder import write_folder
from planner.artifacts.program import Fetch, Piece
from planner.artifacts.worker_model import WorkerModels
from planner.errors import DifferenceError, ModelError, UsageError
from planner.graph.reading.from_onnx import graph_from_proto
from planner.options.running import RunOptions
from planner.runtime.engine.core.transport import NumpyTransport
from planner.runtime.engine.gpu.devices import probe_cuda, require_cuda
from planner.runtime.run import run_with
from planner.runtime.run_report import StepReport
from run_plan import run_plan


@pytest.fixture(params=["reduction", "training", "halo"])
def case(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def test_a_run_in_memory_is_right_and_moves_what_was_predicted(case: Any) -> None:
    result = run_plan(case.plan, steps=3, verify=True)
    assert result.verified
    assert result.difference() is None
    assert result.no_reference == ""
    assert result.moved_bytes == case.program.predicted_bytes
    assert all(fetch.moved_bytes == fetch.predicted_bytes for fetch in result.fetches)
    assert result.max_error is not None
    assert result.max_error < 1e-5
    assert list(result.results) == list(case.program.outputs)


def test_a_run_in_the_child_gives_the_same_bits(case: Any, tmp_path: Path) -> None:
    directory = case.write(tmp_path / "plan")
    runs = [run_plan(directory, steps=2), run_plan(directory, steps=2), run_plan(case.plan, steps=2)]
    for name in case.program.outputs:
        assert len({run.results[name].tobytes() for run in runs}) == 1
    assert runs[0].moved_bytes == case.program.predicted_bytes
    assert runs[0].verified is None


def test_training_goes_on_from_its_own_state(training: Any, tmp_path: Path) -> None:
    result = run_plan(training.write(tmp_path / "plan"), steps=5)
    assert result.loss_name == "loss"
    assert list(result.losses) == sorted(result.losses, reverse=True)
    x = np.random.default_rng(1).standard_normal((6, 3)).astype(np.float32)
    w = training.graph.initial["W"].astype(np.float64)
    wanted = []
    for _ in range(4):
        y = x.astype(np.float64) @ w
        wanted.append((y**2).sum())
        w = w - np.float32(0.01) * (x.T.astype(np.float64) @ y)
    result = run_plan(training.plan, steps=4, inputs={"X": x})
    np.testing.assert_allclose(result.losses, wanted, rtol=1e-5)
    np.testing.assert_allclose(result.results["W_next"], w, rtol=1e-4, atol=1e-6)


def test_judged_alone_each_step_starts_from_the_whole_models_state(training: Any) -> None:
    free = run_plan(training.plan, steps=4)
    judged = run_plan(training.plan, steps=4, verify=True)
    np.testing.assert_allclose(free.losses, judged.losses, rtol=1e-5)
    assert [comparison.step for comparison in judged.comparisons] == [1, 2, 3, 4]
    assert {tensor.tensor for tensor in judged.comparisons[-1].tensors} == {"loss", "W_next"}


def test_progress_is_told_after_every_step(training: Any) -> None:
    reports: list[StepReport] = []
    result = run_plan(training.plan, steps=3, progress=reports.append)
    assert [(report.step, report.steps) for report in reports] == [(1, 3), (2, 3), (3, 3)]
    assert tuple(report.loss for report in reports) == result.losses
    assert {report.moved_bytes for report in reports} == {training.program.predicted_bytes}


class OneElementMore(NumpyTransport):
    """Copies one element more than it should, where it copies from another worker."""

    def assemble(self, target: Any, parts: Any, reducer: Any) -> int:
        moved = super().assemble(target, parts, reducer)
        remote = [part for part in parts if part.is_remote]
        return moved + sum(part.array.ravel()[:1].copy().nbytes for part in remote[:1])


def test_a_transport_that_copies_one_element_more_is_noticed(case: Any) -> None:
    with pytest.raises(DifferenceError, match="moved other bytes") as caught:
        run_plan(case.plan, transport=OneElementMore())
    assert "fetch" in caught.value.facts[0]
    assert "predicted" in caught.value.facts[0]


def test_a_dropped_contributor_is_caught(reduction: Any) -> None:
    def drop(fetch: Fetch) -> Fetch:
        pieces = tuple(Piece(piece.region, piece.sources[:1]) for piece in fetch.pieces)
        return replace(fetch, pieces=pieces)

    wrong = reduction.with_fetch(0, "Y", drop)
    with pytest.raises(DifferenceError, match="moved other bytes"):
        run_plan(wrong.plan)
    agreeing = reduction.with_fetch(0, "Y", lambda fetch: replace(drop(fetch), predicted_bytes=0))
    result = run_plan(agreeing.plan, verify=True)
    assert result.verified is False
    with pytest.raises(DifferenceError, match="Z"):
        raise result.difference() or AssertionError


def test_swapped_tiles_are_caught(training: Any) -> None:
    def swap(fetch: Fetch) -> Fetch:
        first, second, third = fetch.pieces
        swapped = (replace(first, sources=second.sources), replace(second, sources=first.sources), third)
        return replace(fetch, pieces=swapped)

    with pytest.raises(ModelError, match="inconsistent") as caught:
        run_plan(training.with_fetch(1, "G", swap).plan)
    assert "leaves" in caught.value.facts[0]


def test_replicas_that_differ_are_caught(training: Any) -> None:
    def keep_own_part(fetch: Fetch) -> Fetch:
        (piece,) = fetch.pieces
        own = replace(piece.sources[0], worker=2, buffer="loss.partial")
        return replace(fetch, pieces=(replace(piece, sources=(own,)),), predicted_bytes=0)

    with pytest.raises(DifferenceError, match="hold the same elements") as caught:
        run_plan(training.with_fetch(2, "loss", keep_own_part).plan)
    assert caught.value.facts == ("loss [0:1]: workers 0 and 2",)


def test_a_wrong_halo_is_caught(halo: Any) -> None:
    """The border comes from the wrong place: the own tile's last element in place of the neighbour's first."""

    def shift(fetch: Fetch) -> Fetch:
        own, border = fetch.pieces
        return replace(fetch, pieces=(own, replace(border, sources=own.sources)))

    with pytest.raises(ModelError, match="inconsistent"):
        run_plan(halo.with_fetch(0, "H.wide", shift).plan)


def test_wrong_numbers_fail_the_verification(halo: Any) -> None:
    wrong = replace(halo, constants={"K": np.array([[[1.0, -2.0, 0.501]]], np.float32)})
    result = run_plan(wrong.plan, verify=True)
    assert result.verified is False
    assert str(result.difference()).startswith("the split run differs from the whole model\n  step 1, Y: ")


def test_a_folder_is_opened_once_with_verification_too(
    training: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, opened = training.write(tmp_path / "plan"), []
    digest_of = plan_folder.digest_of
    monkeypatch.setattr(plan_folder, "digest_of", lambda file: opened.append(file.name) or digest_of(file))
    assert api.run(directory, verify=True, engine="local").verified
    assert opened.count("model.onnx") == 1


def test_files_that_do_not_belong_together_are_refused(training: Any, tmp_path: Path) -> None:
    directory = training.write(tmp_path / "plan")
    worker = directory / "worker1.onnx"
    worker.write_bytes(worker.read_bytes() + b"\x00")
    (directory / "worker2.onnx").unlink()
    with pytest.raises(ModelError, match="do not belong together") as caught:
        run_plan(directory)
    assert caught.value.facts == (
        "worker1.onnx is not the file that was planned: its digest differs",
        "worker2.onnx is missing",
    )


def test_a_worker_of_another_plan_is_refused(training: Any, tmp_path: Path) -> None:
    directory = training.write(tmp_path / "plan")
    program = training.program
    files = {file.name: file.read_bytes() for file in directory.iterdir() if file.name != "manifest.json"}
    stranger = WorkerModels(training.bodies, opset=21, plan_digest="x").write(program.workers[1], training.constants)
    files["worker1.onnx"] = stranger.SerializeToString()
    write_folder(tmp_path / "other", files.items(), program)
    with pytest.raises(ModelError, match="worker models of another plan") as caught:
        run_plan(tmp_path / "other")
    assert caught.value.facts == ("worker1.onnx",)


def test_steps_are_checked(reduction: Any) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        run_plan(reduction.plan, steps=0)
    assert run_plan(reduction.plan).losses == ()


def test_parts_of_a_dilated_pool_that_pads_by_itself(plan_of: Callable[..., Any]) -> None:
    """At the end its pads are as many as the kernel is long, which the runtime refuses as pads of a pool."""
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[1, 1, 24] x) => (float[1, 1, 24] y) {
        y = MaxPool <kernel_shape = [2], dilations = [3], auto_pad = "SAME_UPPER"> (x)
    }"""
    plan = plan_of(graph_from_proto(onnx.parser.parse_model(text), state_pairs=()), 4)
    x = np.random.default_rng(1).standard_normal((1, 1, 24)).astype(np.float32)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 2)), constant_values=-np.inf)
    made = run_with(plan, RunOptions(inputs={"x": x})).results["y"]
    assert np.array_equal(made, np.maximum(padded[..., :24], padded[..., 3:]))


def test_nothing_stays_open(training: Any, tmp_path: Path) -> None:
    open_files = Path("/proc/self/fd")
    if not open_files.exists():
        pytest.skip("this system has no /proc")
    directory = training.write(tmp_path / "plan")
    run_plan(directory)
    before = len(list(open_files.iterdir()))
    run_plan(directory)
    assert len(list(open_files.iterdir())) <= before


def test_no_gpu_is_told_plainly(training: Any) -> None:
    probe = probe_cuda()
    if not probe.missing:
        pytest.skip("this machine has a GPU")
    with pytest.raises(UsageError, match="no GPU can be used") as caught:
        require_cuda()
    assert caught.value.facts == (probe.missing,)
    with pytest.raises(UsageError, match="--device cuda"):
        run_with(training.plan, RunOptions(device="cuda"))
    with pytest.raises(UsageError, match="GPUs are named"):
        run_with(training.plan, RunOptions(device_map=(0, 0)))
