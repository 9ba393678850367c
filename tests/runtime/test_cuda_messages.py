"""GPUs of several machines, over stand-ins: lazy streams, and a channel that delays messages and lets them overtake."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import five_models
from fake_channel import AbortedError, FakeChannel, PostOffice
from fake_cupy import FakeCupy, FakeRuntime, FakeStream, copy_bytes, fake_session
from planner.algebra.tiling import Reducer
from planner.artifacts.program import Fetch
from planner.errors import UsageError
from planner.features.zoo.models import build, mlp
from planner.graph.core.model import Graph
from planner.runtime.engine.gpu import cuda_form, cuda_messages, cuda_sessions
from planner.runtime.engine.gpu.cuda import CudaBackend
from planner.runtime.engine.gpu.cuda_messages import StagedBackend, gpu_of_rank
from planner.runtime.engine.mpi.message_engine import MessageEngine
from planner.runtime.engine.mpi.messages import messages
from planner.runtime.evaluation import keep_next_state
from planner.runtime.plan_files import LoadedPlan, load_plan
from planner.runtime.values.state import Values
from planner.runtime.values.tiles import hand_out_tiles
from thread_ranks import alone, apart, shapes_of, stepped, together

pytestmark = pytest.mark.gpu_emulation
Planner = Callable[..., LoadedPlan]
MLP = mlp(3, 24, 36, learning_rate=0.001)
LENET = build("lenet-5", batch=8)


@pytest.fixture(autouse=True)
def _same_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written in faster ops on a GPU adds in another order; here bits are compared with those of a CPU."""
    monkeypatch.setattr(cuda_form, "with_faster_ops", lambda model, _purpose: model)


def gpu(kind: type[StagedBackend] = StagedBackend, cupys: list[FakeCupy] | None = None) -> Callable[..., Any]:
    """Makes the GPU of a rank; each is a machine of its own."""

    def make(*known: Any) -> StagedBackend:
        cupy = FakeCupy()
        if cupys is not None:
            cupys.append(cupy)
        return kind(*known, device=0, cupy=cupy, make_session=fake_session)

    return make


def predicted(plan: LoadedPlan) -> tuple[tuple[int, ...], ...]:
    """By worker and fetch."""
    return tuple(
        tuple(step.predicted_bytes for step in program.steps if isinstance(step, Fetch))
        for program in plan.program.workers
    )


def is_right(plan: LoadedPlan, kind: type[StagedBackend], seed: int) -> bool:
    """False if the bits are others than in one process, or workers that hold the same elements differ."""
    try:
        return apart(plan, seed, make_backend=gpu(kind)) == alone(plan)
    except AbortedError:
        return False


@pytest.mark.parametrize(("graph", "workers"), [(MLP, 2), (MLP, 3), (MLP, 4), (LENET, 3)])
def test_late_and_overtaking_boxes_give_the_bits_of_one_process(plan_of: Planner, graph: Graph, workers: int) -> None:
    plan = plan_of(graph, workers)
    bits, moved = alone(plan)
    assert moved == predicted(plan)
    for seed in range(3):
        print("seed", seed)
        assert apart(plan, seed, make_backend=gpu()) == (bits, moved)


def test_a_worker_alone_sends_nothing(plan_of: Planner) -> None:
    plan = plan_of(MLP, 1)
    cupys: list[FakeCupy] = []
    work = partial(stepped, values=Values(plan.graph), shapes=shapes_of(plan))
    assert together(plan, PostOffice(1), work, make_backend=gpu(cupys=cupys)) == [alone(plan)]
    assert not cupys[0].runtime.staged


def test_hand_made_programs_run_too(reduction: Any, training: Any, halo: Any) -> None:
    for case in (reduction, training, halo):
        assert apart(case.plan, 1, make_backend=gpu()) == alone(case.plan)


def test_boxes_with_rows_far_apart(tmp_path: Path) -> None:
    """A CNN's training step, cut along height and width: halos, and gradients summed over all workers."""
    plan = load_plan(five_models.planned("cnn-spatial", 3, tmp_path))
    reducers = {step.reducer for one in plan.program.workers for step in one.steps if isinstance(step, Fetch)}
    assert reducers == {None, Reducer.SUM}
    assert apart(plan, 1, make_backend=gpu()) == alone(plan)


def test_workers_may_be_on_other_ranks(plan_of: Planner) -> None:
    plan = plan_of(LENET, 3)
    assert apart(plan, 1, ranks=(2, 0, 1), make_backend=gpu()) == alone(plan)


def test_each_launch_and_each_departure_is_one_copy(plan_of: Planner) -> None:
    """All boxes of a launch together, into a block that the next launch uses again."""
    plan = plan_of(LENET, 3)
    cupys: list[FakeCupy] = []

    def look(engine: MessageEngine) -> Any:
        engine.fill(Values(plan.graph).tile)
        engine.iterate()
        return engine.staging_bytes

    staging_bytes = together(plan, PostOffice(3), look, make_backend=gpu(cupys=cupys))[0]
    posts = messages(plan.program.workers)
    received = sorted(sum(message.size_bytes for message in post.received) for post in posts)
    taken = []
    for cupy in cupys:
        arriving = [size for kind, size in cupy.runtime.staged if kind == cupy.runtime.memcpyHostToDevice]
        leaving = [size for kind, size in cupy.runtime.staged if kind == cupy.runtime.memcpyDeviceToHost]
        (pinned,) = cupy.runtime.pinned
        assert pinned.nbytes == sum(arriving) + sum(leaving), "each box has a place of its own"
        assert len(arriving) > 1
        assert len(leaving) > 1
        taken.append(sum(arriving))
    assert all(least <= found for least, found in zip(received, sorted(taken), strict=True))
    departures = sum(len({message.after for message in post.sent}) for post in posts)
    kinds = [kind for cupy in cupys for kind, _ in cupy.runtime.staged]
    assert kinds.count(FakeRuntime.memcpyDeviceToHost) == departures
    steps = sum(len({message.before for message in post.received}) for post in posts)
    assert kinds.count(FakeRuntime.memcpyHostToDevice) <= steps
    largest = [max(size for _, size in cupy.runtime.staged) for cupy in cupys]
    assert sum(staging_bytes) >= sum(cupy.runtime.pinned[0].nbytes for cupy in cupys) + sum(largest)


class _Hasty(StagedBackend):
    """Sends without waiting for the copies."""

    def _fill(self, numbers: range) -> None:
        self.end = lambda worker: None  # type: ignore[method-assign]
        super()._fill(numbers)
        del self.end


class _Reckless(StagedBackend):
    """Lets the next iteration's boxes come while copies of this one's wait on the stream."""

    def end(self, worker: int) -> None:
        """See ``Backend.end``."""

    def _fill(self, numbers: range) -> None:
        super()._fill(numbers)
        super().end(self._worker)


def test_boxes_that_are_sent_before_they_are_copied_arrive_wrong(plan_of: Planner) -> None:
    plan = plan_of(MLP, 4)
    assert is_right(plan, StagedBackend, 0)
    assert not is_right(plan, _Hasty, 0)


@pytest.mark.parametrize(("kind", "wrong"), [(StagedBackend, set()), (_Hasty, {"send"}), (_Reckless, {"receive"})])
def test_no_place_is_given_to_the_channel_while_a_copy_of_it_waits(
    plan_of: Planner, monkeypatch: pytest.MonkeyPatch, kind: type[StagedBackend], wrong: set[str]
) -> None:
    """Whether the channel may read it or write it: all copies from and to the place have been made."""
    found: set[str] = set()

    def watched(name: str) -> None:
        original = getattr(FakeChannel, name)

        def look(channel: FakeChannel, content: np.ndarray, *rest: int) -> Any:
            place = range(content.ctypes.data, content.ctypes.data + content.nbytes)
            for work in FakeCupy.current_stream().work:
                if isinstance(work, partial) and work.func is copy_bytes:
                    target, source, size = work.args
                    if any(place.start < begin + size and begin < place.stop for begin in (target, source)):
                        found.add(name)
            return original(channel, content, *rest)

        monkeypatch.setattr(FakeChannel, name, look)

    watched("send")
    watched("receive")
    is_right(plan_of(MLP, 4), kind, 0)
    assert found == wrong


@pytest.mark.parametrize("is_sent", [True, False])
def test_places_that_are_written_twice_give_other_bits(
    plan_of: Planner, monkeypatch: pytest.MonkeyPatch, is_sent: bool
) -> None:
    """All groups of boxes in one place of pinned memory: what is written there has not left, or not been read."""
    plan = plan_of(MLP, 4)
    assert is_right(plan, StagedBackend, 0)
    original = cuda_messages._crossings

    def planted(program: Any, post: Any, group: Any, name: str, begin: int) -> Any:
        found = original(program, post, group, name, begin)
        if name.endswith("sent") is is_sent:
            found = tuple(cuda_messages.replace(one, begin_bytes=begin) for one in found)
        return found

    monkeypatch.setattr(cuda_messages, "_crossings", planted)
    assert not all(is_right(plan, StagedBackend, seed) for seed in range(5))


@pytest.mark.parametrize("is_sent", [True, False])
def test_copies_off_the_workers_stream_give_other_bits(
    plan_of: Planner, monkeypatch: pytest.MonkeyPatch, is_sent: bool
) -> None:
    """To the host before the boxes are packed; to the GPU when the fetches have read."""
    plan = plan_of(MLP, 4)
    assert is_right(plan, StagedBackend, 0)
    original = FakeRuntime.memcpyAsync

    def planted(runtime: FakeRuntime, target: int, source: int, size: int, kind: int, stream: int) -> None:
        if is_sent and kind == runtime.memcpyDeviceToHost:
            copy_bytes(target, source, size)
        elif not is_sent and kind == runtime.memcpyHostToDevice:
            original(runtime, target, source, size, kind, FakeCupy.null_stream.ptr)
        else:
            original(runtime, target, source, size, kind, stream)

    monkeypatch.setattr(FakeRuntime, "memcpyAsync", planted)
    assert not is_right(plan, StagedBackend, 0)
    FakeCupy.null_stream.work.clear()


def test_a_state_that_is_handed_out_reaches_the_gpus(plan_of: Planner) -> None:
    """As ``--verify`` does after each step: rank 0 has the whole state."""
    plan = plan_of(MLP, 4)
    states = [pair.current for pair in plan.program.state]
    rng = np.random.default_rng(0)
    whole = {name: rng.random(plan.graph.tensors[name].shape, np.float32) for name in states}

    def hand_out(engine: MessageEngine) -> Any:
        engine.fill(Values(plan.graph).tile)
        hand_out_tiles(engine, whole if engine.reports else {}, states)
        (mine,) = engine.local_programs
        backend = engine._executor._backend
        assert isinstance(backend, CudaBackend)
        return {
            name: backend.array(mine.worker, name).view.tobytes() == engine.array(mine.worker, name).tobytes()
            for name in mine.loaded
        }

    for found in together(plan, PostOffice(4), hand_out, make_backend=gpu()):
        assert found
        assert all(found.values()), found


def test_a_next_state_that_is_kept_is_the_gpus(plan_of: Planner) -> None:
    """As held-out data and checkpoints take it: of this rank's worker, without the others."""
    plan = plan_of(MLP, 2)
    following = {pair.following for pair in plan.program.state}

    def keep(engine: MessageEngine) -> Any:
        engine.fill(Values(plan.graph).tile)
        engine.iterate()
        kept = keep_next_state(engine, plan.program.state)
        (mine,) = engine.local_programs
        backend = engine._executor._backend
        assert isinstance(backend, CudaBackend)
        return {
            name: backend.array(mine.worker, name).view.tobytes() == kept[buffer.tensor, buffer.region].tobytes()
            for name, buffer in mine.buffers.items()
            if name in mine.collected and buffer.tensor in following
        }

    for found in together(plan, PostOffice(2), keep, make_backend=gpu()):
        assert found
        assert all(found.values()), found


def test_a_failed_kernel_is_told_with_the_step_that_noticed(plan_of: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(MLP, 2)
    original, failing, filled = FakeStream.synchronize, threading.Event(), threading.Barrier(2)

    def fail(stream: FakeStream) -> None:
        original(stream)
        if failing.is_set():
            raise RuntimeError("an illegal address")

    monkeypatch.setattr(FakeStream, "synchronize", fail)

    def work(engine: MessageEngine) -> None:
        engine.fill(Values(plan.graph).tile)
        filled.wait()
        failing.set()
        engine.iterate()

    with pytest.raises(AbortedError) as caught:
        together(plan, PostOffice(2), work, make_backend=gpu())
    assert caught.value.code == 3


def ranks(hosts: Sequence[str], rank: int) -> Any:
    return SimpleNamespace(hosts=tuple(hosts), host=hosts[rank], rank=rank, ranks=tuple(range(len(hosts))), worker=rank)


def test_ranks_of_a_machine_take_its_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []
    monkeypatch.setattr(cuda_messages, "require_cuda", lambda wanted: tried.append(list(wanted)) or (FakeCupy(), 2))
    monkeypatch.setattr(cuda_sessions, "share_cuda_arena", lambda device: None)
    hosts = ["a", "a", "a", "b", "b"]

    def of(rank: int, device_map: Sequence[int] = ()) -> int:
        return int(gpu_of_rank(ranks(hosts, rank), device_map, ()).keywords["device"])

    assert [of(rank) for rank in range(5)] == [0, 1, 0, 0, 1]
    assert [wanted for wanted in tried if wanted] == [[0], [1], [0], [0], [1]]
    assert [of(rank, (1, 1, 0, 1, 0)) for rank in range(5)] == [1, 1, 0, 1, 0]
    with pytest.raises(UsageError, match="2 GPUs are named, and the plan has 5 workers"):
        of(4, (0, 1))
    with pytest.raises(UsageError, match="there is no GPU 2"):
        of(0, (2, 0, 0, 0, 0))
