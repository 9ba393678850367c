"""``tofu run --engine mpi`` under the launcher of this environment."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOFU = (sys.executable, "-m", "planner")
HARMED = (sys.executable, str(ROOT / "tests" / "tools" / "harmed_rank.py"))
SECONDS = 300.0


@dataclass(frozen=True)
class Done:
    """What has become of a launch."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """The messages that were told: the lines that begin one."""
        return [line for line in self.err.splitlines() if line.startswith("error:")]


@functools.lru_cache(maxsize=1)
def launcher() -> str | None:
    """``mpiexec``: beside this Python, or anywhere; None if there is none, or no mpi4py."""
    if find_spec("mpi4py") is None:
        return None
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.is_file() else shutil.which("mpiexec")


def environment() -> dict[str, str]:
    """For ranks: this source; and Open MPI may run as root, and have more ranks than there are processors."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }


def launch(ranks: int, *arguments: object, command: tuple[str, ...] = TOFU, **variables: str) -> Done:
    """Launches ranks of one command line, and waits for them."""
    return launch_lines((ranks, *command, *arguments), **variables)


def launch_lines(*lines: tuple[object, ...], **variables: str) -> Done:
    """Launches ranks of several: how many of each, and the line."""
    program = launcher()
    assert program is not None
    parts = []
    for ranks, *line in lines:
        parts += [*([":"] if parts else []), "-n", str(ranks), *map(str, line)]
    done = subprocess.run(
        [program, *parts],
        env={**environment(), **variables},
        text=True,
        capture_output=True,
        timeout=SECONDS,
        stdin=subprocess.DEVNULL,
    )
    return Done(done.returncode, done.stdout, done.stderr)
