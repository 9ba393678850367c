"""``tofu compare``: what it refuses."""

from __future__ import annotations

import pytest

from command_line import Door, assert_refused


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("compare m.onnx", "compare: for how many GPUs?\nhint: write --gpus K, or --topology with a file or a name"),
    ],
)
def test_bad_usage(line: str, says: str, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    assert_refused(line, says, door, capsys)
