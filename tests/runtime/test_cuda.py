"""Workers on GPUs: the logic with a stand-in for CuPy, and a GPU if there is one."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import five_models
from engine_results import are_right, results_of
from fake_cupy import FakeArray, FakeCupy, FakeKernel, FakeRuntime, FakeStream, copy_bytes, fake_session
from planner.algebra.region import Region
from planner.algebra.tiling import Reducer
from planner.artifacts.program import Fetch, Piece
from planner.errors import InfeasibleError, UsageError, WorkerError
from planner.features.zoo.models import mlp
from planner.runtime.engine.core.exchange import Exchange
from planner.runtime.engine.core.interface import InProcessEngine
from planner.runtime.engine.gpu.cuda import CudaBackend, devices_of
from planner.runtime.engine.gpu.cuda_form import CudaForm
from planner.runtime.engine.gpu.devices import probe_cuda, require_cuda
from planner.runtime.engine.gpu.fetches.cuda_fetch import fetch_is_right
from planner.runtime.plan_files import load_plan
from planner.runtime.values.state import starting_values
from planner.runtime.values.tiles import load_tiles
from run_plan import run_plan

pytestmark = pytest.mark.gpu_emulation
Planner = Callable[..., Any]

BLIND = [(0, 1), (1, 0)]
"""Neither GPU reads the other's memory."""


def engine_of(plan: Any, devices: Sequence[int], cupy: FakeCupy | None = None) -> InProcessEngine:
    def backend(exchange: Exchange) -> CudaBackend:
        return CudaBackend(plan.program.workers, exchange, devices, cupy or FakeCupy(), fake_session)

    return InProcessEngine(plan.models, plan.program.state, make_backend=backend)


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 8])
def test_streams_and_events_keep_the_order(plan_of: Planner, workers: int) -> None:
    plan = plan_of(mlp(3, 24, 36, learning_rate=0.001), workers)
    found = results_of(plan, engine_of(plan, [worker % 2 for worker in range(workers)]), 3)
    wanted = run_plan(plan, steps=3, seed=4).results
    assert wanted
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)


def test_hand_made_programs_run_too(reduction: Any, training: Any, halo: Any) -> None:
    for case in (reduction, training, halo):
        plan = case.plan
        found = results_of(plan, engine_of(plan, [0] * len(plan.program.workers)), 2)
        for name, array in run_plan(plan, steps=2, seed=4).results.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-6)


@pytest.mark.parametrize("blind", [(), BLIND], ids=["access", "copies"])
def test_without_waits_between_streams_the_numbers_are_wrong(
    plan_of: Planner, monkeypatch: pytest.MonkeyPatch, blind: Collection[tuple[int, int]]
) -> None:
    """So that the other tests could fail."""
    plan = plan_of(mlp(3, 24, 36, learning_rate=0.001), 4)
    wanted = run_plan(plan, steps=3, seed=4).results
    assert are_right(plan, engine_of(plan, [0, 1, 0, 1], FakeCupy(blind)), wanted)
    monkeypatch.setattr(CudaBackend, "wait", lambda *_: None)
    assert not are_right(plan, engine_of(plan, [0, 1, 0, 1], FakeCupy(blind)), wanted)


@pytest.mark.parametrize(
    ("workers", "devices", "blind"),
    [
        (3, (0, 1, 0), BLIND),
        (4, (0, 0, 1, 1), BLIND),
        (4, (0, 1, 0, 1), [(1, 0)]),
        (4, (0, 1, 2, 1), BLIND),
    ],
    ids=["columns", "tiles", "one-way", "some-reachable"],
)
def test_copies_give_the_bits_that_access_gives(
    workers: int, devices: tuple[int, ...], blind: Collection[tuple[int, int]], tmp_path: Path
) -> None:
    """A CNN's training step, cut along height and width: halos, tiles, gradients summed over all workers."""
    plan = load_plan(five_models.planned("cnn-spatial", workers, tmp_path))
    fetches = [(worker.worker, step) for worker in plan.program.workers for step in worker.steps
               if isinstance(step, Fetch)]  # fmt: skip
    direct, copying = FakeCupy(), FakeCupy(blind)
    wanted = results_of(plan, engine_of(plan, devices, direct), 1)
    engine = engine_of(plan, devices, copying)
    found = results_of(plan, engine, 1)
    assert {name: array.tobytes() for name, array in found.items()} == {
        name: array.tobytes() for name, array in wanted.items()
    }
    assert not direct.runtime.copied
    copied = copying.runtime.copied
    assert {(reader, owner) for reader, owner, _ in copied} == set(blind)
    kinds = [
        {
            (devices[reader], devices[source.worker]) in blind
            for piece in fetch.pieces
            for source in piece.sources
            if source.worker != reader
        }
        for reader, fetch in fetches
    ]
    assert {True, False} in kinds, "some fetch copies from one worker and reads another one in place"
    assert Reducer.SUM in {fetch.reducer for _, fetch in fetches}


def test_fetches_of_a_worker_share_a_staging_block(training: Any) -> None:
    """Worker 0 makes three fetches, each from both others: two copies, each in 64 bytes of their own.

    Two of the fetches are one launch, and their four copies lie apart.
    """
    cupy = FakeCupy([(0, 1)])
    with engine_of(training.plan, (0, 1, 1), cupy) as engine:
        assert engine.staging_bytes == (256, 0, 0)
    arenas = [(0, engine.arena_bytes[0]), (1, engine.arena_bytes[1]), (1, engine.arena_bytes[2])]
    taken = [(device, block.nbytes) for device, block in cupy.runtime.blocks]
    assert taken[:4] == [*arenas, (0, 256)]
    assert len(taken) == 4 + 8, "and a work list for each launch"


def test_boxes_that_are_copied_as_one_are_found_in_the_copy(reduction: Any) -> None:
    """Two rows of five columns, fetched as columns 0:2 and 2:5: 40 bytes from first to last, not 28 and 32."""

    def in_columns(fetch: Fetch) -> Fetch:
        (piece,) = fetch.pieces
        boxes = Region((0, 0), (2, 2)), Region((0, 2), (2, 5))
        assert piece.region == boxes[0].hull(boxes[1])
        return replace(fetch, pieces=tuple(Piece(box, piece.sources) for box in boxes))

    plan = reduction.with_fetch(0, "Y", in_columns).plan
    cupy = FakeCupy(BLIND)
    found = results_of(plan, engine_of(plan, [0, 1], cupy), 1)
    assert sorted(cupy.runtime.copied) == [(0, 1, 40), (1, 0, 40)]
    for name, array in run_plan(plan, steps=1, seed=4).results.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-6)


def test_access_is_enabled_where_there_is_any(plan_of: Planner) -> None:
    plan = plan_of(mlp(2, 8, 8), 2)
    for blind, enabled in ((), [(0, 1), (1, 0)]), ([(0, 1)], [(1, 0)]), (BLIND, []):
        cupy = FakeCupy(blind)
        engine = engine_of(plan, [0, 1], cupy)
        engine.close()
        assert cupy.runtime.enabled == enabled
        assert [size > 0 for size in engine.staging_bytes] == [(0, 1) in blind, (1, 0) in blind]
    alone = engine_of(plan, [1, 1], FakeCupy(BLIND))
    alone.close()
    assert alone.staging_bytes == (0, 0), "workers of one GPU copy nothing"


def test_copies_that_wait_for_nobody_are_wrong(plan_of: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel alone behind the wait is not enough."""
    plan = plan_of(mlp(3, 24, 36, learning_rate=0.001), 4)
    wanted = run_plan(plan, steps=3, seed=4).results
    assert are_right(plan, engine_of(plan, [0, 1, 0, 1], FakeCupy(BLIND)), wanted)
    monkeypatch.setattr(
        FakeRuntime,
        "memcpyPeerAsync",
        lambda _, target, target_device, source, source_device, size, stream: copy_bytes(target, source, size),
    )
    assert not are_right(plan, engine_of(plan, [0, 1, 0, 1], FakeCupy(BLIND)), wanted)


def test_a_constant_that_is_copied_on_another_stream_is_wrong(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream of all is not waited for: by streams that do not block, nor by the kernels of a worker."""
    plan = training.plan
    wanted = run_plan(plan, steps=3, seed=4).results
    assert are_right(plan, engine_of(plan, [0, 0, 0]), wanted)
    original, arrays = FakeArray.set, CudaBackend.arrays

    def planted(backend: CudaBackend, model: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(FakeArray, "set", lambda array, host, stream=None: original(array, host))
            return arrays(backend, model)

    monkeypatch.setattr(CudaBackend, "arrays", planted)
    assert not are_right(plan, engine_of(plan, [0, 0, 0]), wanted)


def failing_on(error: str) -> Any:
    """Makes sessions whose runs fail, as a kernel's failure is noticed."""

    def make(form: CudaForm, device: int, stream: int) -> tuple[Any, Any]:
        session, options = fake_session(form, device, stream)

        def fail(*_: object) -> None:
            raise RuntimeError(error)

        session.run_with_iobinding = fail
        return session, options

    return make


@pytest.mark.parametrize("is_waiting", [False, True])
def test_a_failed_kernel_is_told_as_noticed(training: Any, monkeypatch: pytest.MonkeyPatch, is_waiting: bool) -> None:
    monkeypatch.setenv("TOFU_DEBUG_SYNC", "1" if is_waiting else "0")
    plan = training.plan

    def backend(exchange: Exchange) -> CudaBackend:
        return CudaBackend(plan.program.workers, exchange, [0, 0, 0], FakeCupy(), failing_on("an illegal address"))

    engine = InProcessEngine(plan.models, plan.program.state, make_backend=backend)
    with engine, pytest.raises(WorkerError, match="failed in segment") as caught:
        engine.iterate()
    (fact,) = caught.value.facts
    assert "an illegal address" in fact
    assert ("TOFU_DEBUG_SYNC=1" in fact) is not is_waiting


def test_a_step_is_waited_for_when_it_is_asked(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a kernel that fails is noticed in its own step."""
    waited: list[bool] = []
    for wish in ("0", "1"):
        monkeypatch.setenv("TOFU_DEBUG_SYNC", wish)
        with engine_of(training.plan, [0, 0, 0]) as engine:
            load_tiles(engine, starting_values(training.plan.graph, seed=4))
            with monkeypatch.context() as patch:
                count = [0]
                original = FakeStream.synchronize

                def counted(stream: FakeStream, count: list[int] = count) -> None:
                    count[0] += 1
                    original(stream)  # noqa: B023 -- it is the same in both rounds

                patch.setattr(FakeStream, "synchronize", counted)
                engine.iterate()
            waited.append(count[0] > len(training.plan.program.workers))
    assert waited == [False, True]


def test_a_trial_fetch_tells_whether_fetches_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fetch_is_right(FakeCupy(), 0)
    monkeypatch.setattr(FakeKernel, "run", lambda *_: None)
    assert not fetch_is_right(FakeCupy(), 0)


def test_neighbouring_fetches_are_one_launch(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker 0 makes three fetches, of which two have no wait between them."""
    launched: list[int] = []
    run = FakeKernel.run
    monkeypatch.setattr(
        FakeKernel, "run", lambda self, items, device: launched.append(device) or run(self, items, device)
    )
    results_of(training.plan, engine_of(training.plan, (0, 1, 2)), 1)
    fetches = [sum(isinstance(step, Fetch) for step in worker.steps) for worker in training.plan.program.workers]
    assert fetches[0] == 3
    assert launched.count(0) == 2


def test_steps_take_the_time_that_the_gpu_needs(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host is through with a step long before its stream comes to it."""
    run = FakeKernel.run

    def slow(self: FakeKernel, items: Any, device: int) -> None:
        time.sleep(0.01)
        run(self, items, device)

    monkeypatch.setattr(FakeKernel, "run", slow)
    with engine_of(training.plan, (0, 1, 2)) as engine:
        engine.push()
        found = engine.iterate(timed=True)
    assert found.timings
    for program, steps in zip((model.program for model in training.plan.models), found.timings, strict=True):
        assert len(steps) == len(program.steps)
        fetches = [took for step, (_, took) in zip(program.steps, steps, strict=True) if isinstance(step, Fetch)]
        assert sum(fetches) >= 0.01 * bool(fetches)
        assert all(waited >= 0 and took >= 0 for waited, took in steps)


def test_a_gpu_that_is_too_small_is_named(training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def alloc(self: FakeRuntime, size: int) -> Any:
        raise MemoryError(f"out of memory allocating {size} bytes")  # as CuPy's is one

    monkeypatch.setattr(FakeRuntime, "alloc", alloc)
    with pytest.raises(InfeasibleError, match="GPU 1 has too little memory for worker 0") as caught:
        engine_of(training.plan, (1, 0, 2))
    assert "its tensors take" in caught.value.facts[0]
    assert "--memory" in caught.value.hint


def test_maps() -> None:
    assert devices_of(4, None, 2) == (0, 1, 0, 1)
    assert devices_of(4, (0, 0, 1, 1), 2) == (0, 0, 1, 1)
    with pytest.raises(UsageError, match="2 GPUs are named, and the plan has 4 workers"):
        devices_of(4, (0, 1), 2)
    with pytest.raises(UsageError, match="there is no GPU 2"):
        devices_of(2, (0, 2), 2)


@pytest.mark.gpu
@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_workers_share_a_gpu(training: Any, plan_of: Planner, workers: int) -> None:
    """Right numbers, predicted bytes, and the same bits on two runs."""
    probe = probe_cuda()
    if probe.missing:
        pytest.skip(probe.missing)
    cupy, _ = require_cuda()
    plan = plan_of(mlp(4, 256, 128, learning_rate=0.0001), workers)

    def backend(exchange: Exchange) -> CudaBackend:
        return CudaBackend(plan.program.workers, exchange, [0] * workers, cupy)

    def once() -> dict[str, np.ndarray]:
        return results_of(plan, InProcessEngine(plan.models, plan.program.state, make_backend=backend), 3)

    first, second = once(), once()
    wanted = run_plan(plan, steps=3, seed=4).results
    assert first.keys() == wanted.keys() != set()
    for name, array in wanted.items():
        assert first[name].tobytes() == second[name].tobytes()
        assert np.abs(first[name] - array).max() <= 1e-4 * np.abs(array).max()
