"""From a model to verified steps: every output and every next state, every step alone; every byte as predicted."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from fast_suite import chosen, spread
from planner import api
from planner.graph.core.model import Graph
from planner.runtime.run_report import RunResult

MODELS = Path(__file__).parent.parent / "models"


def check(result: RunResult, steps: int) -> None:
    assert result.verified, result.difference()
    assert len(result.comparisons) == result.steps == steps
    assert all(tensor.has_reference for tensor in result.comparisons[0].tensors)
    assert result.predicted_bytes == result.moved_bytes
    assert all(fetch.predicted_bytes == fetch.moved_bytes for fetch in result.fetches)


@pytest.mark.parametrize("workers", chosen([1, 2, 3, 4, 6], fast=[3]))
def test_mlp(plan_of: Callable[..., Any], mlp_step: Graph, workers: int) -> None:
    planned = plan_of(mlp_step, workers)
    result = api.run(planned.directory, steps=5, verify=True)
    check(result, 5)
    assert result.losses[-1] < result.losses[0]


@pytest.mark.parametrize("workers", chosen([1, 2, 3, 4, 6, 8], fast=[1, 3]))
def test_cnn(plan_of: Callable[..., Any], cnn_step: Graph, workers: int) -> None:
    planned = plan_of(cnn_step, workers)
    check(api.run(planned.directory, steps=3, verify=True), 3)


@pytest.mark.parametrize(("workers", "tiling"), spread([2, 3, 4], ["S(2)", "S(3)"], one_of=6))
def test_cnn_cut_spatially(
    plan_of: Callable[..., Any],
    cnn_step: Graph,
    spatial_pins: Callable[[Graph, str], Mapping[str, str]],
    workers: int,
    tiling: str,
) -> None:
    planned = plan_of(cnn_step, workers, pin=spatial_pins(cnn_step, tiling), effort="quick")
    strategies = planned.result.plan.strategies
    axis = "y0" if tiling == "S(2)" else "y1"
    assert str(strategies["one.y_op"]).startswith(axis), "the convolution is cut along the pinned dim"
    check(api.run(planned.directory, steps=2, verify=True), 2)


@pytest.mark.slow
def test_cnn_cut_spatially_in_both_directions(
    plan_of: Callable[..., Any], cnn_step: Graph, spatial_pins: Callable[[Graph, str], Mapping[str, str]]
) -> None:
    planned = plan_of(cnn_step, 4, pin=spatial_pins(cnn_step, "S(2)/2 S(3)/2"), effort="quick")
    check(api.run(planned.directory, steps=2, verify=True), 2)


@pytest.mark.parametrize("workers", chosen([2, 4], fast=[4]))
def test_data_parallelism(plan_of: Callable[..., Any], cnn_step: Graph, workers: int) -> None:
    planned = plan_of(cnn_step, workers, strategy="data")
    check(api.run(planned.directory, steps=2, verify=True), 2)


@pytest.mark.parametrize("workers", chosen([2, 3, 4, 6, 8], fast=[2]))
def test_bert_step_gives_what_pytorch_computed(plan_of: Callable[..., Any], workers: int, tmp_path: Path) -> None:
    """41 parameters are paired with their next values without being told; outputs within 1e-5 of the largest.

    A key's bias does not change a softmax over keys, so its gradient is zero: there both have rounding noise only.
    """
    planned = plan_of(MODELS / "bert_step.onnx", workers)
    oracle = np.load(MODELS / "bert_oracle.npz")
    out = tmp_path / "out.npz"
    result = api.run(planned.directory, inputs=MODELS / "bert_oracle.npz", result=out)
    assert result.moved_bytes == result.predicted_bytes
    got = np.load(out)
    noise = 0
    assert len(got.files) == 42
    for position, name in enumerate(got.files):
        wanted = oracle[f"out_{position}"]
        assert got[name].shape == wanted.shape
        largest = np.abs(wanted).max()
        if largest < 1e-12:
            noise += 1
            assert np.abs(got[name]).max() < 1e-12, name
        else:
            assert np.abs(got[name] - wanted).max() <= 1e-5 * largest, name
    assert noise == 2, "two layers, each with a bias for its keys"


def test_two_runs_give_the_same_bits(plan_of: Callable[..., Any], mlp_step: Graph, tmp_path: Path) -> None:
    planned = plan_of(mlp_step, 3)
    found = []
    for name in ("one.npz", "two.npz"):
        api.run(planned.directory, steps=4, result=tmp_path / name)
        with np.load(tmp_path / name) as arrays:
            found.append({key: arrays[key].tobytes() for key in arrays.files})
    assert found[0] == found[1]


def test_planning_twice_writes_the_same_bytes(plan_of: Callable[..., Any], mlp_step: Graph, tmp_path: Path) -> None:
    planned = plan_of(mlp_step, 4)
    api.plan(tmp_path / "train.onnx", gpus=4, out=tmp_path / "again")
    first = {file.name: file.read_bytes() for file in planned.directory.iterdir()}
    again = {file.name: file.read_bytes() for file in (tmp_path / "again").iterdir()}
    assert first == again


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 6, 8])
def test_resnet50(plan_of: Callable[..., Any], workers: int, tmp_path: Path) -> None:
    train = tmp_path / "r50.onnx"
    api.grad(
        MODELS / "resnet50.raw.onnx", loss="softmax_cross_entropy", optimizer="momentum", lr=0.05, batch=8, output=train
    )
    planned = plan_of(train, workers)
    check_pads(planned.directory)
    result = api.run(planned.directory, steps=5, verify=True)
    check(result, 5)
    assert result.losses[-1] < result.losses[0]


def check_pads(directory: Path) -> None:
    """ONNX Runtime has no CUDA kernel for a ConvTranspose with other pads before than after."""
    found = 0
    for file in directory.glob("worker*.onnx"):
        model = onnx.load(file, load_external_data=False)
        for node in (*model.graph.node, *(node for function in model.functions for node in function.node)):
            pads = next((list(stated.ints) for stated in node.attribute if stated.name == "pads"), [])
            if node.op_type == "ConvTranspose":
                found += 1
                assert pads[: len(pads) // 2] == pads[len(pads) // 2 :], (file.name, pads)
    assert found, "the step has such gradients"
