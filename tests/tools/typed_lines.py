"""Lines of the documents, typed as a user types them: where ``tofu`` and ``python`` are found."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def typing_environment(programs: Path) -> dict[str, str]:
    """The environment in which ``tofu`` and ``python`` are this checkout's and this interpreter.

    Args:
        programs: a folder to make, for the two programs.
    """
    programs.mkdir(parents=True)
    for name, arguments in (("tofu", "-m planner"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (programs / name).chmod(0o755)
    before = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT) if before is None else f"{ROOT}{os.pathsep}{before}",
    }
