"""Batches of a directory, schedules, and the profile of a run."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner import api
from planner.errors import UsageError
from planner.features.zoo.models import mlp
from planner.graph.core.model import Graph
from planner.graph.files.to_onnx import to_model
from planner.options.running import RunOptions
from planner.runtime.run import run_with
from planner.runtime.values.feed import BatchFolder, Feed, batch_files
from planner.runtime.values.schedule import Rates, schedule_of

Planner = Callable[..., Any]
GRAPH = mlp(2, 12, 8, learning_rate=0.001)


def batches(directory: Path, form: str, count: int = 3) -> list[np.ndarray]:
    arrays = [np.random.default_rng(seed).standard_normal((8, 12)).astype(np.float32) for seed in range(count)]
    for number, array in enumerate(arrays):
        if form == "npz":
            np.savez(directory / f"{number}.npz", x0=array)
        elif form == "npy":
            np.save(directory / f"{number}.npy", array)
        else:
            (directory / str(number)).mkdir()
            np.save(directory / str(number) / "x0.npy", array)
    return arrays


@pytest.mark.parametrize("form", ["npz", "npy", "folder"])
def test_one_batch_per_step_and_round_again(plan_of: Planner, tmp_path: Path, form: str) -> None:
    arrays = batches(tmp_path, form)
    fed = run_with(plan_of(GRAPH, 2), RunOptions(steps=4, inputs=tmp_path, seed=2))
    state: dict[str, np.ndarray] = {}
    outcome = None
    for step in range(4):
        outcome = run_with(plan_of(GRAPH, 2), RunOptions(inputs={"x0": arrays[step % 3], **state}, seed=2))
        state = {pair.current: outcome.results[pair.following] for pair in GRAPH.state}
    assert outcome is not None
    assert {name: array.tobytes() for name, array in fed.results.items()} == {
        name: array.tobytes() for name, array in outcome.results.items()
    }


def test_batches_go_on_where_a_checkpoint_was(plan_of: Planner, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    batches(tmp_path / "data", "npz")
    plan = plan_of(GRAPH, 2)
    straight = run_with(plan, RunOptions(steps=5, inputs=tmp_path / "data"))
    run_with(plan, RunOptions(steps=2, inputs=tmp_path / "data", checkpoint_dir=tmp_path / "ck" / "ck"))
    again = run_with(
        plan,
        RunOptions(steps=5, inputs=tmp_path / "data", checkpoint_dir=tmp_path / "ck" / "ck", resume=True, verify=False),
    )
    assert again.results["x2"].tobytes() == straight.results["x2"].tobytes()


def test_each_batch_is_verified(plan_of: Planner, tmp_path: Path) -> None:
    batches(tmp_path, "npz")
    assert run_with(plan_of(GRAPH, 2), RunOptions(steps=4, inputs=tmp_path, verify=True)).verified


def test_each_batch_is_read_once(plan_of: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches(tmp_path, "npz")
    read: list[int] = []
    plain = BatchFolder.read

    def counted(self: BatchFolder, places: np.ndarray) -> dict[str, np.ndarray]:
        read.append(int(places[0]))
        return plain(self, places)

    monkeypatch.setattr(BatchFolder, "read", counted)
    run_with(plan_of(GRAPH, 2), RunOptions(steps=5, inputs=tmp_path))
    assert read == [0, 1, 2, 0, 1]


def test_what_are_no_batches(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no batches"):
        batch_files(tmp_path)
    np.savez(tmp_path / "0.npz", x0=np.zeros((8, 12), np.float32), w1=np.zeros((12, 12), np.float32))
    np.savez(tmp_path / "1.npz", x0=np.zeros((7, 12), np.float32))
    (tmp_path / "2.npy").write_bytes(b"no array")
    with Feed(BatchFolder(tmp_path, GRAPH)) as feed:
        with pytest.raises(UsageError, match="more than data"):
            feed.batch(1)
        with pytest.raises(UsageError, match="does not fit"):
            feed.batch(2)
        with pytest.raises(UsageError, match="cannot be read as npy"):
            feed.batch(3, is_last=True)


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("0.05", [0.05, 0.05, 0.05]),
        # of torch.optim.lr_scheduler: StepLR with step_size 2 and gamma 0.5
        ("step:0.8,0.5,2", [0.8, 0.8, 0.4, 0.4, 0.2]),
        # LinearLR with start_factor 1, end_factor 0.2 and total_iters 4
        ("linear:1,0.2,4", [1, 0.8, 0.6, 0.4, 0.2, 0.2]),
        # SequentialLR, after 4 updates, of LinearLR with start_factor 1 / 4 and total_iters 3, and the line above
        ("linear:1,0.2,4,4", [0.25, 0.5, 0.75, 1, 1, 0.8, 0.6, 0.4, 0.2, 0.2]),
        # CosineAnnealingLR with T_max 4 and eta_min 0.1, which then stays there
        ("cosine:1,0.1,4", [1, 0.55 + 0.45 * 0.5**0.5, 0.55, 0.55 - 0.45 * 0.5**0.5, 0.1, 0.1]),
        ("cosine:1,0,4,2", [0.5, 1, 1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5, 0, 0]),
        # SequentialLR of LinearLR, ConstantLR with factor 1, and LinearLR with end_factor 0.1 and total_iters 3
        ("wsd:2,0.2,3,3,2", [1, 2, 2, 2, 2, 2, 1.4, 0.8, 0.2, 0.2]),
        ("wsd:2,0.2,0,3", [2, 1.4, 0.8, 0.2]),
    ],
)
def test_rates(text: str, rates: list[float]) -> None:
    schedule = schedule_of(text)
    np.testing.assert_allclose([schedule.rate(t) for t in range(1, len(rates) + 1)], rates, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("rates", [[0.1, 0.2, 0.3], np.array([0.1, 0.2, 0.3]), lambda update: update / 10])
def test_rates_of_python(rates: Rates) -> None:
    np.testing.assert_allclose([schedule_of(rates).rate(update) for update in (1, 2, 3)], [0.1, 0.2, 0.3])


@pytest.mark.parametrize("rates", [[0.1, -0.1], [float("nan")], np.ones((2, 2)), lambda _update: math.inf])
def test_rates_that_are_none(rates: Rates) -> None:
    with pytest.raises(UsageError, match=r"^lr: "):
        schedule_of(rates).rate(1)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        *((text, "wants finite numbers from 0") for text in ("", "fast", "-1", "nan", "wsd:")),
        *((text, "wants [A-Z]+") for text in ("1,2", "step:1,2", "cosine:1,0", "linear:1,0,5,1,1", "wsd:1,0,5")),
        *((text, "a whole number from 1") for text in ("step:1,0.5,0", "cosine:1,0,2.5", "wsd:1,0,3,0")),
        *((text, "a whole number from 0") for text in ("linear:1,0,5,0.5", "wsd:1,0,0.5,3")),
        ("cosin:1,0,5", "there is no schedule"),
    ],
)
def test_what_is_no_schedule(text: str, fault: str) -> None:
    with pytest.raises(UsageError, match=f"--lr .*: .*{fault}"):
        schedule_of(text)


def test_fewer_rates_than_updates(plan_of: Planner) -> None:
    with pytest.raises(UsageError, match="lr: 2 rates for 3 updates"):
        run_with(plan_of(with_rate(GRAPH), 2), RunOptions(steps=3, lr=[0.1, 0.2]))


def test_a_schedule_feeds_the_learning_rate(plan_of: Planner) -> None:
    graph = with_rate(GRAPH)
    x = np.random.default_rng(0).standard_normal((8, 12)).astype(np.float32)
    rates: list[float | None] = []
    options = RunOptions(steps=3, inputs={"x0": x}, lr="step:0.01,0.5,1")
    fed = run_with(plan_of(graph, 2), replace(options, on_step=lambda report: rates.append(report.learning_rate)))
    assert rates == [0.01, 0.005, 0.0025]
    state: dict[str, np.ndarray] = {}
    outcome = None
    for rate in (0.01, 0.005, 0.0025):
        given = {"x0": x, "learning_rate": np.array(rate, np.float32), **state}
        outcome = run_with(plan_of(graph, 2), RunOptions(inputs=given))
        state = {pair.current: outcome.results[pair.following] for pair in graph.state}
    assert outcome is not None
    assert fed.results["w1.next"].tobytes() == outcome.results["w1.next"].tobytes()


def test_a_resumed_run_goes_on_with_the_rates(tmp_path: Path) -> None:
    folder, rates = tmp_path / "plan", [0.01, 0.005, 0.002, 0.001]
    api.plan(to_model(with_rate(GRAPH)), gpus=2, out=folder)
    straight = api.run(folder, steps=4, lr=rates)
    api.run(folder, steps=2, lr=np.array(rates), checkpoint_dir=tmp_path / "ck")
    resumed = api.run(folder, steps=4, lr=lambda update: rates[update - 1], checkpoint_dir=tmp_path / "ck", resume=True)
    assert resumed.first_step == 3
    for name, array in straight.results.items():
        assert resumed.results[name].tobytes() == array.tobytes()


def test_a_resumed_run_keeps_its_schedule(plan_of: Planner, tmp_path: Path) -> None:
    plan, lr, told, rates = plan_of(with_rate(GRAPH), 2), "step:0.01,0.5,1", list[str](), list[float | None]()
    straight = run_with(plan, RunOptions(steps=3, lr=lr))
    for steps in (1, 2):
        again = {"lr": lr} if steps == 1 else {"resume": True}
        run_with(plan, RunOptions(steps=steps, checkpoint_dir=tmp_path, **again))
    options = RunOptions(steps=3, checkpoint_dir=tmp_path, resume=True, notice=told.append)
    resumed = run_with(plan, replace(options, on_step=lambda report: rates.append(report.learning_rate)))
    assert f"--lr {lr}, as the checkpoint's run had it" in told
    assert rates == [0.0025]
    assert resumed.results["w1.next"].tobytes() == straight.results["w1.next"].tobytes()


def test_a_function_of_rates_is_asked_for_again(plan_of: Planner, tmp_path: Path) -> None:
    plan = plan_of(with_rate(GRAPH), 2)
    run_with(plan, RunOptions(steps=1, lr=[0.1, 0.2], checkpoint_dir=tmp_path))
    more = RunOptions(steps=2, checkpoint_dir=tmp_path, resume=True)
    with pytest.raises(UsageError, match="came from a function or a list") as caught:
        run_with(plan, more)
    assert caught.value.hint == "give lr again, or --lr RATE"
    run_with(plan, replace(more, lr=[0.1, 0.2]))


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_the_log_has_the_models_own_learning_rate(plan_of: Planner, tmp_path: Path, suffix: str) -> None:
    log = tmp_path / f"log.{suffix}"
    given = {"x0": np.ones((8, 12), np.float32), "learning_rate": np.array(0.01, np.float32)}
    run_with(plan_of(with_rate(GRAPH), 2), RunOptions(inputs=given, log=log))
    (step,) = csv.DictReader(log.open()) if suffix == "csv" else map(json.loads, log.open())
    assert float(step["learning_rate"]) == 0.01
    assert str(step["learning_rate"]) == "0.01"


def with_rate(graph: Graph) -> Graph:
    """The graph with its rate an input called learning_rate."""
    tensors = dict(graph.tensors)
    tensors["learning_rate"] = replace(tensors.pop("rate"), name="learning_rate")
    ops = tuple(
        replace(op, inputs=tuple("learning_rate" if name == "rate" else name for name in op.inputs)) for op in graph.ops
    )
    return replace(graph, tensors=tensors, ops=ops, inputs=(*graph.inputs, "learning_rate"), constants={})


def test_a_profile_adds_up(plan_of: Planner) -> None:
    plan = plan_of(GRAPH, 4)
    result = run_with(plan, RunOptions(steps=3, profile=True))
    profile = result.profile
    assert profile is not None
    assert profile.iterations == 2
    assert len(profile.steps) == sum(len(worker.steps) for worker in plan.program.workers)
    assert sum(worker.moved_bytes for worker in profile.workers) == result.moved_bytes
    assert all(worker.moved_bytes == worker.predicted_bytes for worker in profile.workers)
    for worker in profile.workers:
        busy = worker.compute_seconds + worker.fetch_seconds + worker.wait_seconds
        assert 0 < busy <= profile.iteration_seconds * 1.05
    assert 0 < profile.fetch_share < 1


def test_nothing_is_measured_unless_asked_for(plan_of: Planner) -> None:
    assert run_with(plan_of(GRAPH, 2), RunOptions()).profile is None
