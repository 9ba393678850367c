"""Workers on GPUs, each in a process of its own: what they lend each other is what they have in one process."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import five_models
from engine_results import are_right, results_of
from fake_cupy import FakeCupy, fake_session
from planner.features.zoo.models import mlp
from planner.runtime.engine.core.exchange import Exchange, as_seen_by
from planner.runtime.engine.core.executor import Executor, Iteration, orders_of
from planner.runtime.engine.core.interface import Engine
from planner.runtime.engine.core.peers import NOT_BEGUN
from planner.runtime.engine.gpu.cuda import CudaBackend
from planner.runtime.engine.gpu.cuda_ipc import Apart, Lent
from planner.runtime.engine.process.child_process import ChildProcess
from planner.runtime.engine.process.shared_peers import SharedPeers
from planner.runtime.engine.process.supervisor import SupervisedEngine
from planner.runtime.plan_files import load_plan
from planner.runtime.values.state import starting_values
from planner.runtime.values.tiles import gather_tiles, load_tiles
from run_plan import run_plan

pytestmark = pytest.mark.gpu_emulation

BLIND = [(0, 1), (1, 0)]
"""Neither GPU reads the other's memory."""


class ApartEngine(Engine):
    """An executor and a backend for each worker, which know of each other what processes would: handles and counts."""

    def __init__(self, plan: Any, devices: Sequence[int], cupy: FakeCupy) -> None:
        self.programs = tuple(model.program for model in plan.models)
        self._exchange = Exchange(self.programs)
        self.arena_bytes = self._exchange.arena_bytes
        known = orders_of(self.programs, plan.program.state)
        table: list[Lent | None] = [None] * len(self.programs)
        meeting = threading.Barrier(len(self.programs), timeout=300)

        def meet(worker: int, mine: Lent) -> list[Lent]:
            table[worker] = Lent.from_json(mine.as_json())
            meeting.wait()
            return [one for one in table if one is not None]

        def started(worker: int) -> Executor:
            orders = replace(known, programs=as_seen_by(worker, self.programs))
            exchange = Exchange(orders.programs, self._exchange.handle)
            apart = Apart(worker, orders.waits, orders.awaited[worker], partial(meet, worker))
            backend = CudaBackend(orders.programs, exchange, devices, cupy, fake_session, apart)
            peers = partial(SharedPeers, exchange.counts)
            model = plan.models[worker]
            return Executor([model], exchange, plan.program.state, orders=orders, peers=peers, backend=backend)

        self._crew = ThreadPoolExecutor(len(self.programs))
        self._executors = list(self._crew.map(started, range(len(self.programs))))
        self.staging_bytes = tuple(map(max, zip(*(one.staging_bytes for one in self._executors), strict=True)))

    def _all(self, command: Callable[[Executor], Any]) -> list[Any]:
        return list(self._crew.map(command, self._executors))

    def array(self, worker: int, buffer: str) -> np.ndarray:
        return self._exchange.array(worker, buffer)

    def push(self, names: Collection[str] | None = None) -> None:
        self._all(lambda one: one.push(names))

    def pull(self, names: Collection[str]) -> None:
        self._all(lambda one: one.pull(names))

    def iterate(self, *, timed: bool = False, advances: bool = False, wanted: Sequence[str] = ()) -> Iteration:
        self._exchange.counts[:] = NOT_BEGUN
        found = self._all(lambda one: one.iterate(timed=timed, advances=advances))
        moved = tuple(row for one in found for row in one.moved_bytes)
        return Iteration(moved, max(one.seconds for one in found))

    def close(self) -> None:
        self._all(lambda one: one.close())
        self._crew.shutdown()
        self._exchange.close()


@pytest.mark.parametrize("blind", [(), BLIND], ids=["access", "copies"])
@pytest.mark.parametrize("devices", [(0, 0), (0, 1, 0), (0, 1, 0, 1)], ids=str)
def test_numbers_are_those_of_one_process(
    devices: tuple[int, ...], blind: Collection[tuple[int, int]], plan_of: Callable[..., Any]
) -> None:
    plan = plan_of(mlp(3, 24, 36, learning_rate=0.001), len(devices))
    wanted = run_plan(plan, steps=3, seed=4).results
    assert wanted
    found = results_of(plan, ApartEngine(plan, devices, FakeCupy(blind)), 3)
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)


def test_hand_made_programs_and_halos(reduction: Any, training: Any, halo: Any, tmp_path: Any) -> None:
    for plan in (reduction.plan, training.plan, halo.plan, load_plan(five_models.planned("cnn-spatial", 4, tmp_path))):
        devices = [worker % 2 for worker in range(len(plan.program.workers))]
        found = results_of(plan, ApartEngine(plan, devices, FakeCupy([(1, 0)])), 3)
        wanted = run_plan(plan, steps=3, seed=4).results
        assert wanted
        for name, array in wanted.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("blind", [(), BLIND], ids=["access", "copies"])
def test_events_of_others_are_waited_for(
    blind: Collection[tuple[int, int]], plan_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts alone say that a step is on its stream, not that it is done."""
    plan = plan_of(mlp(3, 24, 36, learning_rate=0.001), 4)
    wanted = run_plan(plan, steps=3, seed=4).results
    monkeypatch.setattr(CudaBackend, "wait", lambda *_: None)
    assert not are_right(plan, ApartEngine(plan, (0, 1, 0, 1), FakeCupy(blind)), wanted)


def engine_over_files(case: Any, device_map: tuple[int, ...], tmp_path: Path) -> tuple[Any, SupervisedEngine]:
    """A plan, and the engine's own processes, over files in place of device memory."""
    case.write(tmp_path / "plan")
    plan = load_plan(tmp_path / "plan")
    lent = tmp_path / "lent"
    lent.mkdir()
    tool = Path(__file__).parents[1] / "tools" / "cuda_ipc_child.py"
    return plan, SupervisedEngine(
        plan.paths,
        plan.program.workers,
        plan.program.state,
        is_apart=True,
        device_map=device_map,
        command=(sys.executable, str(tool), str(lent)),
    )


def test_a_step_on_devices_is_one_message(training: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New inputs go down with it, and what is read comes up with the answer."""
    plan, engine = engine_over_files(training, (), tmp_path)
    requests: list[Mapping[str, Any]] = []
    send = ChildProcess.send
    monkeypatch.setattr(ChildProcess, "send", lambda child, request: (requests.append(request), send(child, request)))
    values, losses = starting_values(plan.graph, seed=4), []
    with engine:
        load_tiles(engine, values)
        requests.clear()
        for step in range(3):
            load_tiles(engine, {"X": values["X"] * (step + 1)}, ["X"])
            engine.iterate(advances=step > 0, wanted=["loss"])
            losses.append(float(gather_tiles(engine, ["loss"], {"loss": ()})["loss"]))
    assert len(requests) == 3 * len(engine.process_ids)
    assert requests[3] == {"push": ["X"], "iterate": {"timed": False, "advances": True}, "pull": ["loss"]}
    state = values
    for step, loss in enumerate(losses):
        fresh = {**state, "X": values["X"] * (step + 1)}
        right = run_plan(plan, inputs=fresh)
        np.testing.assert_allclose(loss, right.losses[0], rtol=1e-6)
        state = {**state, "W": right.results["W_next"]}


@pytest.mark.parametrize("device_map", [(0, 1, 0), ()], ids=["mapped", "in turn"])
def test_processes_open_what_the_others_lend(training: Any, device_map: tuple[int, ...], tmp_path: Path) -> None:
    plan, engine = engine_over_files(training, device_map, tmp_path)
    lent = tmp_path / "lent"
    assert len(engine.process_ids) == len(list(lent.iterdir())) == 3
    assert engine.on_gpus is not None
    assert [device for device, _ in engine.on_gpus.beside_bytes] == [0, 1]
    found = results_of(plan, engine, 3)
    wanted = run_plan(plan, steps=3, seed=4).results
    assert wanted
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-6)
