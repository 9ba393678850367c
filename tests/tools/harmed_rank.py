"""``tofu`` as a rank of mpiexec that does some harm when its worker comes to a step, for tests of failing ranks.

    mpiexec -n 4 python tests/tools/harmed_rank.py WORKER STEP HARM run plan --engine mpi

STEP counts from 0, over all iterations. When it comes to it, it makes the file that HARMED_AT names. HARM is one of:

    raise     an exception in the step
    kill      SIGKILL to the process that works
    crash     SIGSEGV to it
    stop      SIGSTOP to it
    exit      it ends without a word
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def _harm(kind: str) -> None:
    if "HARMED_AT" in os.environ:
        Path(os.environ["HARMED_AT"]).touch()
    if kind == "raise":
        raise ValueError("planted")
    if kind == "exit":
        os._exit(7)
    os.kill(os.getpid(), {"kill": signal.SIGKILL, "crash": signal.SIGSEGV, "stop": signal.SIGSTOP}[kind])


def main() -> int:
    """Runs the command line with a harmed worker."""
    worker, step, kind = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    from planner.commands import main as cli
    from planner.runtime.engine.core import worker_executor

    prepare = worker_executor.WorkerExecutor._prepare
    count = 0

    def prepared(self: Any, model: Any, steps: range, *rest: Any) -> Any:
        action = prepare(self, model, steps, *rest)
        if model.program.worker != worker:
            return action
        run = action.run

        def harmed() -> Any:
            nonlocal count
            count += 1
            if count == step + 1:
                _harm(kind)
            return run()

        object.__setattr__(action, "run", harmed)
        return action

    worker_executor.WorkerExecutor._prepare = prepared  # type: ignore[method-assign]
    return cli.main(sys.argv[4:])


if __name__ == "__main__":
    sys.exit(main())
