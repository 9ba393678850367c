"""Advice in errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import near_file


@pytest.mark.parametrize(
    ("name", "there", "advice"),
    [
        ("train.onnx", "trace.json", ""),
        ("train.onxn", "train.onnx", "train.onnx"),
        ("tain.onnx", "train.onnx", "train.onnx"),
        ("train", "train.onnx", "train.onnx"),
        ("weights.npz", "weights.npy", "weights.npy"),
        ("weights.json", "weights.jsonl", "weights.jsonl"),
        ("plam", "plan", "plan"),
        ("plan", "trace.json", ""),
    ],
)
def test_the_nearest_file_is_of_the_same_kind(tmp_path: Path, name: str, there: str, advice: str) -> None:
    (tmp_path / there).touch()
    expected = f"did you mean {advice!r}?" if advice else f"see which files are there: ls {tmp_path}"
    assert near_file(tmp_path / name) == expected
