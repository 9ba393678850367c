"""Random graphs over all described operators, planned, run and verified."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "fuzz_graphs.py"


@pytest.mark.nightly
def test_random_graphs_are_verified_or_refused() -> None:
    done = subprocess.run([sys.executable, str(TOOL), "--seed", "0", "--count", "60"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "verified" in done.stdout
