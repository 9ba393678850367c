"""The process that runs the workers: ``python -m planner.runtime.engine.process.child``, started by ``supervisor.py``.

It runs all workers of a plan, or one of them. It reads one JSON object per line from stdin and answers each with one on
stdout:

    {"models": [path, ...], "state": [[current, next], ...], "memory": descriptor,
     "orders": descriptor of a pickled ``Orders``, or null if the models are all workers,
     "devices": [GPU of each worker, ...], [] for those in turn, or null, "libraries": [path, ...]}    first, and once
        -> {"lends": ``Lent``}    on GPUs, if the workers are in processes of their own; it is answered by
    {"lent": [``Lent`` of each worker, ...]}
        -> {"doing": what is being done}, any number of times, and then
           {"sessions": count, "threads": [ident of each worker's thread, ...],
            "staging_bytes": [of each worker, ...], "on_gpus": ``OnGpus``, or null on CPUs}
    {"do": "iterate", "timed": bool}
        -> {"moved_bytes": [[...], ...], "seconds": s, "timings": [[[waited, took], ...], ...]}
    {"do": "advance"}  -> {}
    {"do": "push", "names": [...] or null}  -> {}    only on devices
    {"do": "pull", "names": [...]}          -> {"on_gpus": ``OnGpus``}    only on devices
    {"do": "stop"}     -> nothing; the process ends

or with ``{"error": {"kind", "what", "facts", "hint"}}``. Arrays go through shared memory (``exchange.py``). When stdin
ends, whoever started it is gone, and so is this process, at once. What anybody prints goes to stderr.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import pickle
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TextIO

from onnx import ModelProto

from planner.artifacts.worker_model import read_worker_model
from planner.collection import without_collection
from planner.errors import TofuError, out_of_memory
from planner.graph.model import StatePair
from planner.progress import Progress
from planner.regular_file import read_regular
from planner.runtime.engine.core.exchange import Exchange
from planner.runtime.engine.core.executor import Executor, Orders
from planner.runtime.engine.core.sessions import fix_cublas_workspace, sessions_on
from planner.runtime.engine.gpu.cuda import CudaBackend, devices_of
from planner.runtime.engine.gpu.cuda_ipc import Apart, Lent
from planner.runtime.engine.process.shared_peers import SharedPeers


def main() -> NoReturn:
    """Serves one supervisor until it says stop or goes away."""
    # Ctrl-C reaches the whole process group, and a termination may; it is the supervisor that decides what they mean.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.SIG_IGN)
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    faulthandler.enable()
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin, requests), name="listener", daemon=True).start()
    executor: Executor | None = None
    while True:
        request = requests.get()
        try:
            if executor is None:
                executor, backend = _start(request, partial(_tell, replies), partial(_meet, replies, requests))
                gc.freeze()  # the program is there for the life of the process
                reply = {
                    "sessions": executor.session_count,
                    "threads": executor.thread_idents,
                    "staging_bytes": executor.staging_bytes,
                    "on_gpus": _on_gpus(backend),
                }
            else:
                reply = _serve(executor, request)
                if request["do"] == "pull":  # kernels have taken workspaces by then
                    reply["on_gpus"] = _on_gpus(backend)
        except TofuError as error:
            reply = _refusal(error)
        except MemoryError as error:
            reply = _refusal(out_of_memory(error))
        except Exception:  # noqa: BLE001 -- a bug of ours: the supervisor raises it where it is seen
            reply = {"error": {"kind": "bug", "what": traceback.format_exc(), "facts": (), "hint": ""}}
        _say(replies, reply)


def _tell(replies: TextIO, doing: str, *, cost: int | None = None, lower: int | None = None) -> None:
    """Says what is being done, before the answer."""
    _say(replies, {"doing": doing})


def _say(replies: TextIO, message: Mapping[str, Any]) -> None:
    replies.write(json.dumps(message) + "\n")
    replies.flush()


def _meet(replies: TextIO, requests: queue.SimpleQueue[dict[str, Any]], mine: Lent) -> list[Lent]:
    """Tells the supervisor what this process's worker lends; returns what each worker lends."""
    _say(replies, {"lends": mine.as_json()})
    return [Lent.from_json(told) for told in requests.get()["lent"]]


def _on_gpus(backend: CudaBackend | None) -> dict[str, Any] | None:
    return None if backend is None else asdict(backend.on_gpus())


def _refusal(error: TofuError) -> dict[str, Any]:
    return {"error": {"kind": type(error).__name__, "what": error.what, "facts": error.facts, "hint": error.hint}}


def _listen(lines: TextIO, requests: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in lines:
        request = json.loads(line)
        if request.get("do") == "stop":
            break
        requests.put(request)
    # Not sys.exit: worker threads may be deep in a kernel, and nothing is left to be saved.
    os._exit(0)


@without_collection()
def _start(
    request: Mapping[str, Any], progress: Progress, meet: Callable[[Lent], list[Lent]]
) -> tuple[Executor, CudaBackend | None]:
    models = []
    for worker, path in enumerate(request["models"], start=1):
        progress(f"loading worker {worker} of {len(request['models'])}")
        models.append(read_worker_model(ModelProto.FromString(read_regular(Path(path)))))
    orders: Orders | None = None
    if request.get("orders") is not None:
        with open(request["orders"], "rb") as file:  # noqa: PTH123 -- a descriptor has no path
            orders = pickle.load(file)  # written by whoever started this process
    programs = orders.programs if orders is not None else [model.program for model in models]
    exchange = Exchange(programs, request["memory"])
    state = [StatePair(current, following) for current, following in request["state"]]
    libraries = [Path(path) for path in request.get("libraries", ())]
    backend: CudaBackend | None = None
    if request.get("devices") is not None:
        from planner.runtime.engine.gpu.devices import require_cuda

        fix_cublas_workspace()
        wanted = request["devices"] or None
        progress("trying the GPUs")
        # A process tries the GPUs of its own workers alone: a GPU that it has tried keeps memory for it.
        cupy, count = require_cuda(wanted if orders is None else ())
        devices = devices_of(len(programs), wanted, count)
        here = [devices[model.program.worker] for model in models]
        apart = None
        if orders is not None:
            require_cuda(here)
            worker = models[0].program.worker
            apart = Apart(worker, orders.waits, orders.awaited[worker], meet)
        backend = CudaBackend(programs, exchange, devices, cupy, sessions_on(here, libraries), apart)
    executor = Executor(
        models,
        exchange,
        state,
        orders=orders,
        peers=None if orders is None else partial(SharedPeers, exchange.counts),
        is_shared=True,
        backend=backend,
        libraries=libraries,
        progress=progress,
    )
    return executor, backend


def _serve(executor: Executor, request: Mapping[str, Any]) -> dict[str, Any]:
    command = str(request["do"])
    if command == "iterate":
        iteration = executor.iterate(timed=bool(request.get("timed")))
        return {"moved_bytes": iteration.moved_bytes, "seconds": iteration.seconds, "timings": iteration.timings}
    if command in ("push", "pull"):
        (executor.push if command == "push" else executor.pull)(request["names"])
        return {}
    assert command == "advance", f"unknown command {command!r}"
    executor.advance()
    return {}


if __name__ == "__main__":
    main()
