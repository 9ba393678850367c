"""Mutated files through the commands: each is taken or refused, quickly, in plain words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fast_suite import draws

TOOL = Path(__file__).parents[1] / "tools" / "fuzz_files.py"


@pytest.mark.parametrize("count", draws(50, 150))
def test_mutated_files_are_taken_or_refused(count: int) -> None:
    command = [sys.executable, str(TOOL), "--seed", "0", "--count", str(count)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "findings: 0" in done.stdout
