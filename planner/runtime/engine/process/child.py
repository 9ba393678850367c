"""The process that runs the workers: ``python -m planner.runtime.engine.process.child``, started by ``supervisor.py``.
Another main module may hand its workers something else to compute on than the CPUs (``Crew``).

It runs all workers of a plan, or one of them. It reads one JSON object per line from stdin and answers each with one on
stdout:

    {"models": [path, ...], "state": [[current, next], ...], "memory": descriptor,
     "orders": descriptor of a pickled ``Orders``, or null if the models are all workers,
     "devices": [device of each worker, ...], [] for those in turn, or null for the CPUs,
     "libraries": [path, ...]}    first, and once
        -> {"lends": what the others need of the worker's device}    if it is alone in its process; it is answered by
    {"lent": [what each worker lends, ...]}
        -> {"doing": what is being done}, any number of times, and then
           {"sessions": count, "threads": [ident of each worker's thread, ...],
            "staging_bytes": [of each worker, ...]}
    {"push": [tensor, ...], or null for all, "iterate": {"timed": bool, "advances": bool}, or null,
     "pull": [tensor, ...]}    a step; to push and pull is for devices
        -> {"moved_bytes": [[...], ...], "seconds": s, "timings": [[[waited, took], ...], ...]} of an iteration, else
           {"on_gpus": ``OnGpus``, or null}

or with ``{"error": {"kind", "what", "facts", "hint"}}``. Arrays go through shared memory (``exchange.py``). When stdin
ends, whoever started it is gone, and so is this process, at once. What anybody prints goes to stderr.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import pickle
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn, TextIO, TypeAlias

from onnx import ModelProto

from planner.artifacts.program import WorkerProgram
from planner.artifacts.worker_model import read_worker_model
from planner.collection import without_collection
from planner.errors import TofuError, out_of_memory
from planner.graph.core.model import StatePair
from planner.progress import Progress
from planner.regular_file import read_regular
from planner.runtime.engine.core.backend import Backend
from planner.runtime.engine.core.exchange import Exchange
from planner.runtime.engine.core.executor import Executor, Orders
from planner.runtime.engine.process.shared_peers import SharedPeers

_WATCH_MILLISECONDS: Final = 1000


@dataclass(frozen=True, slots=True)
class Crew:
    """The workers of this process, as who makes their devices must know them."""

    workers: tuple[int, ...]
    programs: Sequence[WorkerProgram]
    """Of all workers."""
    exchange: Exchange
    """Memory that tiles come from and go to."""
    orders: Orders | None
    """Where its only worker is alone in this process; None: all workers are here."""
    devices: tuple[int, ...]
    """The device of each worker; () for those in turn."""
    libraries: tuple[Path, ...]
    """Of custom operators."""
    progress: Progress
    meet: Callable[[dict[str, Any]], list[dict[str, Any]]]
    """Tells the other processes what this one's worker lends; returns what each worker lends, in their order."""


MakeBackend: TypeAlias = Callable[[Crew], Backend]


def main(make_backend: MakeBackend | None = None) -> NoReturn:
    """Serves one supervisor until it closes the pipe or goes away.

    Args:
        make_backend: makes what the workers compute on, where the supervisor names devices; None: they have the CPUs.
    """
    # Ctrl-C reaches the whole process group, and a termination may; it is the supervisor that decides what they mean.
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.SIG_IGN)
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    faulthandler.enable()
    threading.Thread(target=_watch, name="watch", daemon=True).start()
    executor: Executor | None = None
    while True:
        request = _next_request()
        try:
            if executor is None:
                callbacks = partial(_tell, replies), partial(_meet, replies)
                executor = _start(request, make_backend, *callbacks)
                gc.freeze()  # the program is there for the life of the process
                reply = {
                    "sessions": executor.session_count,
                    "threads": executor.thread_idents,
                    "staging_bytes": executor.staging_bytes,
                }
            else:
                reply = _serve(executor, **request)
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


def _meet(replies: TextIO, mine: dict[str, Any]) -> list[dict[str, Any]]:
    """See ``Crew.meet``."""
    _say(replies, {"lends": mine})
    return list(_next_request()["lent"])


def _refusal(error: TofuError) -> dict[str, Any]:
    # Of a kind that the engine adds, the one of everybody that it is a case of: that is what is raised again.
    kind = next(base.__name__ for base in type(error).__mro__ if base.__module__ == TofuError.__module__)
    return {"error": {"kind": kind, "what": error.what, "facts": error.facts, "hint": error.hint}}


def _next_request() -> dict[str, Any]:
    """What the supervisor asks next; the process ends where there is nothing more."""
    line = sys.stdin.readline()
    if not line:
        _end()
    request: dict[str, Any] = json.loads(line)
    return request


def _watch() -> None:
    """Ends the process when the supervisor has gone, whatever the workers do."""
    supervisor, pipe = os.getppid(), select.poll()
    pipe.register(sys.stdin, 0)  # for nothing but its end, of which a system may not tell
    while not pipe.poll(_WATCH_MILLISECONDS) and os.getppid() == supervisor:
        pass
    _end()


def _end() -> NoReturn:
    # Not sys.exit: worker threads may be deep in a kernel, and nothing is left to be saved.
    os._exit(0)


@without_collection()
def _start(
    request: Mapping[str, Any],
    make_backend: MakeBackend | None,
    progress: Progress,
    meet: Callable[[dict[str, Any]], list[dict[str, Any]]],
) -> Executor:
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
    libraries = tuple(map(Path, request["libraries"]))
    backend: Backend | None = None
    if request["devices"] is not None:
        assert make_backend is not None, "a child that has only CPUs was given devices"
        workers = tuple(model.program.worker for model in models)
        crew = Crew(workers, programs, exchange, orders, tuple(request["devices"]), libraries, progress, meet)
        backend = make_backend(crew)
    return Executor(
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


def _serve(
    executor: Executor, push: Sequence[str] | None, iterate: Mapping[str, bool] | None, pull: Sequence[str]
) -> dict[str, Any]:
    if push != []:
        executor.push(push)
    iteration = None if iterate is None else executor.iterate(**iterate)
    if pull:
        executor.pull(pull)
    if iteration is None:
        on_gpus = executor.on_gpus()
        return {"on_gpus": None if on_gpus is None else asdict(on_gpus)}
    return {"moved_bytes": iteration.moved_bytes, "seconds": iteration.seconds, "timings": iteration.timings}


if __name__ == "__main__":
    main()
