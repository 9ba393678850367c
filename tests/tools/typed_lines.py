"""Lines of the documents, typed as a user types them: where ``tofu`` and ``python`` are found."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from planner.commands import main as cli

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


def try_commands(session: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs the commands of a page; the lines below each must be printed, in order, ``...`` standing for anything.

    Args:
        session: a block, each command after ``$``; where the lines below begin with ``error:``, it must exit with 2.
        capsys: reads the output.
    """
    for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        line, _, shown = part.partition("\n")
        program, *arguments = shlex.split(line)
        assert program == "tofu"
        code = cli.main(arguments)
        captured = capsys.readouterr()
        assert code == (2 if shown.startswith("error:") else 0), captured.err
        printed = captured.out + captured.err
        pattern = ".*".join(re.escape(piece.strip()) for piece in shown.split("..."))
        assert re.search(re.sub(r"(\\ )+", r"\\s+", pattern), printed, re.DOTALL), f"{line}\n{printed}"
