"""Mutated files through the commands: each is taken or refused, quickly, in plain words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "fuzz_files.py"


@pytest.mark.slow
def test_mutated_files_are_taken_or_refused() -> None:
    command = [sys.executable, str(TOOL), "--seed", "0", "--count", "150"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout
    assert "findings: 0" in done.stdout
