"""What the host does for an iteration on GPUs: processor time of Python, ONNX Runtime and executor, kernels nothing.

    python bench/host_time.py [--models mlp-60:8,lstm:2] [--plan FOLDER ...] [--rounds 60]

ONNX Runtime's own CUDA provider runs over stand-ins for CUDA's libraries (``tests/tools/cuda_stand_in.py``), whose
launches, copies within a GPU and waits do nothing, and so does what stands here for CuPy. A real GPU's driver comes on
top.

*threads*: all workers in one process, as the engine ``local`` has them; the processor time of the process. *processes*:
each worker in a process of its own over shared memory; the time of the process that takes most. *alone*: the same when
the others have done all that it waits for, so that it neither sleeps nor shares its processor with them. All: the
fastest of some iterations.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from models import planned
from rich.console import Console
from rich.table import Table

from planner.artifacts.program import Fetch, Segment
from planner.runtime.engine.core.exchange import Exchange, as_seen_by
from planner.runtime.engine.core.executor import Executor, Orders, orders_of
from planner.runtime.engine.gpu.cuda import CudaBackend
from planner.runtime.engine.process.shared_peers import SharedPeers
from planner.runtime.plan_files import LoadedPlan, load_plan

TOOLS = Path(__file__).parent.parent / "tests" / "tools"
_DONE = 1 << 30
_FAILED = b"f"


class _Memory:
    """A place in a block that stands for device memory."""

    def __init__(self, block: np.ndarray, offset: int = 0) -> None:
        self.block, self.offset, self.ptr = block, offset, block.ctypes.data + offset

    def __add__(self, offset: int) -> _Memory:
        return _Memory(self.block, self.offset + offset)


class _Array:
    """What stands for ``cupy.ndarray``."""

    def __init__(self, shape: Any, dtype: Any, memptr: Any = None, view: np.ndarray | None = None) -> None:
        if view is None:
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            block = np.zeros(size, np.uint8) if memptr is None else memptr.block[memptr.offset : memptr.offset + size]
            view = block.view(dtype).reshape(shape)
        self.view, self.data = view, SimpleNamespace(ptr=view.ctypes.data)
        self.shape, self.dtype, self.strides = view.shape, view.dtype, view.strides
        self.nbytes, self.size, self.itemsize = view.nbytes, view.size, view.itemsize

    def __getitem__(self, box: Any) -> _Array:
        return _Array((), None, view=self.view[box])

    def reshape(self, shape: Any) -> _Array:
        return _Array((), None, view=self.view.reshape(shape))

    def set(self, host: np.ndarray, stream: Any = None) -> None:
        self.view[...] = host


class _Nothing:
    """A stream, an event, a device or a kernel, none of which does anything."""

    count = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        _Nothing.count += 1
        self.ptr = 0x1000 * _Nothing.count

    def __call__(self, *_: Any, **__: Any) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...
    def use(self) -> None: ...
    def compile(self) -> None: ...
    def record(self, stream: Any) -> None: ...
    def wait_event(self, event: Any) -> None: ...
    def synchronize(self) -> None: ...


def cupy() -> Any:
    """What stands for CuPy."""
    runtime = SimpleNamespace(deviceCanAccessPeer=lambda *_: 1, deviceEnablePeerAccess=lambda _: None,
                              CUDARuntimeError=RuntimeError, memcpyPeerAsync=lambda *_: None,
                              memGetInfo=lambda: (1 << 30, 1 << 30))  # fmt: skip
    cuda = SimpleNamespace(Stream=_Nothing, Event=_Nothing, Device=_Nothing, runtime=runtime,
                           alloc=lambda size: _Memory(np.zeros(size, np.uint8)))  # fmt: skip
    return SimpleNamespace(cuda=cuda, ndarray=_Array, RawKernel=_Nothing, RawModule=_Nothing, copyto=lambda *_: None,
                           asarray=lambda host: _Array((), None, view=np.asarray(host)), empty=_Array)  # fmt: skip


class _AloneBackend(CudaBackend):
    """Of a worker whose peers are other processes: their events would be opened by handle, and are not there."""

    def wait(self, worker: int, other: int, count: int) -> None:
        self._streams[worker].wait_event(None)


def _fastest(iterate: Callable[[], object], rounds: int, before: Callable[[], None] = lambda: None) -> float:
    """Processor seconds of this process in the fastest of some calls."""
    times = []
    for _ in range(rounds):
        before()
        start = time.process_time()
        iterate()
        times.append(time.process_time() - start)
    return min(times)


def in_threads(plan: LoadedPlan, rounds: int) -> float:
    """See the module; all workers here."""
    programs = plan.program.workers
    exchange = Exchange(programs)
    backend = CudaBackend(programs, exchange, list(range(len(programs))), cupy())
    executor = Executor(plan.models, exchange, plan.program.state, backend=backend)
    executor.iterate()
    return _fastest(executor.iterate, rounds)


def in_processes(plan: LoadedPlan, rounds: int) -> tuple[float, float]:
    """See the module: together and alone. Each is a process that this one forks before it has threads."""
    programs = plan.program.workers
    known = orders_of(programs, plan.program.state)
    exchange = Exchange(programs)
    ready, results = os.pipe(), os.pipe()
    starts = [os.pipe() for _ in programs]
    for worker, start in enumerate(starts):
        if os.fork() == 0:
            for _, end in starts:  # so that a child that waits for a word ends with its parent
                os.close(end)
            try:
                executor = _one_of_them(worker, plan, known, exchange)
                found = []
                for _ in range(2):  # together, then alone
                    found.append(_fastest(executor.iterate, rounds, lambda start=start: _next(ready[1], start[0])))  # type: ignore[misc]
            except BaseException:  # noqa: BLE001 -- a child of a fork must not go on as its parent
                traceback.print_exc()
                os.write(ready[1], _FAILED)
                os._exit(1)
            os.write(results[1], f"{found[0]} {found[1]}\n".encode())
            os._exit(0)
    everybody = [start[1] for start in starts]
    for _ in range(rounds):
        _wait_for(ready[0], len(programs))
        exchange.counts[:] = 0
        for all_of_them in everybody:
            os.write(all_of_them, b"g")
    _wait_for(ready[0], len(programs))
    for alone in everybody:  # one after the other, the others as if they were ready
        for number in range(rounds):
            exchange.counts[:] = _DONE
            os.write(alone, b"g")
            if number < rounds - 1:
                _wait_for(ready[0], 1)
        os.wait()
    said = os.read(results[0], 1 << 16).split()
    return max(map(float, said[::2])), max(map(float, said[1::2]))


def _next(ready: int, start: int) -> None:
    """A child says that it is ready, and waits until it may go on."""
    os.write(ready, b"r")
    if not os.read(start, 1):
        os._exit(1)


def _wait_for(ready: int, children: int) -> None:
    while children:
        said = os.read(ready, children)
        if _FAILED in said:
            sys.exit("a worker's process has failed; see above")
        children -= len(said)


def _one_of_them(worker: int, plan: LoadedPlan, known: Orders, exchange: Exchange) -> Executor:
    mine = replace(known, programs=as_seen_by(worker, known.programs))
    return Executor(
        [plan.models[worker]],
        exchange,
        plan.program.state,
        orders=mine,
        peers=lambda one: SharedPeers(exchange.counts, one),
        backend=_AloneBackend(mine.programs, exchange, list(range(len(known.programs))), cupy()),
    )


def measure(folder: Path, name: str, rounds: int) -> None:
    """Prints the numbers of a plan, in a process that has the stand-ins."""
    plan = load_plan(folder)
    steps = [step for worker in plan.program.workers for step in worker.steps]
    counts = [sum(isinstance(step, kind) for step in steps) for kind in (Segment, Fetch)]
    together, alone = in_processes(plan, rounds)
    times = [f"{1e3 * seconds:.2f}" for seconds in (in_threads(plan, rounds), together, alone)]
    print("\t".join([name, str(len(plan.models)), *map(str, counts), *times]))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default="mlp-60:8,lstm:2", help="of bench/models.py, with their workers")
    parser.add_argument("--plan", type=Path, action="append", default=[], help="a plan's folder, instead of models")
    parser.add_argument("--rounds", type=int, default=60, help="iterations, of which the fastest counts")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        measure(Path(options.child[0]), options.child[1], options.rounds)
        return
    sys.path.insert(0, str(TOOLS))
    import cuda_stand_in  # type: ignore[import-not-found]  # a tool of the tests

    variables = cuda_stand_in.environment(cuda_stand_in.build(), gpus=8) | {"STAND_IN_IDLE": "1"}
    table = Table("plan", "workers", "segments", "fetches", "threads: ms", "processes: ms", "alone: ms")
    with tempfile.TemporaryDirectory() as name:
        plans = [(path, path.name) for path in options.plan]
        if not plans:
            wanted = (text.split(":") for text in options.models.split(","))
            plans = [(planned(model, int(workers), Path(name), effort="quick"), model) for model, workers in wanted]
        for path, label in plans:
            rounds = ["--rounds", str(options.rounds)]
            command = [sys.executable, __file__, *rounds, "--child", str(path.resolve()), label]
            done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(done.stderr)
            table.add_row(*done.stdout.strip().split("\t"))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
