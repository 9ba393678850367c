"""The process that runs workers on GPUs: ``python -m planner.runtime.engine.gpu.child``; see ``process/child.py``."""

from __future__ import annotations

from typing import NoReturn

from planner.runtime.engine.gpu.cuda import CudaBackend, devices_of
from planner.runtime.engine.gpu.cuda_ipc import Apart, Lent
from planner.runtime.engine.gpu.cuda_sessions import fix_cublas_workspace, sessions_on
from planner.runtime.engine.gpu.devices import require_cuda
from planner.runtime.engine.process import child
from planner.runtime.engine.process.child import Crew


def main() -> NoReturn:
    """Serves one supervisor, with GPUs."""
    child.main(_backend)


def _backend(crew: Crew) -> CudaBackend:
    """The GPUs of the workers of this process.

    A process tries the GPUs of its own workers alone: a GPU that it has tried keeps memory for it.

    Raises:
        UsageError: a GPU is not there, or cannot be used.
    """
    fix_cublas_workspace()
    wanted = crew.devices or None
    crew.progress("trying the GPUs")
    cupy, count = require_cuda(wanted if crew.orders is None else ())
    devices = devices_of(len(crew.programs), wanted, count)
    own_devices = [devices[worker] for worker in crew.workers]
    apart = None
    if crew.orders is not None:
        require_cuda(own_devices)
        (worker,) = crew.workers

        def meet(mine: Lent) -> list[Lent]:
            return [Lent.from_json(answer) for answer in crew.meet(mine.as_json())]

        apart = Apart(worker, crew.orders.waits, crew.orders.awaited[worker], meet)
    return CudaBackend(crew.programs, crew.exchange, devices, cupy, sessions_on(own_devices, crew.libraries), apart)


if __name__ == "__main__":
    main()
